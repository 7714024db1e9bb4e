"""Each function that Python enters in a stage of the default flows is one that the stage's digests name."""

import ast

import pytest
from ruamel.yaml import YAML

from tasks import contract
from tasks.code import registries
from tasks.code.reachable_code import PackageCode, StageReach
from tasks.code.without_influence import LOOKED_AT, WITHOUT_INFLUENCE
from tests import repository
from tests.clone import Clone

pytestmark = pytest.mark.slow
TINY = repository.preset("tiny")
# What every Python process of the run imports first: it writes each function that is entered, once, to a file of the
# process.
TRACER = """
import os, sys, threading

entered = set()

def note(frame, event, _):
    code = frame.f_code
    if event != "call" or code in entered:
        return
    entered.add(code)
    at_import = frame.f_back is not None and frame.f_back.f_code.co_name == "<module>" and code.co_name[0] == "<"
    name = code.co_filename.removeprefix({root!r} + "/")
    if code.co_flags & 1 and not at_import and name.startswith("tasks/") and name.endswith(".py"):
        with open(f"{folder}/{{os.getpid()}}", "a") as file:
            print(os.environ.get("DVC_STAGE", ""), name, code.co_firstlineno, code.co_name, file=file)

sys.setprofile(note)
threading.setprofile(note)
"""


def reached_lines(code, module, looked_up):
    """Path -> the first and the last line of each part that the stage reaches."""
    lines = {}
    for name, part in StageReach(code, module, looked_up).parts.values():
        first = min(one.lineno for one in ast.walk(part.node) if hasattr(one, "lineno"))
        lines.setdefault(code.path(name), []).append((first, part.node.end_lineno))
    return lines


@pytest.mark.parametrize("flow", ["language", "offline", "agents"])
def test_what_runs_is_reached(flow, tmp_path):
    clone = Clone.of_this(tmp_path / "posttrain", TINY)
    startup, traces = tmp_path / "startup", tmp_path / "traces"
    startup.mkdir()
    traces.mkdir()
    (startup / "sitecustomize.py").write_text(TRACER.format(root=str(clone.root), folder=str(traces)))
    clone.variables["PYTHONPATH"] = f"{startup}:{clone.root}"
    ran = clone.posttrain("run", flow)

    def source(path):
        return (clone.root / path).read_bytes() if (clone.root / path).is_file() else None

    code, choices = (
        PackageCode(source, "tasks", WITHOUT_INFLUENCE, LOOKED_AT),
        registries.read_working_choices(clone.root),
    )
    modules = contract.collect_stage_modules(YAML(typ="safe").load(clone.root / "dvc.yaml"))
    ignored = {f"{name.replace('.', '/')}.py" for name in WITHOUT_INFLUENCE}
    lines, missed, traced = {}, set(), set()
    for file in traces.iterdir():
        for entered in file.read_text().splitlines():
            stage, _, rest = entered.partition(" ")
            path, line, name = rest.split(" ", 2)
            stage = stage.partition("@")[0]
            if stage in ("", "code") or path in ignored:
                continue
            traced.add(stage)
            if stage not in lines:
                lines[stage] = reached_lines(code, modules[stage], registries.list_chosen_modules(stage, choices))
            if not any(first <= int(line) <= last for first, last in lines[stage].get(path, ())):
                missed.add((stage, path, name))
    assert traced == {name.partition("@")[0] for name in ran} - {"code"}
    assert not missed
