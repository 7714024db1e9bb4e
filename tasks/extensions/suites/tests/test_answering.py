"""Prompts and scoring of a suite, by hand; and what a policy says that thinks aloud."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tokenizers.processors import TemplateProcessing

from tasks.common import model_files, models
from tasks.extensions.suites import answering, likelihood, prompting, scoring
from tasks.extensions.suites.answering import AnswerSampling
from tasks.extensions.suites.registry import SUITES
from tasks.extensions.suites.suite import SuiteProblem
from tasks.language.rewards.verifier import Verifier

ONE = SuiteProblem("one", "How many {answer}s?", "3", "1 + 2 = 3", "", "")
EXAMPLE = SuiteProblem("two", "How few?", "1", "It is 1.", "", "")
WHERE = SuiteProblem("three", "Where? ", "B", "", "", "", (("A", "here"), ("B", "far away")))


@pytest.fixture(scope="module")
def verifier():
    with Verifier() as judge:
        yield judge


def test_plain_prompts_by_hand():
    """Braces of a problem's own stay, and so does the space behind a question, as in lm-evaluation-harness."""
    assert prompting.build_prompt_text(SUITES["gsm8k-lm-eval"], ONE, []) == "Question: How many {answer}s?\nAnswer:"
    shown = prompting.build_prompt_text(SUITES["gsm8k-lm-eval"], ONE, [EXAMPLE])
    assert shown == "Question: How few?\nAnswer: It is 1.\n\nQuestion: How many {answer}s?\nAnswer:"
    assert prompting.build_prompt_text(SUITES["arc_easy"], WHERE, [WHERE]) == (
        "Question: Where? \nAnswer: far away\n\nQuestion: Where? \nAnswer:"
    )


def test_a_chat_prompt_has_its_examples_as_turns_before_it(made):
    tokenizer = model_files.load_tokenizer(made / "pretrained")
    [alone] = prompting.encode_suite_prompts(SUITES["gsm8k"], tokenizer, [ONE], [])
    [behind] = prompting.encode_suite_prompts(SUITES["gsm8k"], tokenizer, [ONE], [EXAMPLE])
    text = tokenizer.decode(behind)
    assert "It is 1." in text
    assert text.index("How few?") < text.index("The answer is \\boxed{1}.") < text.index("How many {answer}s?")
    assert tokenizer.decode(alone).count("put your final answer within \\boxed{}.") == 1


def test_the_answer_begins_as_the_suite_says(made):
    tokenizer = model_files.load_tokenizer(made / "pretrained")
    [tokens] = prompting.encode_suite_prompts(SUITES["arc_easy-text"], tokenizer, [WHERE], [])
    text = tokenizer.decode(tokens)
    assert text.endswith("The best answer is")
    assert "Question: Where?\nA. here\nB. far away\n" in text
    [behind] = prompting.encode_suite_prompts(SUITES["arc_easy-text"], tokenizer, [WHERE], [WHERE])
    assert tokenizer.decode(behind).count("The best answer is B") == 1, "an example answers as it is asked: by a letter"


AROUND = {"closes": ([], [1]), "opens": ([0], []), "opens and closes": ([0], [1]), "closes twice": ([], [0, 1])}


@pytest.mark.parametrize("how", AROUND)
def test_what_a_tokenizer_puts_behind_every_text_ends_no_prompt(made, how):
    """By hand: tokens before every text stay, those behind it do not, and a choice is its own tokens."""
    plain, tokenizer = (model_files.load_tokenizer(made / "pretrained") for _ in range(2))
    before, behind = AROUND[how]
    names = {token: tokenizer.convert_ids_to_tokens(token) for token in (0, 1)}
    pattern = " ".join([*(names[token] for token in before), "$A", *(names[token] for token in behind)])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=pattern, special_tokens=[(name, token) for token, name in names.items()]
    )
    assert tokenizer("Where?")["input_ids"] == [
        *before,
        *plain("Where?", add_special_tokens=False)["input_ids"],
        *behind,
    ]
    for suite in ("arc_easy", "gsm8k-lm-eval"):
        [prompt], [wanted] = (
            prompting.encode_suite_prompts(SUITES[suite], words, [WHERE], [EXAMPLE]) for words in (tokenizer, plain)
        )
        assert prompt == [*before, *wanted]
    [(context, choices)] = likelihood.encode_contexts_and_choices(SUITES["arc_easy"], tokenizer, [WHERE], [])
    assert plain.decode(context[len(before) :]) == "Question: Where? \nAnswer:"
    assert [plain.decode(choice).strip() for choice in choices] == ["here", "far away"]
    assert not {0, 1} & {*choices[0], *choices[1]}


