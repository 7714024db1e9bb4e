import importlib.util
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from flows.engine.stage_types import PlannedStage
from flows.engine.warm_stages import MODULES, prepare_warm_starts
from flows.machine.warm_start import WarmStarts


def stage(
    name: str, reason: str | None = "params", cmd: str = "python -m tasks.language.dpo", **more: str
) -> PlannedStage:
    return PlannedStage(name, reason, (), 1, 0, cmd, **more)


def test_one_stage_alone_starts_cold() -> None:
    planned = [stage("a"), stage("b", None), stage("c", cmd="echo"), stage("d", pool="gpu")]
    with closing(made(planned)) as alone, closing(made([stage("a"), stage("b")])) as several:
        assert (alone.modules, several.modules) == ({}, MODULES)
    assert prepare_warm_starts([stage("b", None), stage("d", pool="gpu")]) is None, "nothing runs here"


def made(planned: list[PlannedStage]) -> WarmStarts:
    starts = prepare_warm_starts(planned)
    assert starts is not None
    return starts


def test_elsewhere_than_on_linux_all_start_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert prepare_warm_starts([stage("a"), stage("b")]) is None


IMPORTS = """
import importlib, json, sys, threading
from pathlib import Path
for module in sys.argv[1:]:
    importlib.import_module(module)
own = [name for name in sys.modules if name.partition(".")[0] in ("flows", "tasks", "tests", "posttrain")]
print(json.dumps([own, threading.active_count(), [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]]))
"""  # noqa: E501
RESTARTED = "jemalloc_bg_thd\n"  # pyarrow's; jemalloc starts it anew in a fork, as OpenBLAS does with its own


NAMES = dict.fromkeys(module for modules in MODULES.values() for module in modules)


@pytest.mark.parametrize("module", NAMES)
def test_what_is_imported_exists_and_is_none_of_the_project_s_modules(module: str) -> None:
    """A change to a module of the project must count; so that no test imports all of them, a file is looked for."""
    package, *rest = module.split(".")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert package not in ("flows", "tasks", "tests", "posttrain")
    folders = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    assert not rest or [
        folder for folder in folders if (folder / "__init__.py").exists() or folder.with_suffix(".py").exists()
    ]


@pytest.mark.slow
def test_what_is_imported_has_started_nothing() -> None:
    """No module of the project's own, and no thread that a fork would lose; of all packages' modules at once."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        [sys.executable, "-c", IMPORTS, *NAMES], capture_output=True, text=True, check=True, env=environ
    )
    own, threads, tasks = json.loads(said.stdout.splitlines()[-1])
    assert own == []
    assert threads == 1
    assert len([task for task in tasks if task != RESTARTED]) == 1
