"""A repository whose cache, dvc.lock, commits, runs and models are written by hand: a stage with a file, one with a
folder.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Collection, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path

from mlflow import MlflowClient

from flows.lineage.checks.content_hashes import compute_folder_hash
from tasks.common import mlflow_database

STAGES = ("file", "folder")
WHO = ("-c", "user.name=t", "-c", "user.email=t@localhost")


class World:
    def __init__(self, root: Path, template: Path, empty_mlflow: Path) -> None:
        self.root = root
        shutil.copytree(template, root)
        stages = {name: {"cmd": f"make {name}", "outs": [f"data/{name}"]} for name in STAGES}
        (root / "dvc.yaml").write_text(json.dumps({"stages": stages}))
        (root / "mlruns").mkdir()
        shutil.copyfile(empty_mlflow, root / "mlruns/mlflow.db")
        self.cache = root / ".dvc/cache/files/md5"
        self.now: dict[str, str] = {}
        self.runs: list[set[str]] = []
        self.started = 0
        self.models: dict[str, bool] = {}  # hash -> whether it has the alias

    @cached_property
    def client(self) -> MlflowClient:
        client: MlflowClient = mlflow_database.open_or_create_records_client(self.root)
        return client

    @cached_property
    def experiment(self) -> str:
        return str(mlflow_database.get_or_create_experiment(self.client, self.root, "language"))

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *WHO, *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout

    def store(self, content: bytes, name: str = "") -> str:
        md5 = name or hashlib.md5(content).hexdigest()
        file = self.cache / md5[:2] / md5[2:]
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_bytes(content)
        return md5

    def made(self, stage: str, number: int) -> str:
        """The hash of a version of a stage's out, which the cache has then; folders share a file."""
        if stage == "file":
            return self.store(f"version {number}".encode())
        files = {"own": self.store(f"own {number}".encode()), "shared": self.store(b"shared")}
        listed = [{"md5": md5, "relpath": name} for name, md5 in sorted(files.items())]
        return self.store(json.dumps(listed, sort_keys=True).encode(), compute_folder_hash(files))

    def make(self, stage: str, number: int) -> str:
        """As if the stage had run: dvc.lock has this version."""
        md5 = self.now[stage] = self.made(stage, number)
        self.write()
        return md5

    def write(self) -> None:
        entries = "".join(
            f"  {stage}:\n    cmd: make {stage}\n    outs:\n    - path: data/{stage}\n      hash: md5\n      md5: "
            f"'{md5}'\n      size: 1\n"
            for stage, md5 in self.now.items()
        )
        (self.root / "dvc.lock").write_text(f"schema: '2.0'\nstages:\n{entries}" if entries else "schema: '2.0'\n")

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "x")

    def pipeline(self, outs: Mapping[str, str]) -> str:
        """A pipeline run in which stages made these outs."""
        parent = self._run({"posttrain.flow": "language"})
        for stage, md5 in outs.items():
            tags = {"posttrain.stage": stage, f"posttrain.out.data/{stage}": md5, "mlflow.parentRunId": parent}
            self.client.set_tag(parent, f"posttrain.run.{stage}", self._run(tags))
        self.runs.insert(0, set(outs.values()))
        return parent

    def _run(self, tags: Mapping[str, str]) -> str:
        self.started += 1
        start = 1_000 * self.started  # one after another
        run_id: str = self.client.create_run(self.experiment, start_time=start, tags=dict(tags)).info.run_id
        self.client.set_terminated(run_id)
        return run_id

    def model(self, md5: str, aliased: bool) -> None:
        """A version of a registered model with this content."""
        if md5 in self.models:
            return
        if not self.models:
            self.client.create_registered_model("language.sft")
        version = self.client.create_model_version("language.sft", "dvc://x", tags={"posttrain.hash": md5}).version
        if aliased:
            self.client.set_registered_model_alias("language.sft", "best", version)
            self.models = dict.fromkeys(self.models, False)
        self.models[md5] = aliased

    def left(self) -> set[str]:
        """What the cache has."""
        return {f"{file.parent.name}{file.name}" for file in self.cache.glob("*/*")}

    def with_files(self, hashes: Collection[str], before: set[str]) -> set[str]:
        """These and the files of the folders among them, as far as the cache had them."""
        files = {
            one["md5"]
            for md5 in hashes
            if md5.endswith(".dir") and md5 in before
            for one in json.loads((self.cache / md5[:2] / md5[2:]).read_text())
        }
        return ({*hashes} | files) & before

    def used(self) -> set[str]:
        """What `dvc gc --all-commits --all-experiments` keeps, by DVC itself."""
        from dvc.repo import Repo

        with closing(Repo(str(self.root))) as repo:
            found = repo.used_objs(all_commits=True, all_experiments=True)
            return {one.value for ones in found.values() for one in ones}
