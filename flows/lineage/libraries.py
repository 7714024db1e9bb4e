"""Results made with other versions of libraries than those installed, by the records that lie beside DVC's run
cache.
"""

from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from flows.engine.dvc_lock import read_lock_entries
from flows.engine.records import provenance
from tasks.common import run_environment

TOOLS = ("dvc", "prefect", "mlflow")  # start and record stages, and compute nothing


def find_library_version_changes(root: Path, stages: Iterable[str]) -> dict[str, list[str]]:
    """`torch 2.13.0, installed 2.14.0` -> those of the stages whose newest record says so; nothing is said of stages
    without one.
    """
    entries = read_lock_entries(root)
    installed = _get_installed_versions()
    stages_by_change: dict[str, list[str]] = {}
    for stage in stages:
        for newest in provenance.load_entry_provenance(root, entries[stage])[:1]:
            for name, version in installed.items():
                recorded = newest.tags.get(run_environment.TAG + name, "none")
                if recorded not in ("none", version):
                    stages_by_change.setdefault(f"{name} {recorded}, installed {version}", []).append(stage)
    return stages_by_change


def _get_installed_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in run_environment.PACKAGES:
        if name not in TOOLS:
            with suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(name)
    return versions
