"""What a run was made with beside its code: the versions of the packages, the machine, who ran it.

The flows import this module too, so that `posttrain run` and plain `dvc repro` record the same.
"""

import getpass
import hashlib
import os
import platform
import site
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from tasks.algorithms.common import matmul_backend

SEARCHED = "PYTHONPATH"
STARTUP = ("sitecustomize", "usercustomize")  # modules that Python runs before any program, where it finds them
# SHA-256 of the sitecustomize of a distribution: that of Debian and Ubuntu, which reports crashes.
DISTRIBUTIONS = ("43d81125d92376b1a69d53a71126a041cc9a18d8080e92dea0a2ae23be138b1e",)
CODE = (".py", ".pyc", ".so", ".pyd")
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "datasets", "dvc", "prefect", "mlflow", "pandera")


TAG = "posttrain.env."  # begins the tag of each of `versions`
PRODUCTS = matmul_backend.VARIABLE  # by which a command is given the products of a recorded run


def collect_run_tags() -> dict[str, str]:
    """All of it as a run's tags in MLflow."""
    version_tags = {TAG + name: value for name, value in collect_environment_facts().items()}
    return {"mlflow.user": get_user_name(), "mlflow.source.type": "LOCAL", **version_tags}


def get_user_name() -> str:
    """Who runs this, by the name of the account."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return str(os.getuid())


def prepare_environment() -> None:
    """Have this process and those that it starts send no statistics, and find a name and a home for an account that has
    none.

    Prefect and MLflow send statistics otherwise; DVC and others end where a container's account is a mere number.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = get_user_name()
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"  # as container runtimes have it


def describe_processor() -> str:
    """The processor's name and the widest vectors that it has: the order of sums, and with it the bits of a result,
    depends on them.
    """
    facts = matmul_backend.read_processor_facts()
    if not facts:  # no Linux
        return platform.processor() or platform.machine()
    widest = f" ({facts['vectors']})" if facts["vectors"] else ""
    return facts.get("model name", platform.machine()) + widest


def collect_environment_facts() -> dict[str, str]:
    """Python, the machine, and the versions of packages that can matter to a result; "none" if one is not installed."""
    machine = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": describe_processor(),
        "cores": str(os.cpu_count()),
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "products": matmul_backend.get_or_measure_matmul_library(),
    }
    return {**machine, **{name: _get_package_version(name) for name in PACKAGES}, **find_injected_code()}


def find_injected_code() -> dict[str, str]:
    """What comes into every Python process from outside of the installed packages, each with its path and SHA-256;
    mostly nothing.

    That are the modules sitecustomize and usercustomize, and the folders of PYTHONPATH but for the one that this
    package lies in.
    """
    package = Path(__file__).resolve().parents[2]
    entries = filter(None, os.environ.get(SEARCHED, "").split(os.pathsep))
    folders = [entry for entry in entries if Path(entry).resolve() != package]
    files = {name: _find_startup_file(name, folders) for name in STARTUP}
    injections = {name: f"{file} {_hash_files([file])}" for name, file in files.items() if file is not None}
    if folders:
        injections[SEARCHED] = f"{os.pathsep.join(folders)} {_hash_files(_iterate_module_files(folders))}"
    return injections


def filter_foreign_injections(environment: Mapping[str, str]) -> dict[str, str]:
    """What of a recorded environment was injected, without the modules that distributions ship."""
    injections = {name: environment[name] for name in (*STARTUP, SEARCHED) if name in environment}
    return {name: text for name, text in injections.items() if text.rpartition(" ")[2] not in DISTRIBUTIONS}


def _find_startup_file(name: str, folders: Sequence[str]) -> Path | None:
    """The file of a module that ran when this process started, or would in another one."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is None and (name == STARTUP[0] or site.ENABLE_USER_SITE):
        spec = PathFinder.find_spec(name, [*folders, *site.getsitepackages(), site.getusersitepackages()])
        loaded = spec.origin if spec else None
    return Path(loaded) if loaded and Path(loaded).is_file() else None


def _iterate_module_files(folders: Sequence[str]) -> Iterator[Path]:
    """The modules in folders, in the order of their paths; without virtual environments and hidden folders."""
    for folder in folders:
        for parent, below, names in os.walk(folder):
            below[:] = sorted(
                name for name in below if name[0] != "." and not Path(parent, name, "pyvenv.cfg").exists()
            )
            yield from (Path(parent, name) for name in sorted(names) if name.endswith(CODE))


def _hash_files(files: Sequence[Path] | Iterator[Path]) -> str:
    """SHA-256 of the bytes of one file, or of several one after the other; what cannot be read counts as empty."""
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()


def _get_package_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
