"""All that it rests on that some stages are up to date: what a later look must find as it is now."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from flows.engine import dvc_lock
from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import get_run_cache_entry_file
from flows.lineage import cache_objects
from tasks.common import mlflow_database

OURS = ("flows", "tasks")  # whose code decides
TOOLS = ("dvc", "dvc_data")
SETTINGS = (
    "*.yaml",
    "*.yml",
    "*.json",
    "*.toml",
    ".dvcignore",
    "dvc.lock",
)  # in the root: the graph, params, what dvc.yaml reads
DVC = (".dvc/config", ".dvc/config.local")


def collect_input_paths(root: Path, stages: Sequence[str]) -> list[str] | None:
    """Files and folders, relative to the root or absolute; None where it cannot be told from them."""
    if "vars:" in (root / "dvc.yaml").read_text():  # other files may decide what the graph is
        return None
    try:
        return [*dict.fromkeys([*_iterate_engine_paths(root), *_iterate_stage_paths(root, stages)])]
    except (PlanError, OSError, KeyError):
        return None


def _iterate_engine_paths(root: Path) -> Iterator[str]:
    for name in (*OURS, *TOOLS):
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        yield from (folder if name in OURS else str(Path(folder, "__init__.py")) for folder in folders)
    for pattern in SETTINGS:
        yield from (file.name for file in sorted(root.glob(pattern)))
    yield from (*DVC, mlflow_database.DATABASE.as_posix(), f"{mlflow_database.DATABASE.as_posix()}-wal")


def _iterate_stage_paths(root: Path, stages: Sequence[str]) -> Iterator[str]:
    entries = dvc_lock.read_lock_entries(root)
    for stage in stages:
        entry = entries[stage]
        yield str(get_run_cache_entry_file(root, entry).parent)  # by which it is known whether a run made the outs
        for path in (*get_entry_hashes(entry, "deps"), *entry.get("params", ())):
            yield path
            yield f"{path}.dvc"
        for path, md5 in get_entry_hashes(entry, "outs").items():
            yield path
            for object_md5 in {md5, *cache_objects.read_cached_file_hashes(root, md5).values()} - {""}:
                file = cache_objects.find_cache_object(root, object_md5)
                if file is None:
                    raise PlanError(f"{object_md5} is not in the cache")
                yield str(file)
