"""The real flows at preset tiny's size, which benchmarks/faults.py stops repeatedly until they are complete.

A trial is one signal. The next trial continues from what the previous one left, so that every stage is hit in turn.
When a run is complete, or the flow has been stopped `ROUND` times, a plain run must succeed and leave the outs of an
undisturbed run, byte for byte. Then all results are deleted, and a new round begins with the other flow.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.fault_commands import find_orphan_processes, list_descendants, wait_until_repository_idle
from benchmarks.fault_runs import ROOT, find_lineage_breaks, find_unfinished_records, run_in_child_process

FLOWS = {"language": "report", "offline": "offline_report"}
MADE = (
    "mlruns",
    "dvc.lock",
    ".dvc/cache",
    ".dvc/tmp",
    "report.html",
    "report.md",
    "offline_report.html",
    "offline_report.md",
)
ROUND = 40  # signals at most, before a plain run must do the rest
LIMIT = 900.0  # seconds, for a whole run


@dataclass
class Flows:
    """A copy of this repository, and the outs of an undisturbed run of each flow that has been stopped."""

    root: Path
    hashes: dict[str, dict[str, str]]  # flow -> path -> md5
    stops: int = 0  # in this round

    @classmethod
    def prepared(cls, folder: Path) -> "Flows":
        """A copy in which nothing has run."""
        root = folder / "posttrain"
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(lambda name: (ROOT / name).is_file(), listed.splitlines()):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        subprocess.run(["git", "init", "--quiet", root], check=True)
        pipeline = (root / "dvc.yaml").read_text()
        (root / "dvc.yaml").write_text(
            pipeline.replace("{cpu: 2,", "{cpu: 1,").replace("--threads 2", "--threads 1")
        )  # on two threads, stages this small take longer
        flows = cls(root, {})
        assert flows.start("preset", "tiny").wait(LIMIT) == 0
        return flows

    def run_undisturbed_once(self, flow: str) -> dict[str, str]:
        """The outs of a run that nothing disturbs, which is made when first asked for, before the flow's first trial;
        its results are deleted.
        """
        if flow not in self.hashes:
            assert self.start("run", flow).wait(LIMIT) == 0, self.said()[-2000:]
            self.hashes[flow] = self.outs()
            self.clean()
        return self.hashes[flow]

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A command of posttrain, in a session of its own."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "MLFLOW"))}
        environ |= {"PYTHONPATH": str(self.root), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        environ |= {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(self.root.parent / "site")}
        with (self.root.parent / "command.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *words],
                cwd=self.root,
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        """The output of the last command."""
        return (self.root.parent / "command.log").read_text(errors="replace")

    def outs(self) -> dict[str, str]:
        """The hash of every out in dvc.lock."""
        lock = YAML(typ="safe").load(self.root / "dvc.lock")
        return {out["path"]: out["md5"] for stage in lock["stages"].values() for out in stage["outs"]}

    def clean(self) -> None:
        """Delete all that runs made, once nothing writes there: records are written after a run has ended."""
        wait_until_repository_idle(self.root)
        made = [self.root / name for name in MADE] + [
            path for path in (self.root / "data").iterdir() if path.name != "raw"
        ]
        for path in made:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.stops = 0

    def run_with_signal(self, flow: str, kind: str, seconds: float, which: float, last: bool) -> tuple[bool, list[str]]:
        """Send a signal to one of the run's processes some seconds after its start; whether the round is over, and what
        is wrong.

        With `last` the round ends with it.
        """
        self.run_undisturbed_once(flow)
        run = self.start("run", flow)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(seconds)
        tree = [run.pid, *list_descendants(run.pid)]
        if run.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(tree[int(which * len(tree))], getattr(signal, kind))
        try:
            ended = run.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return True, ["it does not end"]
        found = find_orphan_processes(tree, self.root)
        if "Traceback" in self.said():
            found.append(f"a traceback: {self.said()[-500:]}")
        self.stops += 1
        if ended and self.stops < ROUND and not last and not found:
            return False, []
        found += self.rerun_and_find_faults(flow)
        self.clean()
        return True, found

    def rerun_and_find_faults(self, flow: str) -> list[str]:
        """Make a plain run; what is wrong after it."""
        if (ended := self.start("run", flow).wait(LIMIT)) != 0:
            return [f"the next run ends with exit {ended}: {self.said()[-500:]}"]
        wait_until_repository_idle(self.root)  # until its records are written, without which there is no lineage
        found = [f"{path} differs" for path, md5 in self.outs().items() if self.hashes[flow].get(path) != md5]
        found += [f"{path} is not there" for path in self.hashes[flow].keys() - self.outs().keys()]
        found += find_unfinished_records(self.root)
        status, broken = run_in_child_process(lambda: find_lineage_breaks(self.root, FLOWS[flow]))
        found += broken if status == 0 else [f"lineage: {broken}"]
        if self.start("run", flow).wait(LIMIT) or "nothing has changed" not in self.said():
            found.append(f"a run after that has something to do: {self.said()[-300:]}")
        return found
