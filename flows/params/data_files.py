"""The user's own data files, read before a run that would read them: a fault costs seconds then, and not a training.

tasks/preflight reads them with the stages' readers, in a process of its own, and asks a hub how many problems it has. A run
without such files starts none.
"""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from flows.params.files import PARAMS, ParameterError, params

READERS = (
    "reviews",
    "corpus",
    "problems",
    "demonstrations",
    "preferences",
    "solutions",
    "evaluate",
)  # sections with `source`; mixture has one a data set


def check(root: Path, out_of_date: Collection[str]) -> list[str]:
    """What the files of the stages that will run hold, a line each; ParameterError with one line for the first fault in them."""
    if not _reads_files(root, {name.partition("@")[0] for name in out_of_date}):
        return []
    command = [sys.executable, "-m", "tasks.preflight", "--data", *sorted(out_of_date)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        try:
            message = str(json.loads(last))
        except ValueError:
            message = last or f"reading the data files ended with exit status {done.returncode}"
        raise ParameterError(message)
    return done.stdout.splitlines()


def _reads_files(root: Path, stages: Collection[str]) -> bool:
    given = params((root / PARAMS).read_text())
    sections = [given.get(name) for name in READERS if name in stages]
    mixed = (given.get("mixture") or {}).get("datasets", []) if "mixture" in stages else []
    sources = [one.get("source") for one in (*sections, *mixed) if isinstance(one, dict)]
    counted = (given.get("problems") or {}).get("source") == "hub" and {"responses", "mixture"} & {*stages}
    found = {"file", "files", "people", "mixture"} & {*sources} or ("problems" in stages and counted)
    return bool(found) and (root / "tasks/preflight").is_dir()
