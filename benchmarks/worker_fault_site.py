"""A Prefect server, a coordinator's repository, clones of it, and workers, which benchmarks/worker_faults.py disturbs.

All are real processes in one folder. A stage writes its out line by line and notes each line in a journal, by which two
writers of one out would be seen.
"""

import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from flows.engine.dvc_lock import read_lock_entries
from flows.machine import devices, stage_lock
from flows.workers import in_copy

ROOT = Path(__file__).parents[1]
LIMIT = 400.0  # seconds, for any run
LINES_A_SECOND = 5
STAGES = ("left", "right")
STAGE = """\
import json, os, sys, time
from pathlib import Path

name, out, journal, seed = sys.argv[1:]
section, out = json.loads(Path("params.yaml").read_text())[name], Path(out)
out.mkdir(parents=True)
lines = int(section["seconds"] * 5)
with (out / "text").open("w") as file:
    file.write((Path(seed) / "text").read_text())
    for number in range(1, lines + 1):
        time.sleep(0.2)
        file.write(f"{name} {section['value']} {number}\\n")
        file.flush()
        with open(journal, "a") as notes:
            notes.write(f"{os.getpid()} {time.time()} {Path.cwd()} {name} {number} {lines}\\n")
        with open(os.environ.get("POSTTRAIN_PROGRESS", os.devnull), "a") as progress:
            progress.write(json.dumps({"step": number, "total": lines}) + "\\n")
        print("line", number, "of", lines, flush=True)
(out / "more").write_bytes(f"{name} {section['value']}\\n".encode() * section["more"])
"""
SEED = """\
import sys
from pathlib import Path

out = Path(sys.argv[1])
out.mkdir(parents=True)
(out / "text").write_text("seed\\n")
(out / "more").write_bytes(b"seed " * 2000)
"""
Params = dict[str, dict[str, Any]]


