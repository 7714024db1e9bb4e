"""How the code is kept: small files and functions, imports that do nothing and point down, a lock file that matches the installation."""

import ast
import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import grimp
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import repository

ROOT = Path(__file__).parent.parent
FOLDERS = ("flows", "tasks", "tests", "benchmarks")
SOURCES = repository.files("*.py", *(f"{folder}/**/*.py" for folder in FOLDERS))


def test_files_and_functions_stay_small():
    lengths = {file: len(file.read_text().splitlines()) for file in SOURCES}
    assert not {file for file, length in lengths.items() if length > 400}
    assert statistics.median(lengths.values()) <= 150
    assert not [file for file in SOURCES if file.name == "utils.py"]
    functions = {
        f"{file.relative_to(ROOT)}:{node.lineno}": node.end_lineno - node.lineno + 1
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {place for place, length in functions.items() if length > 80}
    assert statistics.quantiles(functions.values(), n=10)[-1] <= 40
    packages = repository.files("flows/**/__init__.py", "tasks/**/__init__.py")
    assert packages
    assert not [file for file in packages if file.read_text()]


def test_no_folder_is_a_heap():
    folders = {file.parent for file in SOURCES if file.relative_to(ROOT).parts[0] in ("flows", "tasks")}
    counts = {folder: len([*folder.glob("*.py")]) - 1 for folder in folders}  # without __init__.py
    assert not {folder: count for folder, count in counts.items() if count and not 3 <= count <= 24}


def test_a_stage_is_a_file_of_its_flow_and_nothing_imports_it():
    """What two stages share stands in a folder beside them; those folders import no stage.

    Above the flows, `evaluation` and `preflight` do what a stage does, without a pipeline.
    """
    above = {"tasks.evaluation", "tasks.preflight"}
    graph = grimp.build_graph("tasks", include_external_packages=False, cache_dir=None)
    for flow, least in (("tasks.language", 20), ("tasks.offline", 15), ("tasks.agents", 5)):
        stages = {name for name in graph.find_children(flow) if not graph.find_children(name)}
        assert len(stages) >= least
        users = {name: graph.find_modules_that_directly_import(name) for name in stages}
        assert not {one for found in users.values() for one in found if ".".join(one.split(".")[:2]) not in above}


def test_a_module_of_the_engine_that_knows_another_tool_s_insides_says_so_by_its_name():
    """Imports for types alone, below TYPE_CHECKING, are of public classes."""
    known = {
        file.name: {
            module.split(".")[0]
            for statement in ast.parse(re.sub(r"if TYPE_CHECKING:\n( .*\n|\n(?= ))+", "", file.read_text())).body
            for node in ast.walk(statement)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for module in ([node.module] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names])
        }
        for file in repository.files("flows/**/*.py")
    }
    for tool in ("dvc", "mlflow", "prefect"):
        others = {name for name, modules in known.items() if tool in modules and not name.startswith(f"{tool}_")}
        assert others == ({"guard.py"} if tool != "dvc" else set()), "the guard opens the servers of both"


def test_the_map_is_of_this_house():
    """docs/architecture.md names every folder with code, and only paths that exist."""
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:flows|tasks|tests)/[\w./]*)`", text))
    assert not {name for name in named if not (ROOT / name).exists()}
    folders = {file.parent for file in SOURCES if file.relative_to(ROOT).parts[0] in ("flows", "tasks")}
    with_code = {folder for folder in folders if {file.name for file in folder.glob("*.py")} - {"__init__.py"}}
    places = {f"{folder.relative_to(ROOT)}/" for folder in with_code} - {"flows/", "tasks/"}
    assert places <= named | {"tasks/language/", "tasks/offline/", "tasks/agents/"}


IMPORTS = """
import importlib, os, pkgutil, sys
import torch
from pathlib import Path
torch.set_num_threads(3)
before = dict(os.environ)
import tasks
for module in pkgutil.walk_packages(tasks.__path__, "tasks."):
    importlib.import_module(module.name)
assert "tasks.language.report" in sys.modules
assert torch.get_num_threads() == 3
assert not torch.are_deterministic_algorithms_enabled()
changed = {key for key in os.environ.keys() | before.keys() if os.environ.get(key) != before.get(key)}
assert not {key for key in changed if key.startswith(("OMP", "MKL", "MLFLOW", "POSTTRAIN", "CUBLAS"))}, changed
assert not list(Path.cwd().iterdir()), list(Path.cwd().iterdir())
assert "mlflow" not in sys.modules
"""


def test_importing_makes_and_sets_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "and it says nothing"


def locked() -> dict[str, str]:
    """Versions by name, of the entries that this Python and platform need."""
    lines = [
        line
        for name in ("requirements.lock", "requirements-dev.lock")
        for line in (ROOT / name).read_text().splitlines()
    ]
    assert all(
        re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.]*( ; [^\\/@]+)?( \\)?|    --hash=sha256:[0-9a-f]{64}( \\)?", line)
        for line in lines
    )
    requirements = [Requirement(line.removesuffix(" \\")) for line in lines if not line.startswith(" ")]
    needed = [requirement for requirement in requirements if not requirement.marker or requirement.marker.evaluate()]
    return {requirement.name: str(requirement.specifier).removeprefix("==") for requirement in needed}


def test_the_lock_names_exactly_what_is_installed():
    # A local version (2.13.0+cpu) says which build of the same version was chosen for this machine.
    versions = locked()
    assert {name: importlib.metadata.version(name).split("+")[0] for name in versions} == versions


CUDA = ("nvidia-", "cuda-", "triton")  # packages that torch's build for CUDA brings, in versions that torch names


def test_every_dependency_is_locked():
    """All dependencies of pyproject.toml, and their own dependencies as installed here."""
    names = locked()
    wanted = [(Requirement(line), "dev") for line in importlib.metadata.requires("posttrain") or ()]
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name.startswith(CUDA):
            continue
        assert name in names, f"{name} is not in a lock file"
        for further in {"", *requirement.extras}:
            if (name, further) not in seen:
                seen.add((name, further))
                wanted += [(Requirement(line), further) for line in importlib.metadata.requires(name) or ()]
    assert len(seen) > 100


def test_imports_point_down():
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", done.stdout)
