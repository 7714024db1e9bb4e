"""The stage solutions: responses whose steps are known, from each of its sources."""

import json

import pandas as pd
import pytest

from tasks.common import models, tables
from tasks.common.errors import DataError, WaitingError
from tasks.language import solutions
from tasks.language.configs.solutions import SolutionsConfig
from tasks.language.data import chat
from tasks.language.judgements.lines import format_line_as_json
from tasks.language.solutions import run
from tasks.language.steps import rollout_estimates
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tasks.language.tables.solutions import Solutions
from tests.conftest import PARAMS
from tests.tasks.language.steps.test_people import judgement, solution

RIGHT, SLIP, CUT, SILENT = "3 + {n} = {s}\n#### {s}", "3 + {n} = 99\n#### 99", "So:\n3 + {n}", ""
LABELS = {RIGHT: [1, 1], SLIP: [-1, -1], CUT: [0, 0]}


KINDS = (RIGHT, SLIP, CUT, SILENT)


@pytest.fixture(scope="module")
def words(made):
    """The tokenizer."""
    return models.load_tokenizer(made / "pretrained")


def inputs(home, words, worked=True, texts=KINDS, prompts=10):
    """Problems and an answer of each kind to each of them, of which SILENT shows nothing."""
    problems, responses = [], []
    for n in range(1, prompts + 1):
        filled = {"n": n, "s": n + 3}
        asked = f"Ada has 3 pens and buys {n}. How many has she?"
        reference = RIGHT.format(**filled) if worked else ""
        problems.append({"problem_id": f"train-{n}", "question": asked, "solution": reference, "steps": 1})
        problems[-1]["answer"] = str(n + 3)
        for sample, text in enumerate(texts):
            tokens = chat.encode_response(words, text.format(**filled), text != CUT)
            row = {"prompt_id": f"train-{n}", "sample": sample, "prompt": asked, "response": text.format(**filled)}
            responses.append({**row, "tokens": tokens, "logps": [-0.1] * len(tokens), "ended": text != CUT})
    tables.write_table(Problems, pd.DataFrame(problems), home / "problems/train.parquet")
    tables.write_table(Responses, pd.DataFrame(responses), home / "responses/responses.parquet")


def label(made, home, by_people, out, **changes):
    """The stage on the inputs in `home`."""
    config = SolutionsConfig.model_validate({**PARAMS["solutions"], **changes})
    metrics = run(config, made / "pretrained", home / "responses", home / "problems", by_people, out)
    return metrics, *(tables.read_table(Solutions, out / f"{part}.parquet") for part in ("train", "test"))


@pytest.fixture(scope="module")
def usual(words, tmp_path_factory):
    """A folder with the inputs that most tests have."""
    home = tmp_path_factory.mktemp("usual")
    inputs(home, words)
    return home


@pytest.fixture
def stage(made, words, usual, tmp_path):
    def go(name="out", worked=True, texts=KINDS, **changes):
        home = usual
        if (worked, texts) != (True, KINDS):
            inputs(home := tmp_path, words, worked, texts)
        return label(made, home, tmp_path / "judgements", tmp_path / name, **changes)

    return go


@pytest.fixture(scope="module")
def by_worked_steps(made, usual):
    """The metrics and both tables by default."""
    return label(made, usual, usual / "judgements", usual / "out")


def test_labels_by_the_worked_steps(by_worked_steps, words):
    metrics, train, test = by_worked_steps
    assert metrics == {
        "solutions": {"train": 24, "test": 6},
        "steps": 2.0,
        "right": pytest.approx(1 / 3),
        "labels": {"bad": pytest.approx(1 / 3), "neutral": pytest.approx(1 / 3), "good": pytest.approx(1 / 3)},
        "first_wrong": pytest.approx(1 / 3),
        "left_out": 10,
    }
    assert not {*train["prompt_id"]} & {*test["prompt_id"]}
    for row in pd.concat([train, test]).itertuples():
        n = int(row.prompt_id.removeprefix("train-"))
        [kind] = [kind for kind in LABELS if kind.format(n=n, s=n + 3) == row.response]
        assert list(row.labels) == list(row.truth) == LABELS[kind]
        assert (row.right, row.ended) == (kind == RIGHT, kind != CUT)
        assert "\n" in words.decode([row.tokens[row.ends[0]]])
        assert row.ends[1] == len(row.tokens) - 1
    assert "good" not in train
    assert "history" not in train


