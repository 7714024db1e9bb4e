"""Runs of a small pipeline that benchmarks/faults.py stops: in a child of this process, or as the `posttrain`
command.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
LINES = ("PlanError: ", "OSError: ", "PermissionError: ")  # flows/cli.py turns them into one line
ENDS = 60.0  # seconds in which what a trial has started ends
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
SITUATIONS = ("first", "again", "restored")
GRAPH: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
STAGE = """\
import json, sys, time
from pathlib import Path

name, out, *needs = sys.argv[1:]
section = json.loads(Path("params.yaml").read_text())[name]
time.sleep(section["seconds"])
text = "".join((Path(need) / "text").read_text() for need in needs) + f"{name} {section['value']}\\n"
Path(out).mkdir(parents=True)
(Path(out) / "text").write_text(text)
(Path(out) / "more").write_text(text * 2)
Path("data/metrics").mkdir(exist_ok=True)
Path(f"data/metrics/{name}.json").write_text(json.dumps({"length": len(text)}))
"""


def create_toy_pipeline(root: Path) -> None:
    """The pipeline in a git and DVC repository, in which nothing has run."""
    root.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", root], check=True)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet"], cwd=root, check=True)
    (root / "stage.py").write_text(STAGE)
    stages = {
        name: {
            "cmd": " ".join(["python stage.py", name, f"data/{name}", *(f"data/{need}" for need in needs)]),
            "deps": ["stage.py", *(f"data/{need}" for need in needs)],
            "params": [name],
            "outs": [f"data/{name}"],
            "metrics": [f"data/metrics/{name}.json"],
        }
        for name, needs in GRAPH.items()
    }
    (root / "dvc.yaml").write_text(json.dumps({"stages": stages}))
    write_stage_values(root)


def write_stage_values(root: Path, seconds: float = 0.0, **values: int) -> None:
    """Set the stages' values; 1 for a stage without one."""
    sections = {name: {"value": values.get(name, 1), "seconds": seconds} for name in GRAPH}
    (root / "params.yaml").write_text(json.dumps(sections))


def compute_expected_texts(root: Path) -> dict[str, str]:
    """The text that each stage must have written."""
    sections = json.loads((root / "params.yaml").read_text())
    texts: dict[str, str] = {}
    for name, needs in GRAPH.items():
        texts[name] = "".join(texts[need] for need in needs) + f"{name} {sections[name]['value']}\n"
    return texts


def run_pipeline_in_process(root: Path) -> dict[str, str]:
    """Plan and bring all stages up to date with MLflow, as `posttrain run` does, but without Prefect; each stage's
    state and reason.
    """
    from flows.engine.coordinator import Coordinator
    from flows.engine.execute import Execution
    from flows.engine.mlflow_flow_recorder import FlowRecorder
    from flows.engine.plan import plan_stages

    with Coordinator(root) as coordinator:
        planned = plan_stages(root, ["d"])
        coordinator.recorder = recorder = FlowRecorder(root, "language")
        execution = Execution(coordinator, planned, 1, lambda event: None)  # one stage after the other
        for stage in planned:
            if stage.reason:
                execution.start(stage.name).result()
        results = execution.results()
        recorder.close(results)
    return {result.stage: f"{result.state} {result.reason}" for result in results}


def find_pipeline_faults(root: Path, lineage: bool) -> list[str]:
    """What is wrong after a run that should have mended everything."""
    from flows.engine.plan import plan_stages

    found = []
    for name, text in compute_expected_texts(root).items():
        folder = root / f"data/{name}"
        made = (folder / "text").read_text() if (folder / "text").is_file() else None
        if made != text or (folder / "more").read_text() != text * 2:
            found.append(f"data/{name} holds {made!r}")
    found += [f"{stage.name} is still to run: {stage.reason}" for stage in plan_stages(root, ["d"]) if stage.reason]

    for name in GRAPH if lineage else ():
        found += find_lineage_breaks(root, name)
    found += find_unfinished_records(root)
    place = ".dvc/tmp/posttrain/previous"
    if (root / place).exists() and any((root / place).iterdir()):
        found.append(f"{place} is not empty")
    return found


def find_unfinished_records(root: Path) -> list[str]:
    """What no ended run may leave: running runs in MLflow, and reserved paths in DVC."""
    with closing(sqlite3.connect(root / "mlruns/mlflow.db")) as records:
        left = records.execute("SELECT name FROM runs WHERE status = 'RUNNING'").fetchall()
    found = [f"the run of {name} is left as running" for (name,) in left]
    reserved = root / ".dvc/tmp/rwlock"
    if reserved.exists() and any(json.loads(reserved.read_text() or "{}").values()):
        found.append(f"still reserved: {reserved.read_text()}")
    return found


