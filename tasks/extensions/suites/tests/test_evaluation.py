"""`posttrain evaluate --suite`: any model alone, on benchmark suites."""

import json

import pytest

from tasks.common.errors import StageError
from tasks.extensions.suites import evaluation
from tests import repository
from tests.conftest import PARAMS


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the section of params.yaml."""
    (tmp_path / "params.yaml").write_text(json.dumps(repository.in_file({"benchmarks": PARAMS["benchmarks"]})))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_suites_are_asked_of_a_model_alone(made, place):
    """Two suites of a few rows: tables and pages for each, and the columns of a table."""
    for suite, row in (
        ("gsm8k/test", {"answer": "#### 1"}),
        ("arc/easy_test", {"choices": ["one", "two"], "answerKey": "A"}),
    ):
        (place / suite).parent.mkdir()
        rows = [json.dumps({"question": f"{n}: how many?", **row}) for n in range(3)]
        (place / f"{suite}.jsonl").write_text("\n".join(rows))
    given = [
        "--suite",
        "gsm8k, arc_easy",
        "--suites",
        ".",
        "--samples",
        "2",
        "--problems",
        "2",
        "--max-new-tokens",
        "3",
    ]
    found = evaluation.run_suites(evaluation.parse_suite_arguments([str(made / "pretrained"), *given, "--out", "out"]))
    assert {name: one["asked"] for name, one in found.items()} == {"gsm8k": 2, "arc_easy": 2}
    assert "right_mean_at_2_t0.6" in found["gsm8k"]
    assert json.loads((place / "out/benchmarks.json").read_text()) == found
    assert "1: how many?" in (place / "out/pages/gsm8k/suite.html").read_text()
    lines = list(evaluation.format_suite_lines(found))
    assert [line.split()[0] for line in lines] == ["gsm8k", "arc_easy", "average"]


@pytest.mark.parametrize(
    ("suite", "line"),
    [
        ("math501", "suite 'math501': expected one of math500, math500-lm-eval, aime24, "),
        ("math500,math500", "--suite math500,math500: expected each suite once, got math500 twice"),
        ("math500@main", "suite math500: revision 'main': expected a commit of HuggingFaceH4/MATH-500, 40 hexadecimal"),
        ("math500,", "suite '': expected one of math500, "),
        (
            "aime24",
            "suite aime24: nowhere/aime24/test: no such file of type .jsonl, .json, .parquet; expected it there, or a",
        ),
    ],
)
def test_a_suite_that_cannot_be_asked_is_one_line_before_the_model_is_loaded(place, suite, line):
    given = ["no model here", "--suite", suite, "--suites", "nowhere", "--out", "out"]
    with pytest.raises(StageError) as caught:
        evaluation.run_suites(evaluation.parse_suite_arguments(given))
    assert str(caught.value).startswith(line)
