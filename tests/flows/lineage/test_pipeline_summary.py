import json
import shutil
import sqlite3
from dataclasses import replace

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_seal
from flows.engine.dvc_repository import PlanError
from flows.engine.journals import journal, replay_process
from flows.engine.journals.journal import Reading
from flows.engine.stage_types import StageResult
from flows.lineage import history, pipeline_summary
from flows.lineage.history import load_pipeline_runs
from tasks.common import mlflow_database
from tests.flows.lineage import policies
from tests.flows.lineage.policies import Ran


def client_of(ran: Ran) -> MlflowClient:
    return MlflowClient(mlflow_database.get_tracking_address(ran.toy.root))


@pytest.fixture
def client(ran: Ran) -> MlflowClient:
    return client_of(ran)


def test_a_run_says_what_changed_and_what_it_did(policies_once: Ran, rerun: Ran) -> None:
    toy, first, results = rerun.toy, policies_once.first, rerun.results
    client, second = client_of(rerun), rerun.first
    assert first.name == "first run: 5 ran"
    assert second.name == "dpo.beta 0.1 -> 0.2: dpo, evaluate@dpo, report ran, 2 up to date"
    assert second.changes == "dpo.beta 0.1 -> 0.2"
    third, _ = policies.run(toy, dpo={"beta": 0.1})
    assert third.name == "dpo.beta 0.2 -> 0.1: dpo, evaluate@dpo, report restored, 2 up to date"
    assert third.runs == first.runs, "what was restored is linked with the run that made it"
    assert second.runs == {stage: result.mlflow_run_id for stage, result in results.items()}
    assert [run.id for run in load_pipeline_runs(toy.root)] == [third.id, second.id, first.id]
    assert load_pipeline_runs(toy.root, 1)[0] == third
    assert history.get_pipeline_run(toy.root, second.id[:8]) == second
    shown = client.get_run(second.id)
    assert shown.data.tags["mlflow.source.name"] == "posttrain run language"
    assert shown.data.params["dpo.beta"] == "0.2"
    assert shown.data.params["report.policies"] == '["sft", "dpo"]'


def test_a_change_of_code_is_named_by_its_file_and_the_headline_has_the_ends_of_the_intervals(ran: Ran) -> None:
    ran.toy.write("work.py", policies.WORK.replace('params[policy]["value"]', 'params[policy]["value"] + 0.15'))
    run, _ = policies.run(ran.toy)
    assert run.name == "work.py changed: 5 ran"
    of_dpo = {key: value for key, value in run.metrics.items() if key.startswith("dpo/")}
    assert of_dpo == pytest.approx(
        {"dpo/strict_greedy": 0.75, "dpo/strict_greedy/low": 0.65, "dpo/strict_greedy/high": 0.85}
    )
    assert "sft/strict_greedy" in run.metrics


def test_the_headline_of_agents_is_each_temperature_s_return() -> None:
    metrics = {
        "t0.0": {"return": 0.5, "turns": 4.0},
        "t1.0": {"return": 0.25, "turns": 5.0},
        "faults": 0.0,
        "optimum": 0.9,
    }
    found = dict(pipeline_summary.iterate_stage_headline_metrics("agent_returns@rooms-ppo", metrics))
    assert found == {"rooms-ppo/t0.0/return": 0.5, "rooms-ppo/t1.0/return": 0.25}


def test_the_page_and_the_patch_are_kept_with_the_run(policies_once: Ran, rerun: Ran) -> None:
    toy, first, results = rerun.toy, policies_once.first, rerun.results
    client, second = client_of(rerun), rerun.first
    names = [[file.path for file in client.list_artifacts(run.id)] for run in (first, second)]
    assert names == [["params.yaml", "report.html"], ["params.yaml", "report.html", "uncommitted.patch"]]
    kept = toy.root / "mlruns/artifacts" / second.id / "artifacts/uncommitted.patch"
    assert '"beta": 0.2' in kept.read_text()
    assert "uncommitted.patch" not in [file.path for file in client.list_artifacts(results["dpo"].mlflow_run_id)]


def test_the_description_links_each_stage_with_its_run(policies_once: Ran, rerun: Ran) -> None:
    earlier, run, client = policies_once.results, rerun.first, client_of(rerun)
    note = client.get_run(run.id).data.tags["mlflow.note.content"]
    made = earlier["sft"].mlflow_run_id
    assert made is not None
    experiment = client.get_run(run.id).info.experiment_id
    assert f"| sft | up to date | [{made[:8]}](#/experiments/{experiment}/runs/{made}) | language.sft/1 |" in note
    assert "| dpo | 60.0 % | 50.0 to 70.0 |" in note


