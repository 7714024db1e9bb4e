"""What new judgements changed: on a toy pipeline whose preferences come from lines that people wrote, and whose
evaluations are real.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.console import new_judgements as shown
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.engine.stage_types import StageResult
from flows.lineage import new_judgements
from flows.lineage.comparison import evaluation_comparison
from flows.lineage.new_judgements import Changed
from tests.flows.engine.toy import Toy
from tests.flows.inline_modules import run_module
from tests.flows.lineage.evaluated import EVALUATE, evaluated
from tests.flows.lineage.quick import copied

RECORD = "data/raw/judgements.jsonl"
PREFERENCES = """
import json, pathlib
lines = pathlib.Path("data/raw/judgements.jsonl").read_text().splitlines()
out = pathlib.Path("data/preferences"); out.parent.mkdir(exist_ok=True); out.write_text("\\n".join(lines))
metrics = pathlib.Path("data/metrics"); metrics.mkdir(exist_ok=True)
told = {"judgements": {"pairwise": len(lines)}, "people": len(set(lines)), "pairs": {"train": len(lines) - 1, "test": 1}}
(metrics / "preferences.json").write_text(json.dumps(told))
"""  # noqa: E501
REWARD_MODEL = """
import json, pathlib
judged = json.loads(pathlib.Path("data/metrics/preferences.json").read_text())["judgements"]["pairwise"]
pathlib.Path("data/metrics/reward_model.json").write_text(json.dumps({"accuracy": 0.5 + judged / 100}))
"""
DPO = "python -c \"import pathlib; n = len(pathlib.Path('data/preferences').read_text().split()); "
DPO += "pathlib.Path('data/dpo').write_text(f'dpo {0.4 + n / 50}')\""
COPIED = """
import json, pathlib, shutil, sys
skill = pathlib.Path(f"data/{sys.argv[1]}").read_text().splitlines()[-1].partition(" ")[2]
shutil.copytree(f"evaluated/{sys.argv[1]}/{float(skill)}", f"data/evaluate/{sys.argv[1]}")
"""

Ran = tuple[Toy, Changed | None, dict[str, StageResult]]


@pytest.fixture(scope="module")
def once(template: Path, empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two evaluated policies, of which dpo learns from the judgements of two people, after a first run; what came of
    it.
    """
    root = tmp_path_factory.mktemp("judged") / "toy"
    shutil.copytree(template, root)
    toy = evaluated(Toy(root), empty_mlflow)
    for policy, skills in (("sft", (0.4, 0.5)), ("dpo", (0.44, 0.46, 0.64))):
        for skill in skills:
            evaluate(toy, policy, skill)
    toy.write("evaluate.py", COPIED)
    toy.write(RECORD, "anna\nben\n")
    toy.write("preferences.py", PREFERENCES)
    toy.stages["preferences"] = {
        "cmd": "python preferences.py",
        "deps": ["preferences.py", RECORD],
        "params": ["preferences"],
        "outs": ["data/preferences", "data/metrics/preferences.json"],
    }
    toy.write("reward_model.py", REWARD_MODEL)
    toy.stages["reward_model"] = {
        "cmd": "python reward_model.py",
        "deps": ["reward_model.py", "data/metrics/preferences.json"],
        "outs": ["data/metrics/reward_model.json"],
    }
    toy.stages["dpo"] |= {"cmd": DPO, "deps": ["data/preferences"], "params": ["dpo"]}
    toy.params["preferences"] = {"judgements": RECORD}
    toy.save()
    return toy, *run(toy)


def evaluate(toy: Toy, policy: str, skill: float) -> None:
    """Make the tables of a policy's evaluation in this process, in a folder from which its stage copies them."""
    folder = toy.root / "evaluated" / policy
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(toy.write(f"making/data/{policy}", f"{policy} {skill}\n").parents[1])
        patch.setattr("sys.argv", ["evaluate.py", policy])
        toy.write("making/params.yaml", toy.read("params.yaml"))
        exec(compile(EVALUATE, "evaluate.py", "exec"), {})
    folder.mkdir(parents=True, exist_ok=True)
    shutil.move(toy.root / "making/data/evaluate" / policy, folder / str(skill))
    shutil.rmtree(toy.root / "making")


@pytest.fixture
def judged(once: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    monkeypatch.setattr(evaluation_comparison, "subprocess", SimpleNamespace(run=run_module))
    return copied(once[0], tmp_path / "toy")


def run(toy: Toy) -> tuple[Changed | None, dict[str, StageResult]]:
    planned = toy.plan()
    known = new_judgements.capture_state_before_run(toy.root, planned)
    recorder = FlowRecorder(toy.root, "language")
    results = toy.run(recorder=recorder)
    recorder.close(results.values())
    return known and new_judgements.summarize_judgement_effects(toy.root, known, planned, [*results.values()]), results


def test_a_first_run_has_only_what_there_is_now(once: Ran) -> None:
    _, changed, results = once
    assert {result.state for result in results.values()} == {"ran"}
    assert changed is not None
    lines = list(shown.format_judgement_changes(changed))
    assert lines[0] == "what 2 new judgements changed: there are 2 now, by 2 people, where there were 0"
    assert [line.split() for line in lines[2:]] == [
        ["pairs", "to", "learn", "from", "none", "1"],
        ["held-out", "pairs", "none", "1"],
        ["reward", "model:", "accuracy", "on", "held-out", "pairs", "52.0", "%"],
    ]


def test_ten_more_judgements_say_what_they_changed(judged: Toy) -> None:
    with (judged.root / RECORD).open("a") as file:
        file.write("anna\n" * 10)
    changed, results = run(judged)
    assert changed is not None
    assert results["sft"].state == "up-to-date"
    lines = list(shown.format_judgement_changes(changed))
    assert lines[0] == "what 10 new judgements changed: there are 12 now, by 2 people, where there were 2"
    rows = [line.split("  ") for line in lines]
    table = {row[1].strip(): [cell.strip() for cell in row[2:] if cell.strip()] for row in rows[2:] if row[1]}
    assert table["pairs to learn from"] == ["1", "11"]
    assert table["reward model: accuracy on held-out pairs"] == [
        "52.0 %",
        "62.0 %",
        "+10.0",
        "other pairs are held out",
    ]
    before, after, difference, interval = table["dpo: strict_greedy"]
    assert float(after[:-2]) > float(before[:-2])
    assert (difference[0], " to " in interval) == ("+", True)
    assert lines[-1] == "  the same models as before: sft"


def test_other_changes_of_the_run_are_named(judged: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the comparison of the policies, which another test makes."""
    monkeypatch.setattr(evaluation_comparison, "compare_side_evaluations", lambda *_: [])
    with (judged.root / RECORD).open("a") as file:
        file.write("anna\n")
    judged.set(sft=0.5)
    changed, _ = run(judged)
    assert changed is not None
    assert (
        list(shown.format_judgement_changes(changed))[-1]
        == "  not the judgements' doing alone: sft (param sft changed 0.4 -> 0.5)"
    )


def test_nothing_is_said_where_the_judgements_are_those_of_before(judged: Toy) -> None:
    judged.write("reward_model.py", REWARD_MODEL + "# other code\n")
    changed, results = run(judged)
    assert (results["preferences"].state, results["reward_model"].state) == ("up-to-date", "ran")
    assert changed is None
    judged.write("preferences.py", PREFERENCES + "# other code\n")
    changed, results = run(judged)
    assert results["preferences"].state == "ran"
    assert changed is None
