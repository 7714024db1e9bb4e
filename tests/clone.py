"""A copy of this repository elsewhere, in which a test changes params and runs whole flows."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flows.engine.journals import replay_process
from tests import prefect_server, repository

ROOT = Path(__file__).parent.parent


class Clone:
    """A repository beside this one; it runs with this installation and its own modules."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.variables: dict[str, str] = {}  # more of the environment, such as where the servers are

    @classmethod
    def of_this(cls, root: Path, params: Mapping[str, Mapping[str, Any]]) -> "Clone":
        """This repository as it stands, uncommitted work included, with other params and a commit of its own.

        Every stage gets one core: models this small take ten times as long on two busy cores.
        """
        for name in repository.source_files():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        repository.write_params(root)
        pipeline = (root / "dvc.yaml").read_text()
        (root / "dvc.yaml").write_text(pipeline.replace("{cpu: 2,", "{cpu: 1,").replace("--threads 2", "--threads 1"))
        clone = cls(root)
        if params:  # written by another tool, the file has another layout
            clone.edit(params)
        clone.call("git", "init", "--quiet")
        clone.call("git", "add", ".")
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        clone.call("git", *who, "commit", "--quiet", "--message", "tiny")
        return clone

    def twin(self, root: Path) -> "Clone":
        """A fresh clone of it: the commit, without any results."""
        self.call("git", "clone", "--quiet", str(self.root), str(root))
        return Clone(root)

    def edit(self, params: Mapping[str, Mapping[str, Any]]) -> None:
        yaml = YAML()
        values = yaml.load(self.root / "params.yaml")
        for section, changes in repository.in_file(params).items():
            assert changes.keys() <= values[section].keys(), section
            values[section].update(changes)
        yaml.dump(values, self.root / "params.yaml")

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its commands."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW"))}
        here = {
            "PYTHONPATH": str(self.root),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DVC_NO_ANALYTICS": "1",
        }
        return {**environ, **prefect_server.variables(), **here, **self.variables}

    def call(self, *command: str) -> str:
        """Run a command here, and wait until what it did is on record; its standard output."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        replay_process.wait_for_recorded_runs(self.root)
        return done.stdout

    def posttrain(self, *arguments: str) -> dict[str, Any]:
        out = self.call(sys.executable, "-m", "flows.cli", *arguments, "--json")
        return json.loads(out.splitlines()[-1])

    def dvc(self, *arguments: str) -> str:
        return self.call(sys.executable, "-m", "dvc", *arguments)

    @property
    def lock(self) -> dict[str, Any]:
        return YAML(typ="safe").load(self.root / "dvc.lock")["stages"]


def states(result: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """State -> the stages in it."""
    found: dict[str, set[str]] = {}
    for stage, facts in result.items():
        found.setdefault(facts["state"], set()).add(stage)
    return found