def test_a_stage_s_run_links_the_runs_that_made_what_it_read(rerun: Ran) -> None:
    toy, run, results, client = rerun.toy, rerun.first, rerun.results, client_of(rerun)
    experiment, sft = client.get_run(run.id).info.experiment_id, results["sft"]
    assert sft.state == "up-to-date", "its run is of the pipeline run before"
    told = client.get_run(results["dpo"].mlflow_run_id).data.tags["mlflow.note.content"].splitlines()
    link = f"[sft](#/experiments/{experiment}/runs/{sft.mlflow_run_id})"
    assert told[2:] == [f"| data/sft | {sft.outs['data/sft'][:8]} | {link} |"]
    toy.write("raw.txt", "raw")
    toy.stages["sft"]["deps"].append("raw.txt")
    toy.save()
    reading = policies.run(toy)[1]["sft"].mlflow_run_id
    assert client.get_run(reading).data.tags["mlflow.note.content"].endswith(" | raw: no stage makes it |")


def test_long_lists_are_cut_to_what_mlflow_takes() -> None:
    results = [
        StageResult(f"stage_{n}@{'x' * 40}", "ran" if n else "failed", mlflow_run_id="a" * 32) for n in range(200)
    ]
    changed = [f"section.key{n} {'old' * 20} -> {'new' * 20}" for n in range(50)]
    name = pipeline_summary.format_run_name(changed, results)
    assert len(name) <= pipeline_summary.NAME
    assert name.endswith(f"199 ran, {results[0].stage} failed")
    note = pipeline_summary.render_run_description("1", changed, results, {}, {})
    assert len(note) < 8000
    assert "more stages" in note


def test_the_seals_are_a_chain(policies_once: Ran, rerun: Ran) -> None:
    toy, first, results = rerun.toy, policies_once.first, policies_once.results
    client, second = client_of(rerun), rerun.first
    tags = client.get_run(second.id).data.tags
    assert tags["posttrain.seal"] == mlflow_seal.compute_run_seal(toy.root, second.id)
    assert tags["posttrain.previous"] == f"{first.id} {client.get_run(first.id).data.tags['posttrain.seal']}"
    sealed = client.get_run(results["sft"].mlflow_run_id).data.tags["posttrain.seal"]
    assert tags["posttrain.seal.sft"] == sealed


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tags SET value = '0' WHERE key = 'posttrain.out.data/dpo'",
        "UPDATE tags SET value = 'python other.py' WHERE key = 'mlflow.source.name'",
        "INSERT INTO params VALUES ('dpo.beta', '9', :run)",
        "INSERT INTO metrics VALUES ('loss', 0.5, 1, :run, 7, 0)",
    ],
)
def test_a_change_after_the_end_shows_in_the_seal(ran: Ran, change: str) -> None:
    toy, results = ran.toy, ran.results
    run_id = results["dpo"].mlflow_run_id
    before = mlflow_seal.compute_run_seal(toy.root, run_id)
    with sqlite3.connect(toy.root / "mlruns/mlflow.db") as records:
        records.execute("INSERT INTO tags VALUES ('mine', 'a note', ?)", [run_id])
        records.execute("INSERT INTO tags VALUES ('posttrain.merged_from', 'elsewhere', ?)", [run_id])
    assert mlflow_seal.compute_run_seal(toy.root, run_id) == before, "notes of people are outside of it"
    with sqlite3.connect(toy.root / "mlruns/mlflow.db") as records:
        records.execute(change, {"run": run_id} if ":run" in change else {})
    assert mlflow_seal.compute_run_seal(toy.root, run_id) != before


def test_the_record_beside_a_run_is_sealed_too(ran: Ran) -> None:
    toy, results = ran.toy, ran.results
    run_id = results["dpo"].mlflow_run_id
    before = mlflow_seal.compute_run_seal(toy.root, run_id)
    file = mlflow_seal.get_run_artifact_folder(toy.root, run_id) / mlflow_seal.RECORD
    file.write_text(file.read_text().replace("0.1", "0.2", 1))
    assert mlflow_seal.compute_run_seal(toy.root, run_id) != before


