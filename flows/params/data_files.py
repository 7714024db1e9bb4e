"""The user's own data files, read before a run that would read them: a fault costs seconds then, and not a training.

tasks/preflight reads them with the stages' readers, in a process of its own, and asks a hub how many problems it has. It also makes the
environments that are not Gymnasium's own, which may not suit. A run without such files and environments starts none.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

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
    given = params((root / PARAMS).read_text())
    stages = {name.partition("@")[0] for name in out_of_date}
    needed = _reads_files(given, stages) or _reads_recordings(given, out_of_date)
    if not needed or not (root / "tasks/preflight").is_dir():
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


def _reads_files(given: Mapping[str, Any], stages: Collection[str]) -> bool:
    sections = [given.get(name) for name in READERS if name in stages]
    mixed = (given.get("mixture") or {}).get("datasets", []) if "mixture" in stages else []
    sources = [one.get("source") for one in (*sections, *mixed) if isinstance(one, dict)]
    counted = (given.get("problems") or {}).get("source") == "hub" and {"responses", "mixture"} & {*stages}
    found = {"file", "files", "people", "mixture"} & {*sources} or ("problems" in stages and counted)
    return bool(found)


def _reads_recordings(given: Mapping[str, Any], out_of_date: Collection[str]) -> bool:
    """Whether data sets are imported, or environments are made that have arguments, wrappers or a package of their own."""
    datasets = _branches(given, "transitions", "datasets", out_of_date)
    environments = _branches(given, "behaviour", "environments", out_of_date)
    imports = any(one.get("source") in ("minari", "minari-remote", "d4rl") for one in datasets.values())
    return imports or any(_is_foreign(str(one.get("id") or name)) for name, one in environments.items())


def _branches(given: Mapping[str, Any], stage: str, key: str, out_of_date: Collection[str]) -> dict[str, Any]:
    """The entries of a stage's branches that will run."""
    every = (given.get(stage) or {}).get(key) or {}
    return {name: one for name, one in every.items() if f"{stage}@{name}" in out_of_date}


def _is_foreign(environment: str) -> bool:
    """Whether it is not one of Gymnasium's own without arguments or wrappers; one that a folder holds may not be there yet."""
    from gymnasium import registry

    from tasks.offline.configs.behaviour import OWN

    return environment not in (*OWN, *registry) and not environment.startswith("tasks.")
