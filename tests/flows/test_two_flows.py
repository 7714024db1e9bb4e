"""`posttrain` with both flows in dvc.yaml: what each flow runs, what both run together, and to which flow a stage
belongs.
"""

import json
from pathlib import Path

import pytest

from flows import running
from tests.flows.toy_pipeline import GRAPH, add_offline, call, make_pipeline

OFFLINE = ["bc@one", "bc@two", "offline_report"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of which only the offline flow has run."""
    root = make_pipeline(tmp_path_factory.mktemp("two") / "toy")
    add_offline(root)
    code, out, error = call(root, "run", "offline")
    assert (code, error) == (0, "")
    assert out.splitlines()[0].startswith("3 of 3 stages to run")
    pages = ["report: offline_report.html", "report: offline_report.md", "lineage: offline_lineage.html"]
    assert out.splitlines()[-3:] == pages
    return root


def test_a_flow_runs_its_own_stages_alone(root: Path) -> None:
    assert sorted(path.name for path in (root / "data").iterdir()) == ["bc", "offline_report"]
    page = (root / "offline_report.html").read_text()
    assert page.startswith("<html><h1>Report</h1><section")
    assert all(name in page for name in OFFLINE)
    assert not (root / "report.html").exists()
    assert call(root, "run", "offline")[1].startswith("nothing has changed: 3 stages are up to date (")


def test_without_a_name_it_is_the_language_flow(root: Path) -> None:
    code, out, _ = call(root, "run", "--dry-run")
    assert (code, [line.split()[0] for line in out.splitlines()[:-1]]) == (0, list(GRAPH))
    assert call(root, "status") == call(root, "status", "language") == (0, out, "")


def test_both_flows_come_one_after_the_other_each_under_its_name(root: Path) -> None:
    code, out, _ = call(root, "status", "offline", "language", "language")
    lines = out.splitlines()
    assert (code, lines[0], lines[4]) == (0, "offline:", "all 3 stages are up to date")
    assert [line.split()[0] for line in lines[1:4]] == OFFLINE
    assert (lines[5], lines[6].split()[0], lines[-1]) == ("language:", "problems", "5 of 5 stages would run")
    code, out, error = call(root, "run", "language", "offline", "--json", "--dry-run", "--set", "bc.sets.two=3")
    late = {name for name, fact in json.loads(out).items() if fact["state"] == "waiting"}
    assert (code, late) == (0, {*GRAPH, "bc@two", "offline_report"})
    assert "param bc.sets.two changed 2 -> 3" in error


def test_a_failure_in_one_flow_does_not_keep_the_other_from_running(tmp_path: Path) -> None:
    root = make_pipeline(tmp_path / "toy")
    add_offline(root)
    code, out, error = call(root, "run", "language", "offline", "--set", "sft.fail=true", "--json")
    states = {name: fact["state"] for name, fact in json.loads(out).items()}
    assert code == 1
    assert {states[name] for name in OFFLINE} == {"ran"}
    assert (states["problems"], states["sft"]) == ("ran", "failed")
    assert error.index("language:") < error.index("sft failed") < error.index("offline:") < error.index("3 ran in")
    assert (root / "offline_report.html").is_file()


@pytest.mark.parametrize(
    ("targets", "flow"),
    [(["bc"], "offline"), (["bc@one"], "offline"), (["offline_report"], "offline"), (["sft"], "language")],
)
def test_a_stage_runs_under_the_flow_it_belongs_to(
    root: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str], flow: str
) -> None:
    monkeypatch.chdir(root)
    [(name, planned)] = running.check_and_plan_targets(root, targets, [])
    assert name == flow
    assert targets[0].split("@")[0] in {stage.name.split("@")[0] for stage in planned}


def test_flows_and_stages_can_be_named_together(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    parts = running.check_and_plan_targets(root, ["sft", "offline"], ["bc@two"])
    assert [(flow, len(planned)) for flow, planned in parts] == [("offline", 3), ("language", 2)]
    assert {stage.name for _, planned in parts for stage in planned if stage.reason == "forced"} == {"bc@two"}
    with pytest.raises(running.WrongUseError, match="--force dpo: not among the stages that offline needs"):
        running.check_and_plan_targets(root, ["offline"], ["dpo"])