def find_lineage_breaks(root: Path, stage: str) -> list[str]:
    """The places where the lineage of a stage's outs breaks."""
    from flows.lineage.chain import Link, trace_lineage

    def notes(link: Link) -> Iterator[str]:
        if "breaks" in link.note:
            yield f"lineage of {link.path}: {link.note}"
        for earlier in link.inputs:
            yield from notes(earlier)

    return [*notes(trace_lineage(root, stage))]


def execute_mlflow_sql(root: Path, statement: str) -> None:
    """Change MLflow's database by hand."""
    with closing(sqlite3.connect(root / "mlruns/mlflow.db")) as records:
        records.execute(statement)
        records.commit()


def run_in_child_process(act: Callable[[], Any]) -> tuple[int, Any]:
    """Call the function in a forked child, which has all imports; its exit status (below 0: the signal) and its
    result.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.close(reader)
        status = 1
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            try:
                answer = act()
                status = 0
            except BaseException as error:
                answer = f"{type(error).__name__}: {' '.join(str(error).split())}"
            with contextlib.suppress(OSError):
                os.write(writer, json.dumps(answer).encode())
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else None


def call_before_file_changes(root: Path, act: Callable[[int], None]) -> None:
    """Before each change of the file system below `root` that this process makes by Python, call `act` with its number
    1, 2, ..
    """
    count = 0
    inside = str(root)

    def before(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if (writes or event in CHANGES) and any(str(given).startswith(inside) for given in arguments[:2]):
            count += 1
            act(count)

    sys.addaudithook(before)


@dataclass(frozen=True)
class Toy:
    """The pipeline in a given state, copied for each trial."""

    template: Path

    @classmethod
    def prepared(cls, folder: Path, situation: str) -> "Toy":
        """`first`: nothing has run; `again`: a value has changed; `restored`: a value was changed and set back."""
        template = folder / "template"
        create_toy_pipeline(template)
        os.environ["DVC_SITE_CACHE_DIR"] = str(folder / "site")
        os.environ.setdefault("DVC_NO_ANALYTICS", "1")
        import tasks.common.mlflow_database  # noqa: F401

        toy = cls(template)
        for values in {"first": [], "again": [{}], "restored": [{}, {"b": 2}]}[situation]:
            write_stage_values(template, **values)
            status, states = run_in_child_process(lambda: run_pipeline_in_process(template))
            assert status == 0, states
        write_stage_values(template, **({"b": 2} if situation == "again" else {}))
        return toy

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy, always at the same path, so that paths in records stay right."""
        place = self.template.parent / "trial"
        deadline = time.monotonic() + ENDS
        while place.exists():  # what the trial before has started may still write there
            assert time.monotonic() < deadline, f"{place} is still written to"
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.template, place, symlinks=True)
        yield place

    def changes(self) -> int:
        """The number of changes that a run makes to the file system."""
        with self.copy() as root:
            seen = []

            def counted() -> int:
                call_before_file_changes(root, seen.append)
                run_pipeline_in_process(root)
                return len(seen)

            status, count = run_in_child_process(counted)
            assert status == 0, count
            return int(count)

    def run_trial(self, n: int, code: str | None) -> list[str]:
        """Let the n-th change fail with this error code, or kill the process before it; then make a plain run."""
        with self.copy() as root:

            def fail(count: int) -> None:
                if count == n and code is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                if count == n and code is not None:
                    raise OSError(ERRORS[code], os.strerror(ERRORS[code]), "here")

            def stopped() -> dict[str, str]:
                call_before_file_changes(root, fail)
                return run_pipeline_in_process(root)

            status, said = run_in_child_process(stopped)
            found = []
            if code is None and status not in (0, -signal.SIGKILL):
                found.append(f"before the kill: {said}")
            if code is not None and status and not str(said).startswith(LINES):
                found.append(f"not one line: {said}")
            time.sleep(0.02)
            return found + rerun_and_find_faults(root)


def rerun_and_find_faults(root: Path, lineage: bool = True) -> list[str]:
    """Make a plain run; what is wrong after it."""
    status, said = run_in_child_process(lambda: run_pipeline_in_process(root))
    bad = [
        f"{name}: {state}"
        for name, state in (said if isinstance(said, dict) else {}).items()
        if state.split()[0] in ("failed", "skipped")
    ]
    if status or bad:
        return [f"the next run: {'; '.join(bad) or said}"]
    status, found = run_in_child_process(lambda: find_pipeline_faults(root, lineage))
    return list(found) if status == 0 else [f"looking: {found}"]
