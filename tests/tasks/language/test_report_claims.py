"""What the report claims of a run: against which policy, and of how many problems."""

import json
import re
import shutil

import numpy as np
import pytest

from tasks.common import tables
from tasks.language.configs.report import ReportConfig
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tests.tasks.language.test_report import BEST, CONFIG, OTHER, RIGHT, outs, report, write


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The outs of the stages before the report, with random numbers."""
    return outs(tmp_path_factory.mktemp("claims"), np.random.default_rng(1))


@pytest.fixture(scope="module")
def whole(home):
    """The metrics, and the folder that the report wrote."""
    return report(home, home / "out"), home / "out"


def test_dvc_has_a_row_of_few_numbers_for_each_policy(whole, home):
    metrics, out = whole
    rows = {path.stem: json.loads(path.read_text()) for path in (out / "metrics").iterdir()}
    assert rows.keys() == RIGHT.keys()
    judged = {name: json.loads((home / "evaluate" / name / "evaluation.json").read_text()) for name in RIGHT}
    assert {name: row["strict_greedy"] for name, row in rows.items()} == {
        name: of["strict_greedy"]["mean"] for name, of in judged.items()
    }
    assert rows["dpo"]["change_low"] == metrics["dpo"]["change"]["strict_greedy"]["low"]
    assert "change" not in rows["sft"]  # the baseline


def test_manner_and_correctness_add_up_to_the_change_of_gold(whole):
    change = whole[0]["dpo"]["change"]
    parts = [change[name]["mean"] for name in ("gold_by_manner", "gold_by_correctness")]
    assert sum(parts) == pytest.approx(change["gold_greedy"]["mean"])
    assert all(parts)


def test_the_best_method_counts_against_the_better_control(home, tmp_path):
    """dpo and its control have the same answers; a control that is not shown counts for nothing."""
    evaluations = tmp_path / "home/evaluate"
    shutil.copytree(home / "evaluate", evaluations)
    shutil.copytree(home / "reward_model", tmp_path / "home/reward_model")
    shutil.copytree(evaluations / "dpo", evaluations / "ppo")
    names = ["sft", "dpo", "ppo"]
    metrics = report(tmp_path / "home", tmp_path / "out", policies=names, controls=["ppo", "grpo"])
    sentence = (tmp_path / "out/headline.txt").read_text()
    assert sentence.startswith("In this one draw (seed 2; ")
    assert " dpo answers " in sentence
    assert "and does not beat the control ppo, with " in sentence
    assert metrics["dpo"]["over_rival"]["mean"] == 0.0
    assert "over_rival" not in metrics["ppo"]
    page = (tmp_path / "out/report.md").read_text()
    assert "| ppo, control |" in page
    assert "| over ppo |" in page


def test_of_few_problems_there_is_no_interval_and_no_mark(home, tmp_path):
    few = tmp_path / "home"
    for name in OTHER["policies"]:
        source, folder = home / "evaluate" / name, few / "evaluate" / name
        table = tables.read_table(Generations, source / "generations.parquet")
        asked = tables.read_table(Problems, source / "asked.parquet").head(29)
        write(table[table["problem_id"].isin(asked["problem_id"])], asked, BEST[name], folder)
        shutil.copyfile(source / "curve.csv", folder / "curve.csv")
    shutil.copytree(home / "reward_model", few / "reward_model")
    metrics = report(few, tmp_path / "out", **OTHER)
    page = (tmp_path / "out/report.md").read_text()
    assert not re.search(r" to [+-]?\d+\.\d|[▲▼]|p [=<] ", page.split("## Learning curves")[0])
    assert "Of fewer than 30 problems no interval is shown and nothing is marked." in page
    assert metrics["dpo"]["change"]["strict_greedy"].keys() == {"mean", "gained", "lost"}
    assert "change_low" not in json.loads((tmp_path / "out/metrics/dpo.json").read_text())
    json.dumps(metrics, allow_nan=False)


def test_the_baseline_is_no_control():
    with pytest.raises(ValueError, match=r"other than report\.baseline"):
        ReportConfig.model_validate({**CONFIG.model_dump(), "controls": ["sft"]})