class Site:
    """The folder with everything: `server/`, `remote/`, and the repositories `one`, `two` and `three`, of which `one`
    is the coordinator's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.remote = folder / "remote"
        self.port = _find_free_port()
        self.server: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.params: Params = {name: {"value": 0, "seconds": 6.0, "more": 10} for name in STAGES}

    @property
    def one(self) -> Path:
        """The coordinator's repository."""
        return self.folder / "one"

    @property
    def environ(self) -> dict[str, str]:
        """For every process of the site; the folder's name in it tells them from others."""
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_HOME": str(self.folder / "server"),
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "POSTTRAIN_DEVICES": str(self.folder / "devices"),
            "DVC_SITE_CACHE_DIR": str(self.folder / "site"),
            "CUDA_VISIBLE_DEVICES": "0",
            "DVC_NO_ANALYTICS": "1",
            "DO_NOT_TRACK": "1",
            "OMP_NUM_THREADS": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }

    def make(self) -> None:
        """Start the server and make the repositories; nothing but the seed has run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.remote.mkdir()
        self.start_server()
        self.one.mkdir()
        (self.one / "stage.py").write_text(STAGE)
        (self.one / "seed.py").write_text(SEED)
        stages: dict[str, Any] = {
            name: {
                "cmd": f"python stage.py {name} data/{name} {self.journal} data/seed",
                "deps": ["stage.py", "data/seed"],
                "params": [name],
                "outs": [f"data/{name}"],
                "meta": {"resources": {"gpu": 1 if name == "left" else 0, "pool": "gpu"}},
            }
            for name in STAGES
        }
        stages["seed"] = {"cmd": "python seed.py data/seed", "deps": ["seed.py"], "outs": ["data/seed"]}
        (self.one / "dvc.yaml").write_text(json.dumps({"stages": stages}))
        self.write_params(self.one)
        self.call("git", "init", "--quiet")
        self.call("dvc", "init", "--quiet")
        self.call("dvc", "remote", "add", "--quiet", "--default", "store", str(self.remote))
        (self.one / ".gitignore").write_text("/data/\n/mlruns/\n/*.html\n")
        self.call("dvc", "repro", "--quiet", "seed")
        self.call("git", "add", "--all")
        self.call("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "toy")
        for clone in ("two", "three", "undisturbed"):
            self.call("git", "clone", "--quiet", str(self.one), str(self.folder / clone))
        self.call("dvc", "repro", "--quiet", "left", repository=self.folder / "undisturbed")
        made = read_lock_entries(self.folder / "undisturbed")["left"]["outs"][0]["md5"]
        assert made == compute_dvc_folder_hash(compute_expected_files(self.params, "left")), (
            "what plain DVC makes is what is expected of a disturbed run"
        )
        self.journal.unlink()

    def call(self, *words: str, repository: Path | None = None) -> str:
        """A command in a repository, the coordinator's by default, that must succeed; what it prints."""
        done = subprocess.run(
            words, cwd=repository or self.one, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_server(self) -> None:
        """Start Prefect's server, and wait until it answers."""
        words = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port), "--no-ui"]
        self.server = self.start("server", self.folder, *words)
        wait_for_condition(self._answers, 120.0, "Prefect's server")

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{self.environ['PREFECT_API_URL']}/health") as answer,
        ):
            return bool(answer.status == 200)
        return False

    def start(self, log: str, folder: Path, *words: str, **environ: str) -> "subprocess.Popen[bytes]":
        """A command in a session of its own, with its output in a file."""
        with (self.folder / f"{log}.log").open("ab") as output:
            return subprocess.Popen(
                words,
                cwd=folder,
                env={**self.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_worker(self, name: str, repository: str, **environ: str) -> None:
        """Start a worker of the pool in a repository, without waiting for it."""
        words = [sys.executable, "-m", "flows.cli", "worker", "--pool", "gpu", "--name", name]
        self.workers[name] = self.start(f"worker-{name}", self.folder / repository, *words, **environ)

    def wait_for_workers(self) -> None:
        """Wait until the server knows exactly the workers that live."""
        wait_for_condition(lambda: self.online() == {*self.workers}, 120.0, f"the workers {[*self.workers]}")

    def online(self) -> set[str]:
        """The names of the live workers, as the server knows them."""
        url = f"{self.environ['PREFECT_API_URL']}/work_pools/gpu/workers/filter"
        asked = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
        with contextlib.suppress(OSError), urllib.request.urlopen(asked) as answer:
            return {one["name"] for one in json.load(answer) if one["status"] == "ONLINE"}
        return set()

    def run(self, *stages: str, repository: Path | None = None, log: str = "run") -> "subprocess.Popen[bytes]":
        """Start `posttrain run`."""
        (self.folder / f"{log}.log").unlink(missing_ok=True)
        return self.start(log, repository or self.one, sys.executable, "-m", "flows.cli", "run", *stages)

    def said(self, log: str = "run") -> str:
        """What a run has printed."""
        return (self.folder / f"{log}.log").read_text(errors="replace")

    def write_params(self, repository: Path, **sections: dict[str, Any]) -> None:
        """Set values of stages, such as left={"value": 2}."""
        self.params = {name: {**section, **sections.get(name, {})} for name, section in self.params.items()}
        (repository / "params.yaml").write_text(json.dumps(self.params))

    def attempts(self, worker: str = "") -> list[psutil.Process]:
        """The processes of attempts, of one worker or all."""
        above = [self.workers[worker].pid] if worker else [one.pid for one in self.workers.values()]
        return [
            one
            for pid in above
            for one in list_descendant_processes(pid)
            if "flows.workers.attempt" in get_command_words(one)
        ]

    def find_busy_worker(self) -> str | None:
        """The worker whose attempt writes lines at this moment."""
        notes = self.notes()
        for name in self.workers:
            for attempt in self.attempts(name):
                if any(one.pid in {note.pid for note in notes} for one in list_descendant_processes(attempt.pid)):
                    return name
        return None

    def notes(self) -> "list[Note]":
        """The journal."""
        return [Note(line) for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def processes(self) -> list[psutil.Process]:
        """All processes of this site."""
        return [
            one
            for one in psutil.process_iter()
            if one.pid != os.getpid() and str(self.folder) in join_environment_values(one)
        ]

    def close(self) -> None:
        """End everything."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


class Note:
    """A line of the journal: process, time, folder, stage, the number of the line that it wrote, and of how many."""

    def __init__(self, line: str) -> None:
        pid, moment, folder, stage, number, of = line.split()
        self.pid = int(pid)
        self.time = float(moment)
        self.folder = folder
        self.stage = stage
        self.number = int(number)
        self.of = int(of)


def compute_expected_files(params: Params, stage: str) -> dict[str, bytes]:
    """The files that a stage must have made."""
    value = params[stage]["value"]
    lines = int(params[stage]["seconds"] * LINES_A_SECOND)
    text = "seed\n" + "".join(f"{stage} {value} {number}\n" for number in range(1, lines + 1))
    return {"more": f"{stage} {value}\n".encode() * params[stage]["more"], "text": text.encode()}


def compute_dvc_folder_hash(files: dict[str, bytes]) -> str:
    """The hash that DVC gives a folder of these files."""
    listed = [{"md5": hashlib.md5(content).hexdigest(), "relpath": name} for name, content in sorted(files.items())]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"


def find_leftovers(site: Site, stages: Sequence[str], repository: Path | None = None) -> list[str]:
    """What is wrong after a trial: processes, locks, leases, records, outs."""
    root = repository or site.one
    assert site.server is not None
    known = {
        site.server.pid,
        *(one.pid for one in [*list_descendant_processes(site.server.pid), *site.workers.values()]),
    }
    found = []

    def strays() -> list[psutil.Process]:
        return [one for one in site.processes() if one.pid not in known and is_process_alive(one)]

    try:
        wait_for_condition(lambda: not strays(), 10.0, "")
    except TimeoutError:
        found += [f"orphan: {' '.join(get_command_words(one))[:90]}" for one in strays()]
    os.environ["POSTTRAIN_DEVICES"] = site.environ["POSTTRAIN_DEVICES"]
    found += [f"device {name} is held by {who}" for name, who in devices.list_device_holders(["0"]).items()]
    for name in ("one", "two", "three"):
        for stage in STAGES:
            if holder := stage_lock.find_stage_lock_holder(site.folder / name, stage):
                found.append(f"the lock of {stage} is held by {holder}")
        copies = site.folder / name / ".dvc/tmp/posttrain/copies"
        in_copy.delete_abandoned_folders(copies)  # as the next attempt does
        if copies.exists() and (left := [*copies.iterdir()]):
            found.append(f"{len(left)} scratch copies are still held in {name}")
    if left := [*(root / ".dvc/tmp/posttrain/attempts").glob("*")]:
        found.append(f"notes of attempts are left: {[one.name for one in left]}")
    if left := [*(root / ".dvc/tmp/posttrain/previous").glob("*")]:
        found.append(f"outs are left aside: {[one.name for one in left]}")
    entries = read_lock_entries(root)
    for stage in stages:
        wanted = compute_expected_files(site.params, stage)
        made = {name: file.read_bytes() for name in wanted if (file := root / f"data/{stage}/{name}").exists()}
        if made != wanted:
            found.append(f"data/{stage} has other bytes than an undisturbed run's")
        elif not entries.get(stage) or entries[stage]["outs"][0]["md5"] != compute_dvc_folder_hash(wanted):
            found.append(f"dvc.lock has another hash of data/{stage} than an undisturbed run's")
    with closing(sqlite3.connect(root / "mlruns/mlflow.db")) as records:
        running = records.execute("SELECT name FROM runs WHERE status = 'RUNNING'").fetchall()
    return (
        found
        + [f"the run of {name} is left as running" for (name,) in running]
        + find_overlapping_writers(site.notes())
    )


def find_overlapping_writers(notes: Sequence[Note]) -> list[str]:
    """Where two processes wrote the same out at the same time."""
    spans: dict[tuple[str, str, int], tuple[float, float]] = {}
    for note in notes:
        first, _ = spans.get((note.folder, note.stage, note.pid), (note.time, 0.0))
        spans[(note.folder, note.stage, note.pid)] = first, note.time
    found = []
    for (folder, stage, pid), (first, last) in spans.items():
        for (folder2, stage2, pid2), (first2, last2) in spans.items():
            if (folder, stage) == (folder2, stage2) and pid < pid2 and first <= last2 and first2 <= last:
                found.append(f"two writers of {stage} in {folder} at once")
    return found


def wait_for_condition(what: Callable[[], Any], seconds: float, name: str) -> Any:
    """What the function gives once it is true; TimeoutError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name}: not within {seconds:.0f} s")
        time.sleep(0.05)
    return found


def list_descendant_processes(pid: int) -> list[psutil.Process]:
    """All descendants of a process."""
    with contextlib.suppress(psutil.Error):
        return [*psutil.Process(pid).children(recursive=True)]
    return []


def get_command_words(process: psutil.Process) -> list[str]:
    """The words of the command line."""
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def join_environment_values(process: psutil.Process) -> str:
    """All variables, in one text."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.environ().values())
    return ""


def is_process_alive(process: psutil.Process) -> bool:
    """Whether it runs, or is stopped; a zombie does neither."""
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _find_free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
