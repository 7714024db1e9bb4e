"""The multiplied records are runs as MLflow and the engine know them, and the page says what was measured."""

from pathlib import Path

from benchmarks import history
from flows.engine import mlflow_run_lookup
from flows.lineage.history import load_pipeline_runs
from tests.benchmarks.mlflow_repository import Repository

KEY, MADE = "a" * 64, "b" * 32
TIMES = {"posttrain runs": {"1 pipeline run": [0.2, 0.3, 0.1], "2": [0.4, 3.5, 3.6]}, "posttrain run": {"2": [1.0]}}
ROWS = dict.fromkeys(history.COPIED, 5)


def test_every_further_pipeline_run_has_runs_of_its_own(tmp_path: Path, empty_mlflow: Path) -> None:
    clone = Repository(tmp_path / "clone", empty_mlflow)
    parent = clone.run("")
    run_id = clone.run("dpo", parent)
    clone.client.set_tag(parent, "posttrain.run.dpo", run_id)
    clone.client.set_tag(run_id, "posttrain.key", KEY)
    clone.client.set_tag(run_id, "posttrain.outs", MADE)
    clone.artifact(run_id, "record.json", f'{{"md5": "{MADE}"}}')
    clone.model(run_id, MADE)
    before = clone.client.get_run(run_id).data
    assert history.multiply_pipeline_runs(clone.root, 4, with_files=2) == 8
    found = load_pipeline_runs(clone.root)
    assert [run.id for run in found].index(parent) == 0, "the real one stays the newest"
    stages = [run.runs["dpo"] for run in found]
    assert len({*stages}) == 4
    runs = [clone.client.get_run(stage) for stage in stages]
    assert [run.data.tags["mlflow.parentRunId"] for run in runs] == [run.id for run in found]
    assert [run.data.metrics["loss"] for run in runs] == [before.metrics["loss"]] * 4
    assert len({run.data.tags["posttrain.key"] for run in runs}) == 4
    assert {run.data.params["dpo.beta"] for run in runs} == {"0.1", "0.2", "0.3"}
    assert [run.inputs.dataset_inputs[0].dataset.name for run in runs] == ["data/sft"] * 4
    assert [run.id for run in mlflow_run_lookup.list_finished_runs(clone.root, {"key": KEY, "outs": MADE})] == [run_id]
    second = history.replace_hashes(MADE, 1)
    assert second in (clone.root / "mlruns/artifacts" / stages[1] / "artifacts/record.json").read_text()
    assert not (clone.root / "mlruns/artifacts" / stages[2]).exists()
    versions = clone.client.search_model_versions("name = 'language.dpo'")
    assert {version.run_id for version in versions} == {*stages}


def test_the_page_shows_medians_and_their_range() -> None:
    result = {
        "machine": "a machine",
        "load": 0.5,
        "pipelines": 1000,
        "rounds": 3,
        "database": {**ROWS, "bytes": 2_000_000},
        "seconds": TIMES,
    }
    page = history.render(result)
    assert "| posttrain runs | 0.20 (0.10 to 0.30) | 3.50 (0.40 to 3.60) |" in page
    assert "5 runs with 5 tags" in page
    assert [*history.find_slow_commands(result)] == ["posttrain runs: 3.50 s, over 3"]
