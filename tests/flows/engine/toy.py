"""Toy pipelines in a real git and DVC repository, run by the engine without Prefect and, if asked for, with MLflow."""

import contextlib
import io
import json
import logging
import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import Any

from flows.engine.coordinator import Coordinator
from flows.engine.execute import Execution
from flows.engine.plan import plan_stages
from flows.engine.stage_types import Event, PlannedStage, StageResult
from tests.flows.engine import in_order

# Writes OUT: the text after `--`, its section of params.yaml and the content of the files named before it.
WORK = """
import os, sys
null, true, false = None, True, False  # of JSON, whose module takes longer to import than the rest to run
out, *ins = sys.argv[1:]
folder, _, section = out.rpartition("/")
params = eval(open("params.yaml").read()).get(section)
text = "".join(open(name).read() for name in ins) + f"{section} {params}\\n"
os.makedirs(folder or ".", exist_ok=True)
with open(out, "w") as file:
    file.write(text)
print("made", out)
"""


class Messages(logging.Handler):
    """Keeps what is logged, as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Toy:
    """A repository with toy stages; JSON is written where DVC reads YAML."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stages: dict[str, dict[str, Any]] = {}
        self.params: dict[str, Any] = {}
        self.events: list[Event] = []
        self.write("work.py", WORK)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def stage(self, name: str, *upstream: str, cmd: str | None = None, **more: Any) -> None:
        """Add a stage that makes data/<name> from its param and its upstream's data."""
        ins = [f"data/{up}" for up in upstream]
        self.stages[name] = {
            "cmd": cmd or " ".join(["python work.py", f"data/{name}", *ins]),
            "deps": ["work.py", *ins],
            "params": [name],
            "outs": [f"data/{name}"],
            **more,
        }
        self.params.setdefault(name, 1)
        self.save()

    def diamond(self) -> None:
        self.stage("a")
        self.stage("b", "a")
        self.stage("c", "a")
        self.stage("d", "b", "c")

    def set(self, **params: Any) -> None:
        self.params.update(params)
        self.save()

    def save(self) -> None:
        self.write("dvc.yaml", json.dumps({"stages": self.stages}))
        self.write("params.yaml", json.dumps(self.params))

    def plan(self, *targets: str, force: Collection[str] = ()) -> list[PlannedStage]:
        return plan_stages(self.root, targets or tuple(self.stages), force)

    def reasons(self, *targets: str, force: Collection[str] = ()) -> dict[str, str | None]:
        return {stage.name: stage.reason for stage in self.plan(*targets, force=force)}

    def run(self, *targets: str, force: Collection[str] = (), recorder: Any = None) -> dict[str, StageResult]:
        """Plan and execute one stage after another, until one fails."""
        results = {}
        with Coordinator(self.root, recorder) as coordinator:
            for stage in self.plan(*targets, force=force):
                forced = stage.reason == "forced"
                results[stage.name] = coordinator.execute(stage.name, self.events.append, force=forced)
        return results

    def states(self, *targets: str, force: Collection[str] = ()) -> dict[str, str]:
        return {name: result.state for name, result in self.run(*targets, force=force).items()}

    def run_parallel(self, jobs: int | None = None) -> dict[str, StageResult]:
        """Plan and execute new stages side by side, each when its upstream has succeeded."""
        planned = self.plan()
        with Coordinator(self.root) as coordinator:
            execution = Execution(coordinator, planned, jobs, self.events.append)
            return {result.stage: result for result in in_order.run(execution)}

    def dvc(self, *arguments: str) -> str:
        """Run plain dvc in this process; its output."""
        from dvc.cli import main

        log, output = Messages(), io.StringIO()
        logger = logging.getLogger("dvc")
        level, disabled = logger.level, logger.disabled
        logger.addHandler(log)
        logger.setLevel(logging.INFO)
        logger.disabled = False
        try:
            with contextlib.chdir(self.root), contextlib.redirect_stdout(output):
                status = main([*arguments])
        finally:
            logger.removeHandler(log)
            logger.setLevel(level)
            logger.disabled = disabled
        assert status == 0, "\n".join(log.lines)
        return "".join([output.getvalue(), *(f"{line}\n" for line in log.lines)])

    @property
    def lock(self) -> dict[str, Any]:
        from ruamel.yaml import YAML

        return YAML(typ="safe").load(self.root / "dvc.lock")
