import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from flows.engine import mlflow_run_writer
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import StageRecords
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.engine.mlflow_run_writer import Rows
from tasks.common import tracking
from tests.flows.engine.toy import Toy

METRIC = '{"metrics": {"loss": %s}, "step": %d, "time": 5}\n'


@pytest.fixture
def store(empty_mlflow: Path, tmp_path: Path) -> MlflowClient:
    shutil.copy(empty_mlflow, tmp_path / "mlflow.db")
    return MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")


@pytest.fixture
def run_id(store: MlflowClient, tmp_path: Path) -> str:
    experiment = store.create_experiment("language", artifact_location=str(tmp_path / "artifacts"))
    return str(store.create_run(experiment).info.run_id)


class Calls:
    """A client that notes what it is asked to write, and fails or waits if told to."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.params: list[Param] = []
        self.sizes: list[int] = []
        self.fault: Exception | None = None

    def log_batch(self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = ()) -> None:
        if self.fault is not None:
            raise self.fault
        self.metrics += metrics
        self.params += params
        self.sizes.append(len(metrics) or len(params))

    @property
    def points(self) -> list[tuple[str, float, int]]:
        return [(metric.key, metric.value, metric.step) for metric in self.metrics]


def rows(client: Any, file: Path, run_id: str = "0" * 32) -> Rows:
    return Rows(client, run_id, file, Lock())


def history(client: MlflowClient, run_id: str, name: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in client.get_metric_history(run_id, name))


@pytest.mark.filterwarnings("ignore:For backward compatibility")  # pandas about MLflow's log_table
def test_a_file_makes_the_run_that_the_stage_itself_would_have_made(
    store: MlflowClient, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a stage records, written by itself (as under plain `dvc repro`) and by way of a file."""
    frame = pd.DataFrame(
        {"text": ["ä\n", None], "count": [1, 2], "share": [1.0, math.nan], "on": pd.Timestamp(0), "any": [[1, 2.5], {}]}
    )

    def stage(metrics: Path) -> None:
        with tracking.record_stage_run("language", "evaluate@dpo", {"seed": 0, "names": ["a", 1.5]}, metrics):
            tracking.run_and_record_training(
                iter([{"loss": 0.1}, {"loss": math.nan, "10%BC": 1e300}]), 3, earlier=[{"loss": 1 / 3}]
            )
            tracking.record_metrics({"seconds": 2.5}, 7)
            tracking.record_table(frame, "samples/step-1.json")
            tracking.record_table(frame, "samples/step-1.json")
            metrics.write_text('{"accuracy": 0.75, "pairs": {"train": 9}}')

    monkeypatch.setattr(tracking, "time", SimpleNamespace(time=lambda: 12.5, monotonic=lambda: 0.0))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracking_uri)
    other = store.create_run(store.get_run(run_id).info.experiment_id).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", other)
    stage(tmp_path / "metrics.json")
    monkeypatch.setenv("POSTTRAIN_RECORDS", str(tmp_path / "stage.records"))
    stage(tmp_path / "metrics.json")
    assert store.get_run(run_id).data.metrics == {}
    rows(store, tmp_path / "stage.records", run_id).finish()

    def facts(run: str) -> object:
        data = store.get_run(run).data
        points = {
            name: sorted(
                (point.step, repr(point.value), point.timestamp) for point in store.get_metric_history(run, name)
            )
            for name in data.metrics
        }
        table = json.loads((tmp_path / "artifacts" / run / "artifacts/samples/step-1.json").read_text())
        return data.params, points, table, data.tags["mlflow.loggedArtifacts"]

    assert facts(run_id) == facts(other)
    assert store.get_run(run_id).data.params == {"evaluate.seed": "0", "evaluate.names": "['a', 1.5]"}
    assert history(store, run_id, "accuracy") == [(0, 0.75)]
    assert store.get_run(run_id).info.status == "RUNNING"


def test_a_line_counts_when_it_is_whole_and_is_written_once(tmp_path: Path) -> None:
    calls, file = Calls(), tmp_path / "a.records"
    followed = rows(calls, file)
    file.write_text(METRIC % (1, 1) + METRIC[:20])
    followed.write()
    assert calls.points == [("loss", 1.0, 1)]
    with file.open("a") as more:
        more.write(METRIC[20:] % (2, 2))
    followed.write()
    followed.finish()
    assert calls.points == [("loss", 1.0, 1), ("loss", 2.0, 2)]


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.builds(lambda value, step: METRIC % (json.dumps(value), step), st.floats(), st.integers(0, 9)),
            st.builds(lambda text: json.dumps({"params": {"p": text}}) + "\n", st.text(max_size=3).map(ascii)),
            st.sampled_from(["\n", "no json\n", "{}\n"]),
        ),
        max_size=8,
    ),
    st.data(),
)
def test_however_a_file_grows_the_same_is_written_in_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], data: st.DataObject
) -> None:
    """Looked at after any number of bytes, with faults of MLflow in between, as if it had been read at once."""
    file = tmp_path_factory.getbasetemp() / "a.records"
    content = "".join(lines).encode()
    file.write_bytes(content)
    at_once, said = Calls(), ["", ""]
    try:
        rows(at_once, file).finish()
    except PlanError as error:
        said[0] = str(error)
    file.write_bytes(b"")
    calls = Calls()
    followed = rows(calls, file)
    for end in sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=4))):
        file.write_bytes(content[:end])
        calls.fault = OSError("away") if data.draw(st.booleans()) else None
        try:
            followed.write()
        except PlanError:
            assert calls.fault is not None
    calls.fault = None
    file.write_bytes(content)
    try:
        followed.finish()
    except PlanError as error:
        said[1] = str(error)
    assert [str(point) for point in calls.points] == [str(point) for point in at_once.points]
    assert [param.value for param in calls.params] == [param.value for param in at_once.params]
    assert said[0] == said[1]


