"""The modules that are no code deps change no out: a stage writes the same bytes with a recorder and without."""

import json
import shutil

from tasks.code.without_influence import WITHOUT_INFLUENCE
from tasks.common import tracking
from tasks.language import sft
from tests.conftest import tiny
from tests.test_types import TYPES


def test_tracking_influences_no_out(made, empty_mlflow, tmp_path, monkeypatch):
    """Modules that are neither for records nor for types matter only in a failure, when nothing is written."""
    names = ("tracking", "run_environment", "source_code", "mlflow_address", "mlflow_database", "mlflow_shared")
    others = {f"tasks.common.{name}" for name in names}
    failing = {"tasks.algorithms.common.errors", "tasks.common.config_faults", "tasks.common.errors"}
    failing.add("tasks.language.configs.parts.names")
    compares = {"tasks.code", "tasks.code.import_check"}
    assert others | failing | compares | TYPES == WITHOUT_INFLUENCE, "TYPES: tests/test_types.py"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_mlflow, tmp_path / "mlruns/mlflow.db")
    config, metrics = tiny(sft.SftConfig, "sft"), {}
    for name in ("without", "with"):
        arguments = (
            made / "pretrained",
            made / "demonstrations",
            tmp_path / name / "model",
            tmp_path / name / "curve.csv",
        )
        if name == "without":
            metrics[name] = sft.run(config, *arguments)
        else:
            with tracking.record_stage_run("language", "sft", config.model_dump(), tmp_path / "metrics.json"):
                metrics[name] = sft.run(config, *arguments)
                (tmp_path / "metrics.json").write_text(json.dumps(metrics[name]))
    written = {
        name: {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.*")}
        for name in metrics
    }
    assert {"model/model.safetensors", "curve.csv"} <= written["with"].keys()
    assert written["with"] == written["without"]
    assert metrics["with"] == metrics["without"]
    assert recorded_losses(tmp_path) == 4, "the recorder did record"


def recorded_losses(home):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/mlruns/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("language").experiment_id])
    return len(client.get_metric_history(run.info.run_id, "loss"))
