"""What a run was made with: the commit and the files that differ from it, the versions of the packages, the machine."""

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "datasets", "dvc", "prefect", "mlflow", "pandera")


def code(root: Path) -> tuple[str, str]:
    """The commit ("none" without one), and the files that differ from it ("no" if none does; "unknown" without git).

    dvc.lock is left out: its content is in the tags of the runs.
    """
    if shutil.which("git") is None or not (root / ".git").exists():
        return "none", "unknown"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    commit = git("rev-parse", "--verify", "--quiet", "HEAD").strip() or "none"
    changed = git("status", "--porcelain", "--untracked-files=normal", "--", ".", ":!dvc.lock").splitlines()
    return commit, " ".join(line[3:] for line in changed)[:4000] or "no"


def versions() -> dict[str, str]:
    """Python, the machine, and the versions of packages that can matter to a result; "none" if one is not installed."""
    machine = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": str(os.cpu_count()),
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
    }
    return {**machine, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
