from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.common import mlflow_database
from tests.flows.engine.toy import Toy
from tests.flows.lineage import policies
from tests.flows.lineage.policies import Ran


@pytest.fixture
def toy(toy: Toy, empty_mlflow: Path) -> Toy:
    return policies.make(toy, empty_mlflow)


@pytest.fixture
def client(toy: Toy) -> MlflowClient:
    return client_of(toy.root)


def versions(client: MlflowClient, name: str) -> dict[str, dict[str, str]]:
    return {str(one.version): one.tags for one in client.search_model_versions(f"name = '{name}'")}


def best(client: MlflowClient, name: str) -> str:
    return str(client.get_model_version_by_alias(name, "best").version)


def client_of(root: Path) -> MlflowClient:
    return MlflowClient(mlflow_database.get_tracking_address(root))


def test_each_content_of_a_model_is_one_version(policies_once: Ran, rerun: Ran) -> None:
    toy, first, second, client = rerun.toy, policies_once.results, rerun.results, client_of(rerun.toy.root)
    policies.run(toy, dpo={"beta": 0.1})  # restored
    assert {model.name for model in client.search_registered_models()} == {"language.sft", "language.dpo"}
    assert versions(client, "language.sft").keys() == {"1"}
    found = {version: tags["posttrain.hash"] for version, tags in versions(client, "language.dpo").items()}
    assert found == {"1": first["dpo"].outs["data/dpo"], "2": second["dpo"].outs["data/dpo"]}
    version = client.get_model_version("language.dpo", "2")
    assert version.run_id == second["dpo"].mlflow_run_id
    assert version.source == f"dvc://data/dpo?md5={found['2']}"
    assert (version.tags["posttrain.stage"], version.tags["posttrain.path"]) == ("dpo", "data/dpo")


@pytest.mark.slow
def test_best_is_the_highest_by_the_metric_that_params_name(toy: Toy, client: MlflowClient) -> None:
    policies.run(toy, dpo={"value": 0.6})
    assert best(client, "language.dpo") == "1"
    policies.run(toy, dpo={"value": 0.9})
    assert best(client, "language.dpo") == "2"
    assert versions(client, "language.dpo")["2"]["strict_greedy"] == "0.9"
    policies.run(toy, dpo={"value": 0.7})
    assert best(client, "language.dpo") == "2"
    policies.run(toy, report={"best_by": "-strict_validation"}, dpo={"value": 0.8})
    assert best(client, "language.dpo") == "4", "the lowest, of the two that have this measure 0.4; older ones lack it"
    policies.run(toy, report={"best_by": "strict_greedy"}, dpo={"value": 0.9, "beta": 3})
    assert best(client, "language.dpo") == "2", "of equals the first"
    policies.run(toy, report={"best_by": "nothing"}, dpo={"value": 0.99})
    assert best(client, "language.dpo") == "2", "a metric that nobody has moves nothing"


def test_a_model_is_measured_by_its_own_numbers_alone(ran: Ran) -> None:
    """Not by an evaluation of another model; and a number that MLflow does not take by its name is renamed."""
    toy, client = ran.toy, client_of(ran.toy.root)
    toy.write("work.py", policies.WORK.replace('{"loss": 1.0}', '{"loss": 1.0, "10%BC": {"score": 7.5}}'))
    toy.stages["evaluate"]["do"]["cmd"] = "exit 1"
    policies.run(toy, dpo={"beta": 0.3})
    told = versions(client, "language.dpo")["2"]
    assert (told["loss"], told["10_BC/score"]) == ("1", "7.5")
    assert "strict_greedy" not in told
