"""What a run was made with beside its code: the versions of the packages, the machine, who ran it.

The flows import this module too, so that `posttrain run` and plain `dvc repro` record the same.
"""

import getpass
import os
import platform
from importlib import metadata
from pathlib import Path

VECTORS = {
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "sve": "SVE",
    "asimd": "NEON",
}  # flag of the processor -> name, widest first
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "datasets", "dvc", "prefect", "mlflow", "pandera")


TAG = "posttrain.env."  # begins the tag of each of `versions`


def tags() -> dict[str, str]:
    """All of it as a run's tags in MLflow."""
    found = {TAG + name: value for name, value in versions().items()}
    return {"mlflow.user": user(), "mlflow.source.type": "LOCAL", **found}


def user() -> str:
    """Who runs this, by the name of the account."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return str(os.getuid())


def prepare() -> None:
    """Have this process and those that it starts send no statistics, and find a name and a home for an account that has none.

    Prefect and MLflow send statistics otherwise; DVC and others end where a container's account is a mere number.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = user()
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"  # as container runtimes have it


def processor() -> str:
    """The processor's name and the widest vectors that it has: the order of sums, and with it the bits of a result, depends on them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no Linux
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    flags = facts.get("flags", facts.get("Features", "")).split()
    widest = next((f" ({name})" for flag, name in VECTORS.items() if flag in flags), "")
    return facts.get("model name", platform.machine()) + widest


def versions() -> dict[str, str]:
    """Python, the machine, and the versions of packages that can matter to a result; "none" if one is not installed."""
    machine = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": processor(),
        "cores": str(os.cpu_count()),
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
    }
    return {**machine, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
