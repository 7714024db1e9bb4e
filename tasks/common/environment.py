"""What a run was made with beside its code: the versions of the packages, the machine, who ran it.

The flows import this module too, so that `posttrain run` and plain `dvc repro` record the same.
"""

import getpass
import os
import platform
from importlib import metadata
from pathlib import Path

from tasks.algorithms.common import products

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "datasets", "dvc", "prefect", "mlflow", "pandera")


TAG = "posttrain.env."  # begins the tag of each of `versions`
PRODUCTS = products.VARIABLE  # by which a command is given the products of a recorded run


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
    facts = products.processor()
    if not facts:  # no Linux
        return platform.processor() or platform.machine()
    widest = f" ({facts['vectors']})" if facts["vectors"] else ""
    return facts.get("model name", platform.machine()) + widest


def versions() -> dict[str, str]:
    """Python, the machine, and the versions of packages that can matter to a result; "none" if one is not installed."""
    machine = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": processor(),
        "cores": str(os.cpu_count()),
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "products": products.name(),
    }
    return {**machine, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
