"""`posttrain evaluate`: any model alone, on one's own test set."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from tasks import evaluation
from tasks.common import mlflow_database, tables
from tasks.common.errors import DataError, StageError
from tasks.language.tables.evaluation import Generations
from tests import repository
from tests.conftest import PARAMS
from tests.tasks import forks

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def templates_in_a_fork(monkeypatch):
    """Chat templates are rendered without a fresh process."""
    forks.render_templates(monkeypatch)


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A folder with params.yaml, and a test set of two problems; the model is that of the tests."""
    small = {"samples": 2, "temperatures": [1.0], "pass_at": [1], "max_new_tokens": 4, "bootstrap": 20}
    sections = {"evaluate": {**PARAMS["evaluate"], **small}}
    (tmp_path / "params.yaml").write_text(json.dumps(repository.in_file(sections)))
    rows = [{"question": f"Ada has {n} pens. How many?", "answer": f"#### {n}"} for n in range(2)]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_alone_is_judged_into_the_same_tables(made, place):
    """It has no pipeline before it: no SFT, no reward model, no validation problems."""
    arguments = evaluation.parse_arguments([str(made / "pretrained"), "--data", "test.jsonl", "--out", "out"])
    found = evaluation.evaluate_checkpoint(arguments)
    table = tables.read_table(Generations, place / "out/generations.parquet")
    assert found["asked"] == 2
    assert len(table) == 2 * (1 + 2), "a greedy answer and two samples to each problem"
    assert {"kl", "reward"}.isdisjoint(table.columns)
    assert json.loads((place / "out/evaluation.json").read_text()) == found
    assert pd.read_parquet(place / "out/measures.parquet")["problem_id"].nunique() == 2
    lines = list(evaluation.iterate_measure_lines(found))
    head = next(at for at, line in enumerate(lines) if line.startswith("measure "))
    assert any(line.startswith("strict ") and " %" in line for line in lines[head:])
    assert [line.split(":")[0] for line in lines[:head]] == [line.split()[0] for line in lines[head + 1 :]]
    assert "ended: Of the greedy answers, the share that the end token closed within the length limit." in lines


def test_answers_that_cannot_be_right_are_counted():
    """Of the greedy ones; an empty answer is none without a mark, and where no right answers are known nothing is
    looked for.
    """
    rows = [
        ("2 + 2 = 4\n#### 4", True, 0.0),
        ("so \\boxed{4}", True, 0.0),
        ("it is 4", True, 0.0),
        ("2 + 2 =", False, 0.0),
        (" ", True, 0.0),
        ("", False, 1.0),
    ]
    table = pd.DataFrame(rows, columns=["response", "ended", "temperature"])
    counted = "1 cut off at max_new_tokens 9, 2 without a marked final answer (#### or \\boxed{}), 1 empty"
    assert evaluation.format_answer_counts(table.assign(strict=False), 9) == counted
    assert evaluation.format_answer_counts(table, 9) == "1 cut off at max_new_tokens 9, 1 empty"


def test_the_phases_are_named_on_standard_error(made, place, empty_mlflow, monkeypatch, capsys):
    """The greedy answers come first, and each temperature by itself."""
    (place / "mlruns").mkdir()
    shutil.copy(empty_mlflow, place / "mlruns/mlflow.db")
    for name in ("MLFLOW_RUN_ID", "POSTTRAIN_RECORDS", "POSTTRAIN_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    model = str(made / "pretrained")
    monkeypatch.setattr(sys, "argv", ["evaluation", model, "--data", "test.jsonl", "--out", "out"])
    evaluation.main()
    said = capsys.readouterr()
    phases = [f"loading {model}", "greedy answers", "sampled answers at temperature 1", "scoring"]
    assert [line for line in said.err.splitlines() if line in phases] == phases
    assert "greedy answers: step 1/2\n" in said.err
    assert said.out.startswith(f"{model}: greedy answers to 2 test problems: ")


@pytest.mark.parametrize("known", [0, 1, 2])
def test_some_answers_that_are_missing_are_told(made, place, capsys, known):
    """Without any answer there is nothing to miss; where one of two is unknown, a share of right ones would mislead."""
    rows = [{"question": f"{n} pens?", **({"answer": n} if n < known else {})} for n in range(2)]
    (place / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = evaluation.evaluate_checkpoint(
        evaluation.parse_arguments([str(made / "pretrained"), "--data", "test.jsonl", "--out", "out"])
    )
    said = "evaluate: 1 of 2 test problems have no answer, the first of them test-1: without an answer to each"
    assert (said in capsys.readouterr().err) == (known == 1)
    assert any(name.startswith("lenient") for name in found) == (known == 2)


def test_the_command_line_changes_the_section(place):
    arguments = evaluation.parse_arguments(
        ["model", "--data", "x.jsonl", "--samples", "1", "--problems", "7", "--out", "o"]
    )
    config = evaluation.build_evaluate_config(arguments)
    assert (config.source, config.path, config.samples, config.pass_at, config.problems) == (
        "files",
        "x.jsonl",
        1,
        [1],
        7,
    )


@pytest.mark.parametrize(
    ("model", "rows", "line"),
    [
        ("bin", None, "MODEL: bin holds no config.json"),
        ("", '{"question": 3}', "bad.jsonl: line 1: field 'question' is "),
        ("", "", "bad.jsonl: there are no test problems"),
        ("", None, "data/problems: the pipeline's test problems are not there; expected --data"),
    ],
)
def test_what_cannot_be_judged_is_one_line(made, place, model, rows, line):
    (place / "bin").mkdir()
    (place / "bin/pytorch_model.bin").touch()
    given = ["--data", "test.jsonl"] if "--data" not in line else []
    if rows is not None:
        (place / "bad.jsonl").write_text(rows)
        given = ["--data", "bad.jsonl"]
    with pytest.raises(StageError) as caught:
        evaluation.evaluate_checkpoint(
            evaluation.parse_arguments([model or str(made / "pretrained"), *given, "--out", "out"])
        )
    assert str(caught.value).startswith(line)


def test_a_model_that_is_nowhere_is_one_line(place, empty_mlflow, monkeypatch, capsys):
    """Of the command: what it raises is its last line, and its exit code 2; its record has failed."""
    (place / "mlruns").mkdir()
    shutil.copy(empty_mlflow, place / "mlruns/mlflow.db")
    for name in ("MLFLOW_RUN_ID", "POSTTRAIN_RECORDS", "POSTTRAIN_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(place / "hub"))
    monkeypatch.setattr(sys, "argv", ["evaluation", "nowhere", "--data", "test.jsonl", "--out", "out"])
    monkeypatch.delitem(sys.modules, "tasks.evaluation")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("tasks.evaluation", run_name="__main__", alter_sys=True)
    assert ended.value.code == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("posttrain: nowhere: no folder here, and not from the hub: ")
    )
    client = mlflow_database.open_or_create_records_client(place)
    [run] = client.search_runs([client.get_experiment_by_name("language").experiment_id])
    assert (run.info.run_name, run.info.status) == ("evaluation", "FAILED")
    assert run.data.params["evaluation.model"] == "nowhere"


def test_a_reward_model_that_cannot_be_read_is_one_line(made, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shutil.copytree(made / "pretrained", tmp_path / "scorer")
    (tmp_path / "scorer/tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"scorer: cannot be loaded \("):
        evaluation.load_or_fetch_models(str(made / "pretrained"), "main", tmp_path / "scorer")
