"""How long stages are expected to take, worked out by hand."""

from pathlib import Path

import pytest

from flows.lineage import expected_durations
from flows.lineage.durations import PastStageRun
from flows.lineage.expected_durations import (
    WORK,
    ExpectedDuration,
    TypicalRun,
    expect_stage_durations,
    find_typical_seconds,
    load_typical_run,
    select_work_params,
)
from flows.running import FLOWS, get_flow_targets
from tests.conftest import VALUES

TYPICAL = TypicalRun(
    {"sft": 102.5, "evaluate@sft": 40.0, "evaluate@dpo": 50.0, "code": 5.0, "tokenizer": 2.0},
    {"sft.demonstrations": 1000, "sft.epochs": 2, "pretrained.width": 64, "evaluate.samples": 4},
)
DEFAULTS = {
    "pretrained": {"init": "scratch", "width": 64},
    "sft": {"demonstrations": 1000, "epochs": 2},
    "evaluate": {"samples": 4},
}


@pytest.fixture
def last_runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, PastStageRun]:
    """The last runs on this machine, which a test sets."""
    runs: dict[str, PastStageRun] = {}
    monkeypatch.setattr(expected_durations, "load_typical_run", lambda: TYPICAL)
    monkeypatch.setattr(expected_durations, "read_last_stage_runs", lambda root, stages: runs)
    return runs


def expect(stage: str, **sections: dict[str, object]) -> ExpectedDuration | None:
    params = {name: {**DEFAULTS[name], **sections.get(name, {})} for name in DEFAULTS}
    return expect_stage_durations(Path(), [stage], params).get(stage)


@pytest.mark.usefixtures("last_runs")
def test_without_runs_here_the_measured_run_counts_in_proportion_to_the_work() -> None:
    """All but the 2.5 s of starting grows with demonstrations, epochs and the model's width."""
    assert expect("sft") == (102.5, False)
    assert expect("sft", sft={"epochs": 4}) == (2.5 + 100 * 2, False)
    assert expect("sft", sft={"epochs": 1, "demonstrations": 500}, pretrained={"width": 128}) == (2.5 + 100 / 2, False)
    assert expect("tokenizer") == (2.0, False)
    assert expect("label") is None


@pytest.mark.usefixtures("last_runs")
def test_a_branch_that_was_not_measured_takes_what_its_siblings_take() -> None:
    assert expect("evaluate@dpo") == (50.0, False)
    assert expect("evaluate@mine") == (45.0, False)
    assert find_typical_seconds("sft@other", TYPICAL) == 102.5


def test_a_run_here_counts_if_it_did_similar_work(last_runs: dict[str, PastStageRun]) -> None:
    last_runs["sft"] = PastStageRun(22.5, {"sft.epochs": "1", "sft.demonstrations": "1000", "sft.loss": "mean"})
    assert expect("sft") == (2.5 + 20 * 2, True)
    last_runs["sft"] = PastStageRun(4.5, {"sft.epochs": "1", "sft.demonstrations": "100"})  # a toy: 20 times less
    assert expect("sft") == (102.5, False)
    last_runs["label"] = PastStageRun(7.0, {})
    assert expect("label") == (7.0, True)


def test_of_a_model_of_ones_own_only_runs_here_say_anything(last_runs: dict[str, PastStageRun]) -> None:
    assert expect("sft", pretrained={"init": "directory"}) is None
    assert expect("code", pretrained={"init": "directory"}) == (5.0, False)
    last_runs["sft"] = PastStageRun(4.5, {"sft.epochs": "1", "sft.demonstrations": "100"})
    assert expect("sft", pretrained={"init": "directory"}) == (2.5 + 2 * 20, True)


def test_of_data_of_ones_own_only_runs_here_say_anything(last_runs: dict[str, PastStageRun]) -> None:
    names = ["sft", "dpo", "code"]
    typical = {"sft": 1.0, "dpo": 2.0, "code": 3.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected_durations, "load_typical_run", lambda: TypicalRun(typical, {}))
        own = {"demonstrations": {"source": "files"}, "preferences": {"source": "people"}}
        assert expect_stage_durations(Path(), names, own) == {"code": (3.0, False)}
        usual = {"demonstrations": {"source": "problems"}, "preferences": {"source": "annotator"}}
        assert expect_stage_durations(Path(), names, usual).keys() == {*names}


def test_all_stages_of_the_default_flows_have_a_duration_and_all_keys_exist() -> None:
    keys = {key for keys in WORK.values() for key in keys}
    assert set(select_work_params(VALUES)) == keys
    assert set(load_typical_run().params) == keys
    for flow in FLOWS:
        for target in get_flow_targets(flow):
            assert find_typical_seconds(target, load_typical_run()) is not None
