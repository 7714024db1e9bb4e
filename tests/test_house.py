"""How the code is kept: small files and functions, imports that do nothing and point down, a lock file that matches the
installation.
"""

import ast
import gc
import importlib.metadata
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import repository

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent
FOLDERS = ("flows", "tasks", "tests", "benchmarks")
SOURCES = repository.files("*.py", *(f"{folder}/**/*.py" for folder in FOLDERS))
CODE = [
    file
    for file in SOURCES
    if file.relative_to(ROOT).parts[0] in ("flows", "tasks")
    and "tests" not in file.parts
    and file.name != "conftest.py"
]


@pytest.fixture(autouse=True, scope="module")
def no_search_for_garbage() -> Iterator[None]:
    """While trees of syntax are made, each search goes through all of them, and takes three times what parsing does."""
    gc.disable()
    yield
    gc.enable()


def statements(file: Path) -> list[ast.stmt]:
    """The statements of a file, those within others too, but none of what stands below TYPE_CHECKING."""
    return [*_below(ast.parse(file.read_text()))]


def _below(node: ast.AST) -> Iterator[ast.stmt]:
    if isinstance(node, ast.stmt):
        yield node
    for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    for part in ("orelse",) if for_types else ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            yield from _below(child)


def test_files_and_functions_stay_small():
    lengths = {file: len(file.read_text().splitlines()) for file in SOURCES}
    assert not {file for file, length in lengths.items() if length > 400}
    assert statistics.median(lengths.values()) <= 150
    assert not [file for file in SOURCES if file.name == "utils.py"]
    functions = {
        f"{file.relative_to(ROOT)}:{node.lineno}": node.end_lineno - node.lineno + 1
        for file in CODE
        for node in statements(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {place for place, length in functions.items() if length > 80}
    assert statistics.quantiles(functions.values(), n=10)[-1] <= 40
    packages = repository.files("flows/**/__init__.py", "tasks/**/__init__.py")
    assert packages
    assert not [file for file in packages if file.read_text()]


# Words that say nothing of what a variable holds.
EMPTY_WORDS = {
    *("found", "one", "told", "said", "asked", "given", "place", "places"),
    *("own", "known", "here", "there", "of", "taken", "brought"),
}
NAMED_BY_DVC = {("tasks/language/evaluate.py", "asked")}  # a parameter of a stage, which dvc.yaml names


def test_variables_and_parameters_say_what_they_hold():
    names = {
        (str(file.relative_to(ROOT)), name)
        for file in CODE
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name in _bound(function)
    }
    assert {(file, name) for file, name in names if name in EMPTY_WORDS} == NAMED_BY_DVC


def _bound(function: ast.AST) -> Iterator[str]:
    """The parameters of a function and the variables that it sets."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_no_two_classes_share_a_name():
    classes = Counter(
        statement.name for file in CODE for statement in statements(file) if isinstance(statement, ast.ClassDef)
    )
    shared = {name for name, count in classes.items() if count > 1}
    assert shared == {"Config"}, "pandera looks for a class of this name within a table"


def test_no_folder_is_a_heap():
    counts = Counter(file.parent for file in CODE if file.name != "__init__.py")
    assert not {folder: count for folder, count in counts.items() if count > 24}


def test_a_stage_is_a_file_of_its_flow_and_nothing_imports_it():
    """What two stages share stands in a folder beside them; those folders import no stage.

    Above the flows, `evaluation` and `preflight` do what a stage does, without a pipeline.
    """
    above = {"tasks.evaluation", "tasks.preflight"}
    graph = grimp.build_graph("tasks", include_external_packages=False, cache_dir=None)
    for flow, least in (("tasks.language", 15), ("tasks.offline", 10), ("tasks.agents", 5)):
        stages = {name for name in graph.find_children(flow) if not graph.find_children(name)}
        assert len(stages) >= least
        users = {name: graph.find_modules_that_directly_import(name) for name in stages}
        assert not {one for found in users.values() for one in found if ".".join(one.split(".")[:2]) not in above}


def test_a_module_of_the_engine_that_knows_another_tool_s_insides_says_so_by_its_name():
    """Imports for types alone, below TYPE_CHECKING, are of public classes."""
    known = {
        str(file.relative_to(ROOT / "flows")): {
            module.split(".")[0]
            for node in statements(file)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for module in ([node.module] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names])
        }
        for file in repository.files("flows/**/*.py")
    }
    for tool, also in (("dvc", set()), ("mlflow", {"engine/server_guard.py"}), ("prefect", FLOWS)):
        of_tool = {name for name, modules in known.items() if tool in modules}
        assert {name for name in of_tool if not name.rpartition("/")[2].startswith(f"{tool}_")} - also == set()


def test_at_most_eight_files_import_dvc_and_their_names_say_so():
    """Those count that import its types alone."""
    importing = set()
    for file in repository.files("flows/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            if any(module.split(".")[0] in ("dvc", "dvc_data", "dvc_objects") for module in modules):
                importing.add(file)
    assert not [file for file in importing if not file.name.startswith("dvc_")]
    assert 1 <= len(importing) <= 8, sorted(importing)


FLOWS = {
    *("language_model.py", "offline_rl.py", "agents.py", "serve_command.py"),
    *(
        "orchestration/prefect_tasks.py",
        "orchestration/server.py",
        "orchestration/flow_log.py",
        "orchestration/sweep_flow.py",
    ),
}


def test_the_map_is_of_this_house():
    """docs/architecture.md names every folder with code, and only paths that exist."""
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:flows|tasks|tests)/[\w./]*)`", text))
    assert not {name for name in named if not (ROOT / name).exists()}
    with_code = {file.parent for file in CODE if file.name != "__init__.py"}
    places = {f"{folder.relative_to(ROOT)}/" for folder in with_code} - {"flows/", "tasks/"}
    places = {place for place in places if not place.startswith("tasks/extensions/")}  # each has a page of its own
    assert places <= named | {"tasks/language/", "tasks/offline/", "tasks/agents/"}


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
