"""Benchmark suites against their peers, on frozen rows and answers: peers.py wrote what lm-eval and Qwen2.5-Math's
code say of them.
"""

import json
from pathlib import Path

import pytest
from math_verify import parse, verify

from tasks.common import model_files, models
from tasks.extensions.suites import likelihood, reading, scoring
from tasks.extensions.suites.suite import SuiteProblem
from tasks.extensions.suites.tests import peer_rows
from tasks.extensions.suites.tests.peer_rows import ARC, ARC_EXAMPLES, GSM8K_ANSWERS, LETTERS, QWEN_ANSWERS
from tests import repository
from tests.tasks.language.rewards.math_in_process import verifier_in_process

SHARED = Path(__file__).parents[5] / "shared"
THEIRS = json.loads((Path(__file__).parent / "peers.json").read_text())


@pytest.fixture(scope="module")
def verifier():
    with verifier_in_process() as judge:
        yield judge


@pytest.fixture(scope="module")
def qwen2(one_thread, tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen2")
    peer_rows.save_qwen2(folder)
    return folder


def written(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def assert_item_by_item(folder, name, problems, examples, theirs, batch_size=3):
    """Log-likelihoods to rounding, and the same choice by both ways to choose."""
    suite, model = reading.get_suite(name), models.load_model(folder)
    tokenizer = model_files.load_tokenizer(folder)
    asked = likelihood.encode_contexts_and_choices(suite, tokenizer, problems, examples)
    ours = list(likelihood.iterate_choice_log_likelihoods(model, asked, 0, batch_size))
    assert len(ours) == len(theirs)
    for problem, own, judged in zip(problems, ours, theirs, strict=True):
        assert own == pytest.approx(judged["log_likelihoods"], abs=2e-3), problem.question
        chosen = scoring.select_most_likely_choice(problem, own)
        assert (chosen.right, chosen.right_normalised) == (judged["acc"], judged["acc_norm"])


@pytest.mark.parametrize("shots", [0, 2])
def test_choices_by_likelihood_are_those_of_lm_eval(qwen2, tmp_path, shots):
    """Rows of unequal length, one longer than the model reads, which lm-eval cuts off from the left."""
    written(tmp_path / "arc/easy_test.jsonl", ARC)
    written(tmp_path / "arc/easy_train.jsonl", ARC_EXAMPLES)
    problems, examples = (
        reading.load_suite_problems("arc_easy", tmp_path, None),
        reading.load_suite_examples("arc_easy", tmp_path, shots),
    )
    assert_item_by_item(qwen2, "arc_easy", problems, examples, THEIRS["qwen2"][str(shots)])


@pytest.mark.parametrize("model", ["stories260K", "qwen2"])
@pytest.mark.parametrize("kind", ["easy", "challenge"])
def test_arc_is_that_of_lm_eval(qwen2, model, kind):
    """ARC's own first rows, by a real model and by one of random shape."""
    if not (SHARED / "data/arc").is_dir():
        pytest.skip(f"{repository.needs('data')}; {repository.needs('models/stories260K')}")
    problems = reading.load_suite_problems(f"arc_{kind}", SHARED / "data", None, 40)
    folder = qwen2 if model == "qwen2" else SHARED / "models/stories260K"
    assert_item_by_item(folder, f"arc_{kind}", problems, [], THEIRS[f"{model}/{kind}"])


@pytest.mark.parametrize(
    ("name", "column"), [("gsm8k-lm-eval", "strict-match"), ("gsm8k-lm-eval-flexible", "flexible-extract")]
)
def test_gsm8k_s_filters_are_those_of_lm_eval(verifier, tmp_path, name, column):
    rows = [{"question": f"question {number}", "answer": gold} for number, (gold, _) in enumerate(GSM8K_ANSWERS)]
    rows = [{**row, "answer": row["answer"] if "####" in row["answer"] else f"#### {row['answer']}"} for row in rows]
    written(tmp_path / "gsm8k/test.jsonl", rows)
    problems = reading.load_suite_problems(name, tmp_path, None)
    responses = [text for _, text in GSM8K_ANSWERS]
    ours = scoring.judge_responses(reading.get_suite(name), problems, responses, verifier, compared=False)
    assert [one.right for one in ours] == THEIRS["gsm8k"][column]


def test_letters_are_compared_as_lm_eval_does(verifier):
    problem = SuiteProblem("one", "What do bees make?", "B", "", "", "", (("A", "milk"), ("B", "honey")))
    suite = reading.get_suite("arc_challenge-text")
    ours = scoring.judge_responses(suite, [problem] * len(LETTERS), LETTERS, verifier, compared=False)
    assert [one.right for one in ours] == THEIRS["letters"]["remove_whitespace"]


def test_mathematics_is_judged_as_by_qwen(verifier):
    problems = [SuiteProblem(str(n), "", gold, "", "", "") for n, (gold, _) in enumerate(QWEN_ANSWERS)]
    responses = [text for _, text in QWEN_ANSWERS]
    ours = scoring.judge_responses(reading.get_suite("math500"), problems, responses, verifier, compared=False)
    assert [one.right for one in ours] == [right for _, right in THEIRS["qwen"]]
    empty = {n for n, (answer, _) in enumerate(THEIRS["qwen"]) if not answer}
    assert {n for n, own in enumerate(ours) if not own.extracted} == empty, "and an answer is found in the same ones"


def test_minerva_s_math_verify_is_math_verify_itself(verifier):
    """lm-eval's metric math_verify of minerva_math500 is verify(parse(solution), parse(response))."""
    pairs = [(f"So it is $\\boxed{{{gold}}}$.", text) for gold, text in QWEN_ANSWERS]
    problems = [
        SuiteProblem(str(n), "", gold, f"So it is $\\boxed{{{gold}}}$.", "", "")
        for n, (gold, _) in enumerate(QWEN_ANSWERS)
    ]
    responses = [text for _, text in QWEN_ANSWERS]
    ours = scoring.judge_responses(reading.get_suite("math500-lm-eval"), problems, responses, verifier, compared=False)
    theirs = [verify(parse(solution), parse(text)) for solution, text in pairs]
    assert [one.right for one in ours] == theirs
    assert {True, False} == {*theirs}
