"""Two clones that register models in one MLflow at the same moment."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_client
from flows.engine.stage_types import StageResult
from flows.lineage import registered_models
from tasks.common import mlflow_database

PARAMS = {"report": {"best_by": "strict_greedy"}}


@pytest.fixture
def client(tmp_path: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    shutil.copyfile(empty_mlflow, tmp_path / "shared.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/shared.db")
    return mlflow_database.open_or_create_records_client(tmp_path)


def clone(root: Path, greedy: float) -> Path:
    """A folder in which the stage sft has made a model that measures so much."""
    (root / "data/sft").mkdir(parents=True)
    (root / "data/sft/model.safetensors").touch()
    (root / "data/metrics").mkdir()
    (root / "data/metrics/sft.json").write_text(json.dumps({"strict_greedy": greedy}))
    return root


def test_each_content_has_one_version_and_the_alias_is_at_the_best(client: MlflowClient, tmp_path: Path) -> None:
    run_id = client.create_run(client.create_experiment("language")).info.run_id
    roots = [clone(tmp_path / name, greedy) for name, greedy in (("first", 0.4), ("second", 0.6))]
    together = Barrier(2)

    def register(root: Path, md5: str) -> str:
        result = StageResult("sft", "ran", outs={"data/sft": md5}, mlflow_run_id=run_id)
        together.wait()
        left = registered_models.Left.by(root, [result])
        return registered_models.register_models(client, root, "language", PARAMS, [result], left)["sft"]

    with ThreadPoolExecutor(2) as pool:
        for letter in "ab":
            same = list(pool.map(register, roots, [letter * 32] * 2))
            assert same[0] == same[1], "both made this content"
        different = list(pool.map(register, roots, ["d" * 32, "e" * 32]))
    versions = {
        one.tags["posttrain.hash"][0]: str(one.version) for one in client.search_model_versions("name='language.sft'")
    }
    assert len(client.search_model_versions("name='language.sft'")) == 4
    assert {name.rpartition("/")[2] for name in different} == {versions["d"], versions["e"]}
    best = client.get_registered_model("language.sft").aliases["best"]
    measured = {
        str(one.version): float(one.tags["strict_greedy"])
        for one in client.search_model_versions("name='language.sft'")
    }
    assert measured[str(best)] == 0.6


def test_two_that_log_the_same_new_data_set_at_once_both_have_it(client: MlflowClient) -> None:
    experiment, together = client.create_experiment("language"), Barrier(2)
    runs = [client.create_run(experiment).info.run_id for _ in range(2)]

    def log(run_id: str) -> None:
        for number in range(5):
            together.wait()
            mlflow_client.log_dataset_inputs(client, run_id, {"deps": [{"path": f"data/{number}", "md5": "a" * 32}]})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(log, runs))
    for run_id in runs:
        assert sorted(one.dataset.name for one in client.get_run(run_id).inputs.dataset_inputs) == [
            f"data/{n}" for n in range(5)
        ]


def test_an_alias_that_another_sets_to_less_is_set_again(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other clone had looked before the better version was there, and sets the alias after it."""
    run_id = client.create_run(client.create_experiment("language")).info.run_id
    for letter, greedy in (("a", 0.4), ("b", 0.6)):
        result = StageResult("sft", "ran", outs={"data/sft": letter * 32}, mlflow_run_id=run_id)
        root = clone(tmp_path / letter, greedy)
        left = registered_models.Left.by(root, [result])
        registered_models.register_models(client, root, "language", PARAMS, [result], left)
    before = MlflowClient.set_registered_model_alias
    calls = []

    def late(self: MlflowClient, name: str, alias: str, version: str) -> None:
        calls.append(version)
        before(self, name, alias, version if len(calls) > 1 else "1")

    client.set_registered_model_alias("language.sft", "best", "1")
    monkeypatch.setattr(MlflowClient, "set_registered_model_alias", late)
    registered_models._update_best_alias(client, tmp_path, "language.sft", "strict_greedy")
    assert calls == ["2", "2"]
    assert str(client.get_registered_model("language.sft").aliases["best"]) == "2"