def test_batches_are_as_large_as_mlflow_takes(tmp_path: Path) -> None:
    calls, file = Calls(), tmp_path / "a.records"
    wide = json.dumps({"metrics": {f"m{number}": 0 for number in range(1500)}, "step": 1, "time": 0})
    params = json.dumps({"params": {f"p{number}": "" for number in range(150)}})
    file.write_text(METRIC % (1, 1) * 1999 + wide + "\n" + params + "\n")
    rows(calls, file).finish()
    assert calls.sizes == [1000, 1000, 1000, 499, 100, 50]


KNOWN = '{"params": {"seed": "0"}}\n{"table": {"columns": ["a"], "data": [[1]]}, "name": "known.json"}\n'
BAD = {
    "no json": "not JSON",
    '{"metrics": {"loss": 1}, "step": 1': "cut off",
    '{"metrics": {"loss": 1}, "step": 1}': "no time",
    '{"metrics": {"loss": 1}, "step": "1", "time": 5}': "a step that is text",
    '{"metrics": {"loss": 1}, "step": NaN, "time": 5}': "a step that is no number",
    '{"metrics": {"loss": 1}, "step": true, "time": 5}': "a step that is true",
    '{"metrics": {"loss": 1}, "step": 9223372036854775808, "time": 5}': "a step that no database takes",
    '{"metrics": {"loss": 1}, "step": 1, "time": -5}': "a time before 1970",
    '{"metrics": {"loss": "1"}, "step": 1, "time": 5}': "a value that is text",
    '{"metrics": {"loss": null}, "step": 1, "time": 5}': "no value",
    '{"metrics": {"loss": 1%s}, "step": 1, "time": 5}' % ("0" * 400): "a number beyond any float",
    '{"metrics": {"10%BC": 1}, "step": 1, "time": 5}': "a name that MLflow refuses",
    '{"metrics": {"../loss": 1}, "step": 1, "time": 5}': "a path that MLflow refuses",
    '{"metrics": {"%s": 1}, "step": 1, "time": 5}' % ("x" * 300): "a name that is too long",
    '{"metrics": [1], "step": 1, "time": 5}': "a list",
    '{"params": {"a": 1}}': "a parameter that is no text",
    '{"params": {"a": "\\ud800"}}': "half a character",
    '{"params": {"a%b": "1"}}': "a parameter's name that MLflow refuses",
    '{"params": {"seed": "1"}}': "another value for a parameter",
    '{"table": {"columns": ["a"], "data": [[1, 2]]}, "name": "a.json"}': "a ragged table",
    '{"table": {"columns": ["b"], "data": [[1]]}, "name": "known.json"}': "other columns",
    '{"table": {"columns": ["a"], "data": [[1]]}, "name": "../a.json"}': "a table elsewhere",
    '{"table": {"columns": ["a"], "data": [[1]]}, "name": "/tmp/a.json"}': "a table at the top",
    '{"table": {"columns": ["a"], "data": [[1]]}, "name": "a.exe"}': "no JSON",
    '{"table": {"columns": ["a"], "data": [[1]]}, "name": "%s.json"}' % ("x" * 300): "a name that no disk takes",
    "[" * 100_000: "too deep",
    '["metrics"]': "no object",
}


def test_lines_that_mlflow_does_not_take_are_passed_over_and_told_of_once(
    store: MlflowClient, run_id: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.records"
    lines = [KNOWN, *(f"{bad}\n{METRIC % (1, step)}" for step, bad in enumerate(BAD))]
    file.write_text("".join(lines))
    followed = rows(store, file, run_id)
    followed.write()
    assert history(store, run_id, "loss") == [(step, 1.0) for step in range(len(BAD))]
    assert store.get_run(run_id).data.params == {"seed": "0"}
    assert [file.path for file in store.list_artifacts(run_id)] == ["known.json"]
    told = rf"^a\.records: passed over line 3: Expecting value.*, and {len(BAD) - 1} more$"
    with pytest.raises(PlanError, match=told) as raised:
        followed.finish()
    assert "\n" not in str(raised.value)


def test_each_of_them_is_told_of(store: MlflowClient, run_id: str, tmp_path: Path) -> None:
    file, told = tmp_path / "a.records", set()
    for bad, what in BAD.items():
        file.write_text(f"{KNOWN}{bad}\n")
        with pytest.raises(PlanError, match=r"^a\.records: passed over line 3: .{10,}"):
            rows(store, file, run_id).finish()
        told.add(what)
    assert told == set(BAD.values())


def test_after_the_end_nothing_more_comes(tmp_path: Path) -> None:
    """The seal covers what the run has then, so that a late row would look like tampering."""
    calls, file = Calls(), tmp_path / "a.records"
    file.write_text(METRIC % (1, 1))
    followed = rows(calls, file)
    calls.fault = OSError("away")
    with pytest.raises(PlanError, match=r"^mlruns/mlflow\.db: away$"):
        followed.finish()
    calls.fault = None
    followed.write()
    assert calls.points == []


def test_a_file_that_is_gone_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"^a\.records: No such file or directory$"):
        rows(Calls(), tmp_path / "a.records").finish()