def test_an_unknown_or_ambiguous_run_is_one_line(ran: Ran) -> None:
    toy, run = ran.toy, ran.first
    for text in (run.id[:5], "f" * 32 if run.id[0] != "f" else "0" * 32):
        with pytest.raises(PlanError, match="no pipeline run has this id; `posttrain runs` lists them"):
            history.get_pipeline_run(toy.root, text)


def test_a_pipeline_without_parameters_has_none():
    assert pipeline_summary.collect_stage_params("{}\n", ["a"]) == {}
    assert pipeline_summary.collect_stage_params("a: {}\nb: {c: {}}\n", ["a", "b"]) == {"a": "{}", "b.c": "{}"}
    branches = "a: {}\nbranches: {a: {x: {c: 1}}, b: [y]}\n"
    assert pipeline_summary.collect_stage_params(branches, ["a@x"]) == {"a": "{}", "branches.a.x.c": "1"}, (
        "b is in no target"
    )


def test_of_branches_that_an_earlier_run_did_not_look_at_nothing_is_said():
    before = {"a.rate": "1", "branches.a": '["x"]'}
    now = {"a.rate": "1", "branches.a": '["x", "y"]', "branches.b": '["z"]'}
    assert pipeline_summary.describe_run_changes(now, before, []) == ['branches.a ["x"] -> ["x", "y"]']


def test_a_section_is_compared_with_the_last_run_that_had_it(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other targets between the two, and sweeps, which have values of their own, do not count."""
    [run] = load_pipeline_runs(ran.toy.root, limit=1)
    runs = [
        replace(run, id="now", params={}),
        replace(run, id="sweep", params={"a.x": "7", "b.y": "7"}, sweep="s"),
        replace(run, id="of a", params={"a.x": "2"}),
        replace(run, id="killed", params={}),
        replace(run, id="of b", params={"a.x": "1", "b.y": "3"}),
        *(replace(run, id=f"older {n}", params={"b.y": "0", "b.gone": "0"}) for n in range(4)),
    ]
    monkeypatch.setattr(history, "load_pipeline_runs", lambda root, limit, flow, clone_only: runs[:limit])
    before = history.load_previous_params(ran.toy.root, "now", "language", {"a", "b"})
    assert before == {"a.x": "2", "b.y": "3"}
    assert pipeline_summary.describe_run_changes({"a.x": "2", "b.y": "4"}, before, []) == ["b.y 3 -> 4"]
    runs = runs[:1]
    assert history.load_previous_params(ran.toy.root, "now", "language", {"a", "b"}) is None


def test_of_sections_that_one_run_did_not_look_at_nothing_is_said() -> None:
    """A parameter that a section no longer has is named; a section of other targets is none of this run's."""
    before = {"a.x": "1", "a.gone": "2", "b.y": "3"}
    assert pipeline_summary.describe_run_changes({"a.x": "4"}, before, []) == ["a.x 1 -> 4", "a.gone 2 -> none"]
    assert pipeline_summary.describe_run_changes({"c.z": "1"}, before, []) == []


def test_what_is_recorded_is_what_the_run_left_whatever_comes_before_it_is(
    ran: Ran, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run restores other metrics and models, or takes them away, while the process that records begins."""
    toy = ran.toy
    params, planned, results = json.dumps(toy.params), toy.plan("report"), [*ran.results.values()]
    monkeypatch.setattr(replay_process, "start_recorder_unless_running", lambda root: None)
    pipeline_summary.queue_or_record_pipeline_summary(toy.root, "language", params, planned, results, [])
    monkeypatch.setattr(replay_process, "_recording", True)  # this is the process that records
    before = client.get_run(ran.first.id).data
    for file in [*toy.root.glob("data/metrics/*.json"), toy.root / "dvc.lock"]:
        file.unlink()
    shutil.rmtree(toy.root / "data/dpo")
    models = {name: client.get_registered_model(name) for name in ("language.dpo", "language.sft")}
    for name in models:
        client.delete_registered_model(name)
    [folder] = journal.list_journals(toy.root)
    reading = Reading(folder)
    [event, _] = reading.new()
    reading.close()
    pipeline_summary.record_summary_from_journal(toy.root, folder, event)
    after = client.get_run(ran.first.id).data
    assert after.metrics == before.metrics
    assert len(after.metrics) > 3
    assert after.tags["mlflow.note.content"] == before.tags["mlflow.note.content"]
    for name in models:
        [version] = client.search_model_versions(f"name='{name}'")
        assert "strict_greedy" in version.tags