def from_files(made, home, rows, name="out"):
    (home / "problems").mkdir(exist_ok=True)
    (home / "problems/train.parquet").write_bytes((made / "problems/train.parquet").read_bytes())
    (home / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = SolutionsConfig.model_validate({**PARAMS["solutions"], "source": "files"})
    none = home / "none"
    metrics = run(config, made / "pretrained", home / "train.jsonl", home / "problems", none, home / name)
    return metrics, *(tables.read_table(Solutions, home / name / f"{part}.parquet") for part in ("train", "test"))


def test_whole_answers_with_a_label(made, words, tmp_path):
    """Each step has its answer's label; answers to one prompt are on one side, whatever a problem of that number is
    about.
    """
    rows = [
        {"prompt": f"A film {n // 2}?", "completion": "It was\nfine." if n % 2 else "Dull.", "label": n % 2}
        for n in range(20)
    ]
    metrics, train, test = from_files(made, tmp_path, rows)
    assert metrics == {
        "solutions": {"train": 16, "test": 4},
        "steps": 1.5,
        "right": 0.5,
        "labels": {"bad": pytest.approx(1 / 3), "neutral": 0.0, "good": pytest.approx(2 / 3)},
        "first_wrong": 0.5,
        "left_out": 0,
    }
    assert not {*train["prompt"]} & {*test["prompt"]}
    for row in pd.concat([train, test]).itertuples():
        assert row.right == (row.response != "Dull.")
        assert list(row.labels) == ([1, 1] if row.right else [-1])
        assert chat.decode_response(words, [*row.tokens], True) == row.response
        assert row.ended


def test_files_without_labels_are_told_in_one_line(made, tmp_path):
    with pytest.raises(
        DataError, match=r"train\.jsonl: line 2: field 'label' is missing; there are prompt, completion"
    ):
        from_files(
            made, tmp_path, [{"prompt": "A?", "completion": "B", "label": 1}, {"prompt": "A?", "completion": "B"}]
        )


def test_the_seed_draws_the_split(stage, by_worked_steps):
    first = by_worked_steps[2]["prompt_id"]
    assert first.tolist() != stage("other", seed=1)[2]["prompt_id"].tolist()
    assert {*stage("more", test_share=0.5)[2]["prompt_id"]} > {*first}


def scripted(monkeypatch):
    """Every completion of a right step is right, and one in two of all others."""

    def soft(_policy, _words, _ends, solutions, *_):
        return [[1.0 if one["right"] else 0.5 - place / 2 for place in range(2)] for one in solutions]

    monkeypatch.setattr(rollout_estimates, "compute_soft_estimates", soft)


def test_labels_by_roll_outs(stage, monkeypatch):
    scripted(monkeypatch)
    metrics, train, test = stage(source="rollouts", estimate="soft", prompts=6, samples=4)
    assert metrics["solutions"] == {"train": 15, "test": 3}
    assert metrics["completions"] == 4 * (6 * 4), "the ends of solutions that closed themselves need none"
    assert metrics["against_truth"] == {
        "labels": pytest.approx((2 + 1 + 1) / 6),
        "first_wrong": pytest.approx(1 / 3),
        "half_right": pytest.approx((2 + 1 + 1) / 6),
        "auc": pytest.approx((4 + 1 + 0.5 + 0.5) / 8),
    }
    for row in pd.concat([train, test]).itertuples():
        assert list(row.good) == ([1.0, 1.0] if row.right else [0.5, 0.0])
        assert list(row.labels) == ([1, 1] if row.right else [1, -1])
    again, hard, _ = stage(source="rollouts", estimate="hard", prompts=6, samples=4)
    assert again == metrics
    pd.testing.assert_frame_equal(hard, train.drop(columns="good"))


class ByLength:
    """A verifier that finds answers of even length right, so that chance decides."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, _golds, responses):
        return [float(len(response) % 2 == 0) for response in responses]


def finished(made, usual, out, **changes):
    """The solutions of three problems, finished by the policy, with verdicts by length."""
    settings = {"prompts": 3, "samples": 3, "max_new_tokens": 9, "batch_size": 4, **changes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solutions, "Verifier", ByLength)
        parts = label(made, usual, usual / "judgements", out, source="rollouts", estimate="soft", **settings)[1:]
    return pd.concat(parts)


def shares(table):
    return {row.solution_id: list(row.good) for row in table.itertuples()}


@pytest.fixture(scope="module")
def as_set(made, usual):
    """The table with the settings that others are changes of."""
    return finished(made, usual, usual / "as_set")


def test_a_policy_finishes_solutions_the_same_way_again(made, usual, as_set, tmp_path):
    pd.testing.assert_frame_equal(finished(made, usual, tmp_path), as_set)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"temperature": 5.0}, {"max_new_tokens": 2}, {"batch_size": 3}, {"samples": 4}]
)
def test_each_setting_of_roll_outs_acts(made, usual, as_set, tmp_path, change):
    good = [shares(table) for table in (as_set, finished(made, usual, tmp_path, **change))]
    assert good[0].keys() == good[1].keys()
    assert good[0] != good[1]


def record(home, *lines):
    (home / "judgements").mkdir(exist_ok=True)
    (home / "judgements/anna.jsonl").write_text("".join(format_line_as_json(line) + "\n" for line in lines))


def test_labels_by_people(stage, tmp_path):
    """A problem that nobody knows the answer of is right where people say that no step is wrong."""
    items = [solution(f"3 + {n} = 99\n#### 99") for n in range(4)]
    known = items[0].model_copy(update={"prompt_id": "train-1"})
    lines = [known, judgement(0, known, "anna", 1, 1), judgement(1, known, "ben", -1, None)]
    lines += [items[1], judgement(2, items[1], "ben", 1, 1), items[2], judgement(3, items[2], "ben", 0, -1), items[3]]
    record(tmp_path, *lines)
    with pytest.raises(WaitingError, match=r"^waiting for 1 more: posttrain label --mode steps$"):
        stage(source="people", judgements="data/raw/judgements", minimum=4)
    metrics, train, test = stage(source="people", judgements="data/raw/judgements", minimum=3)
    found = {row.solution_id: (list(row.labels), row.right) for row in pd.concat([train, test]).itertuples()}
    assert found == {
        f"train-1/{known.item}": ([-1, 1], False),
        f"p/{items[1].item}": ([1, 1], True),
        f"p/{items[2].item}": ([0, -1], False),
    }
    assert "against_truth" not in metrics, "worked steps of one problem of two"


def test_people_are_compared_with_the_worked_steps(stage, tmp_path):
    items = [
        solution(f"3 + {n} = {n + 3}\n#### 99").model_copy(update={"prompt_id": f"train-{n}"}) for n in range(1, 5)
    ]
    said = [judgement(n, item, "anna", *((1, -1) if n else (-1, None))) for n, item in enumerate(items)]
    record(tmp_path, *items, *said)
    metrics = stage(source="people", judgements="data/raw/judgements", minimum=4)[0]
    assert metrics["against_truth"] == {"labels": 7 / 8, "first_wrong": 3 / 4}


def test_what_cannot_be_labelled_is_said(stage, made, tmp_path):
    with pytest.raises(DataError, match=r"solutions: 0 solutions with labels, .* with source worked_steps$"):
        stage(worked=False)
    with pytest.raises(DataError, match="fewer than 2 prompts"):
        stage(texts=(SILENT,))
    (tmp_path / "responses/responses.parquet").unlink()
    config, folder = SolutionsConfig.model_validate(PARAMS["solutions"]), tmp_path / "responses"
    with pytest.raises(DataError, match=r"expected data/responses as solutions\.path$"):
        run(config, made / "pretrained", folder, tmp_path / "problems", tmp_path, tmp_path / "out")


def test_answers_to_prompts_that_differ_in_spaces_belong_to_one_prompt(words, tmp_path):
    """Else a held-out prompt would be trained on."""
    rows = [
        {"prompt": f"2 + 2?{space}", "completion": f"4{n}", "label": True} for n, space in enumerate(("", " ", "\n"))
    ]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert {row["prompt_id"] for row in solutions.load_labelled_solutions(file, words)} == {"own-0"}
