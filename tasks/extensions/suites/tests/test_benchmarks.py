"""The stages on benchmark suites, by the tests' own small model and suites of a few rows."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import ConfigError, DataError
from tasks.extensions.suites import benchmark_pages, benchmarks
from tasks.extensions.suites.configs.benchmark_pages import BenchmarkPagesConfig
from tasks.extensions.suites.configs.benchmarks import BenchmarksConfig
from tasks.extensions.suites.tables import Answers, SuiteQuestions
from tests.conftest import PARAMS

CELL = {"policy": "sft", "suite": "gsm8k", "revision": None, "shots": 0, "samples": 3}
CELLS = {
    "sft-gsm8k": CELL,
    "dpo-gsm8k": {**CELL, "policy": "dpo"},
    "sft-arc": {**CELL, "suite": "arc_easy", "samples": 0},
}


def config(**changes):
    small = {"cells": CELLS, "problems": 4, "pass_at": [1, 2], "max_new_tokens": 6, "batch_size": 3}
    return BenchmarksConfig.model_validate({**PARAMS["benchmarks"], **small, **changes})


@pytest.fixture(scope="module")
def suites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suites")
    asked = [{"question": f"Ada has {n} pens. How many?", "answer": f"{n}\n#### {n}"} for n in range(6)]
    choices = {"text": ["in a box", "here"], "label": ["A", "B"]}
    chosen = [{"question": f"Where is {n}?", "choices": choices, "answerKey": "B"} for n in range(5)]
    for name, rows in (("gsm8k/test", asked), ("arc/easy_test", chosen)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def cells(made, suites, tmp_path_factory):
    """What the stage writes and returns for each cell, by the same model under two names."""
    out = tmp_path_factory.mktemp("benchmarks")
    return out, {name: benchmarks.run(config(), made / "pretrained", suites, out / name) for name in CELLS}


def test_each_problem_has_one_greedy_answer_and_its_samples(cells):
    out, found = cells
    answers = tables.read_table(Answers, out / "sft-gsm8k/suite_answers.parquet")
    assert answers.groupby(["problem_id", "temperature"]).size().tolist() == [1, 3] * 4
    assert found["sft-gsm8k"]["asked"] == 4, "the first of six"
    assert {"right_mean_at_3_t0.6", "right_pass_at_2_t0.6", "right_majority_at_3_t0.6"} <= found["sft-gsm8k"].keys()
    assert found["sft-gsm8k"] == found["dpo-gsm8k"], "the same model answers in the same way"


def test_a_choice_is_the_likelier_text(cells):
    out, found = cells
    answers = tables.read_table(Answers, out / "sft-arc/suite_answers.parquet")
    asked = tables.read_table(SuiteQuestions, out / "sft-arc/suite_problems.parquet").set_index("problem_id")
    for row in answers.to_dict("records"):
        values = [float(line.split()[0]) for line in row["response"].split("\n")]
        assert row["extracted"] == "AB"[values.index(max(values))]
        assert row["right"] == (row["extracted"] == asked.loc[row["problem_id"], "answer"])
    assert found["sft-arc"]["right_greedy"]["mean"] == answers["right"].mean()
    assert "right_greedy_normalised" in found["sft-arc"]


def test_the_pages_hold_what_was_measured(cells, tmp_path):
    out, found = cells
    shown = BenchmarkPagesConfig.model_validate({"comparisons": {"all": {"cells": list(CELLS), "baseline": "sft"}}})
    numbers = benchmark_pages.run(shown, out, tmp_path / "all")
    assert numbers["sft"]["gsm8k"]["mean"] == found["sft-gsm8k"]["right_greedy"]["mean"]
    assert numbers["sft"]["average"] == pytest.approx(
        (found["sft-gsm8k"]["right_greedy"]["mean"] + found["sft-arc"]["right_greedy"]["mean"]) / 2
    )
    assert "average" not in numbers["dpo"], "it was not asked ARC"
    page = (tmp_path / "all/gsm8k/suite.html").read_text()
    assert "Ada has 3 pens." in page
    assert (tmp_path / "all/benchmarks.html").read_text().count("suite.html") == 2


@pytest.mark.parametrize(
    ("cell", "changes", "line"),
    [
        ("sft-gsm8k", {"suite": "gsm9k"}, "suite 'gsm9k': expected one of math500, "),
        ("sft-gsm8k", {"revision": "main"}, "suite gsm8k: revision 'main': expected a commit of openai/gsm8k, 40 "),
        ("sft-gsm8k", {"suite": "svamp"}, "suite svamp: .*svamp/test: no such file of type .jsonl, .json, .parquet; "),
        ("sft-gsm8k", {"shots": 2}, "suite gsm8k: .*gsm8k/train: no such file"),
        ("other", {}, "branches.benchmarks: expected an entry 'other'"),
    ],
)
def test_what_cannot_be_asked_is_one_line(made, suites, tmp_path, cell, changes, line):
    own = config(cells={"sft-gsm8k": {**CELL, **changes}})
    with pytest.raises((ConfigError, DataError), match=line):
        benchmarks.run(own, made / "pretrained", suites, tmp_path / cell)
    assert not (tmp_path / cell).exists()


def test_pages_of_what_was_not_measured_are_one_line(tmp_path):
    own = BenchmarkPagesConfig.model_validate({"comparisons": {"all": {"cells": ["x"], "baseline": "sft"}}})
    with pytest.raises(DataError, match=r"x: no benchmark\.json; expected a folder of the stage benchmarks"):
        benchmark_pages.run(own, tmp_path, tmp_path / "all")
    with pytest.raises(ConfigError, match=r"branches\.benchmark_pages: expected an entry 'some'"):
        benchmark_pages.run(own, tmp_path, tmp_path / "some")


def test_a_prompt_that_does_not_fit_is_left_out_and_told(made, suites, tmp_path, capsys):
    """The tests' model reads 192 tokens."""
    rows = [{"question": question, "answer": "#### 1"} for question in ("How many?", "How many of them? " * 40)]
    Path(tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = benchmarks.run(config(), made / "pretrained", tmp_path, tmp_path / "sft-gsm8k")
    assert (found["asked"], found["left_out"]) == (1, 1)
    assert "GSM8K: 1 of 2 problems are left out: with max_new_tokens = 6" in capsys.readouterr().err
    assert pd.read_parquet(tmp_path / "sft-gsm8k/suite_problems.parquet")["question"].tolist() == ["How many?"]
