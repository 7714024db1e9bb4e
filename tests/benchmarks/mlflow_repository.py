"""A repository with an MLflow database of its own."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

from flows.engine import mlflow_client, mlflow_run_lookup, mlflow_seal

START = 1_700_000_000_000


class Repository:
    """A folder with MLflow's records."""

    def __init__(self, root: Path, empty_mlflow: Path) -> None:
        self.root, self.file = root, root / "mlruns/mlflow.db"
        self.file.parent.mkdir(parents=True)
        shutil.copyfile(empty_mlflow, self.file)
        self.client: MlflowClient = mlflow_client.open_mlflow_client_after_recording(root)

    def run(self, stage: str = "dpo", parent: str | None = None, status: str = "FINISHED", loss: float = 0.5) -> str:
        """A run of a stage as the engine records it, or of a pipeline, if the stage is ""."""
        experiment = mlflow_client.get_or_create_experiment_id(self.client, self.root, "language")
        tags = {mlflow_run_lookup.PREFIX + name: value for name, value in self._tags(stage).items()}
        tags |= {"mlflow.parentRunId": parent} if parent else {}
        run_id: str = self.client.create_run(experiment, START, tags, run_name=stage or "language").info.run_id
        metrics = [Metric("loss", loss / step, START + step, step) for step in (1, 2, 3)]
        metrics += [Metric("ratio", float("nan"), START, 0), Metric("ratio", float("inf"), START, 1)]
        self.client.log_batch(run_id, metrics, [Param("dpo.beta", "0.1")], [RunTag("mlflow.source.name", "python x")])
        data = Dataset("data/sft", "d" * 32, "dvc", json.dumps({"path": "data/sft"}))
        self.client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "input")])])
        self.artifact(run_id, "record.json", json.dumps({"stage": stage}))
        self.artifact(run_id, "samples/step-1.json", "[1]")
        if status == "FINISHED":
            mlflow_client.seal_run(self.client, self.root, run_id)
        if status != "RUNNING":
            self.client.set_terminated(run_id, status, START + 1000)
        return run_id

    def _tags(self, stage: str) -> dict[str, str]:
        if not stage:
            return {"engine": "true", "flow": "language"}
        return {"engine": "true", "stage": stage, "key": f"key of {stage}", "outs": "o", "out.data/dpo": "o"}

    def artifact(self, run_id: str, name: str, text: str) -> Path:
        file = mlflow_seal.get_run_artifact_folder(self.root, run_id) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def model(self, run_id: str, out: str, alias: str | None = None, source: str | None = None) -> int:
        """A version of the model language.dpo; its number."""
        if not self.client.search_registered_models("name = 'language.dpo'"):
            self.client.create_registered_model("language.dpo", {"posttrain.flow": "language"}, "the policy")
        place = source or f"dvc://data/dpo?md5={out}"
        version = self.client.create_model_version("language.dpo", place, run_id, {"posttrain.hash": out})
        if alias:
            self.client.set_registered_model_alias("language.dpo", alias, version.version)
        return int(version.version)

    def sql(self, statement: str, *values: object) -> None:
        """Change the database behind MLflow's back."""
        with closing(sqlite3.connect(self.file)) as records, records:
            records.execute(statement, values)