def test_prompts_that_are_read_without_their_beginning_are_said(made, capsys):
    """Two of three contexts of 60 tokens and more; one fits with its longer choice."""
    model = models.load_model(made / "pretrained")
    tokenizer = model_files.load_tokenizer(made / "pretrained")
    asked = [WHERE, replace(WHERE, question="far away " * 200), replace(WHERE, question="far " * 300)]
    assert likelihood.count_truncated_contexts([([1] * 5, [[1], [1] * 3])], 7) == 0
    assert likelihood.count_truncated_contexts([([1] * 5, [[1], [1] * 4])], 7) == 1
    sampling = AnswerSampling(seed=0, samples=0, temperature=1.0, max_new_tokens=9, batch_size=1, strip_thinking=True)
    answering.answer_and_score_problems(SUITES["arc_easy"], model, tokenizer, asked, [], sampling, None)
    room = model.config.max_position_embeddings
    line = (
        f"ARC-Easy: 2 of 3 prompts do not fit into the {room} positions of the model with their choices, and "
        "are read without"
    )
    assert line in capsys.readouterr().err


def test_an_answer_ends_before_the_first_stop():
    prompt = SUITES["gsm8k-lm-eval"].prompt
    assert prompting.truncate_at_stop(prompt, " 3 </s> Question: next") == "3"
    assert prompting.truncate_at_stop(prompt, "3 Question: next </s>") == "3"
    assert prompting.truncate_at_stop(prompt, "3") == "3"


def test_verdicts_by_hand(verifier):
    problem = SuiteProblem("one", "?", "\\frac{1}{2}", "", "", "")
    responses = ["\\boxed{0.5}", "The answer is 1/2.", "#### 1/2", "2/4", "", "\\boxed{2}"]
    found = scoring.judge_responses(SUITES["math500"], [problem] * 6, responses, verifier, compared=True)
    assert [one.right for one in found] == [True, True, False, False, False, False]
    assert [one.by_method["line"] for one in found] == [False, False, True, False, False, False]
    assert [one.by_method["sentence"] for one in found] == [False, True, False, False, False, False]
    assert [one.extracted for one in found] == ["0.5", "1/2", "2", "4", "", "2"]


def test_a_published_rule_stays_and_the_verifiable_reward_stands_beside_it(verifier):
    """The text that strict-match takes is compared as it is; the reward reads the number, however it is written."""
    problem = SuiteProblem("one", "?", "1000", "", "", "")
    responses = ["#### 1000", "#### 1e3", "#### 1,000.0", "so 1 000", "#### 1 000", "#### 1001", "\\boxed{10^3}", ""]
    found = scoring.judge_responses(SUITES["gsm8k-lm-eval"], [problem] * 8, responses, verifier, compared=True)
    assert [one.right for one in found] == [True, False, False, False, False, False, False, False]
    reward = [one.by_method["verifiable reward"] for one in found]
    assert reward == [True, True, True, True, True, False, True, False]


def test_choices_by_likelihood_by_hand():
    """-4 over 4 letters is more than -3.9 over 1; of equal ones the first counts."""
    problem = SuiteProblem("one", "?", "B", "", "", "", (("A", "x"), ("B", "wxyz"), ("C", "x")))
    found = scoring.select_most_likely_choice(problem, [-3.9, -4.0, -3.9])
    assert (found.chosen, found.right, found.chosen_normalised, found.right_normalised) == ("A", False, "B", True)


@pytest.mark.parametrize(("strip", "expected"), [(True, "\\boxed{3}"), (False, "<think>\\boxed{4}</think>\\boxed{3}")])
def test_thoughts_are_no_answer_where_they_are_stripped(made, monkeypatch, verifier, strip, expected):
    """A policy that always says the same."""
    import torch

    tokenizer = model_files.load_tokenizer(made / "pretrained")
    said = tokenizer("<think>\\boxed{4}</think>\\boxed{3}", add_special_tokens=False)["input_ids"]
    mask = torch.ones(1, len(said), dtype=torch.bool)
    batch = SimpleNamespace(mask=mask, ended=torch.tensor([False]), responses=lambda: [said])
    monkeypatch.setattr(answering.rollouts, "sample_rollouts", lambda *_, **__: iter([batch]))
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=None))
    sampling = AnswerSampling(seed=0, samples=0, temperature=1.0, max_new_tokens=9, batch_size=1, strip_thinking=strip)
    [row] = answering.answer_and_score_problems(
        SUITES["math500"], model, tokenizer, [ONE], [], sampling, verifier
    ).to_dict("records")
    assert (row["response"], row["extracted"], row["right"]) == (expected, "3", True)