# The engine with a command that leaves lines in its file and then does as its parameter says.
LEAVES = """
import os, pathlib, sys
how = pathlib.Path("params.yaml").read_text()
with open(os.environ["POSTTRAIN_RECORDS"], "a") as file:
    for step in range(1040 if "many" in how else 40):
        file.write('{"metrics": {"loss": 1}, "step": %d, "time": 5}\\n' % step)
    file.write("bad\\n" if "bad" in how else "")
pathlib.Path("data").mkdir(exist_ok=True)
pathlib.Path("data/a").write_text(how)
sys.exit("fails" in how)
"""


@pytest.fixture
def leaves(toy: Toy, empty_mlflow: Path, plain_commands: None) -> Toy:
    """A stage that runs LEAVES, and a store."""
    toy.write("leaves.py", LEAVES)
    toy.stage("a", cmd="python leaves.py")
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    return toy


def test_rows_are_complete_before_the_outs_count(leaves: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the coordinator killed once the outs are in the run cache, the run would be FINISHED, and so has to be
    whole.

    MLflow is so slow here that it still writes the first rows when the command ends, which is noticed all the same.
    """
    recorder, ended, noticed, at_record = FlowRecorder(leaves.root, "language"), Event(), [], []

    def log_batch(run_id: str, **given: Any) -> None:
        if given.get("metrics") and not noticed:
            noticed.append(ended.wait(20))
        before(run_id, **given)

    def save_outs(records: StageRecords) -> None:
        ended.set()
        save(records)

    def record(records: StageRecords) -> None:
        [run] = recorder.client.search_runs([recorder._experiment], "tags.`posttrain.stage` = 'a'")
        at_record.append(len(recorder.client.get_metric_history(run.info.run_id, "loss")))
        keep(records)

    before, save, keep = recorder.client.log_batch, StageRecords.save_outs, StageRecords.record
    monkeypatch.setattr(mlflow_run_writer, "SECONDS", 0.001)
    monkeypatch.setattr(recorder.client, "log_batch", log_batch)
    monkeypatch.setattr(StageRecords, "save_outs", save_outs)
    monkeypatch.setattr(StageRecords, "record", record)
    leaves.set(a="many")  # more than MLflow takes at once
    result = leaves.run(recorder=recorder)["a"]
    assert (noticed, at_record, result.state, result.unrecorded) == ([True], [1040], "ran", "")


def test_a_stage_that_fails_keeps_its_rows_and_a_bad_line_fails_none(leaves: Toy) -> None:
    recorder = FlowRecorder(leaves.root, "language")

    def ended(how: str) -> tuple[str, str, str, int]:
        leaves.set(a=how)
        result = leaves.run(recorder=recorder)["a"]
        assert result.mlflow_run_id is not None
        points = recorder.client.get_metric_history(result.mlflow_run_id, "loss")
        return result.state, recorder.client.get_run(result.mlflow_run_id).info.status, result.unrecorded, len(points)

    assert ended("fails") == ("failed", "FAILED", "", 40)
    told = "a.records: passed over line 41: Expecting value: line 1 column 1 (char 0)"
    assert ended("bad") == ("ran", "FINISHED", told, 40), "each attempt begins a new file"


@pytest.mark.parametrize("away", [1, 9])
def test_what_mlflow_could_not_take_for_a_while_comes_later(
    leaves: Toy, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    recorder, faults = FlowRecorder(leaves.root, "language"), iter([OSError("the network is away")] * away)

    def log_batch(run_id: str, **given: Any) -> None:
        if given.get("metrics") and (fault := next(faults, None)):
            raise fault
        before(run_id, **given)

    before = recorder.client.log_batch
    monkeypatch.setattr(recorder.client, "log_batch", log_batch)
    result = leaves.run(recorder=recorder)["a"]
    assert (result.state, result.unrecorded) == ("ran", "mlruns/mlflow.db: the network is away" if away > 1 else "")
    assert result.mlflow_run_id is not None
    assert recorder.client.get_run(result.mlflow_run_id).info.status == "FINISHED"
    points = recorder.client.get_metric_history(result.mlflow_run_id, "loss")
    assert len(points) == (0 if away > 1 else 40)
