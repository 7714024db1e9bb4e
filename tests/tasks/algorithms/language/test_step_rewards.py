"""Where steps end, and what they and their responses are worth."""

import math
import random
from itertools import chain

import pytest
import torch

from tasks.algorithms.language import reward_model, step_rewards
from tests.tasks.tiny import completions, llama, llama_scorer

# 1 a line break, 2 the end token, 3 a space, 4 a full stop with a line break; all others are words.
BREAKS, BLANKS = [1, 4], [1, 2, 3]


def ends(*responses):
    batch = completions([[9]] * len(responses), [*responses], pad=0)
    found = step_rewards.find_step_ends(batch, BREAKS, BLANKS)
    assert found.shape == batch.mask.shape
    return [row.nonzero().flatten().tolist() for row in found]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ([7, 8, 1, 9, 2], [2, 4]),  # two lines and the end token, which is no step of its own
        ([7, 8, 1, 9, 1, 2], [2, 5]),  # nor is it behind a line break
        ([7, 1, 1, 3, 1, 8, 2], [1, 6]),  # blank lines are no steps
        ([1, 3, 7, 1, 8], [3, 4]),  # nor are those before the first; cut off, without an end token
        ([7, 4, 8, 4, 4, 2], [1, 3, 5]),  # a line may be one token that holds its break
        ([7, 8], [1]),
        ([7, 1], [1]),
        ([7, 1, 1, 1], [3]),
        ([2], [0]),  # an empty answer is one step
        ([1, 1, 2], [2]),
    ],
)
def test_steps_end_with_their_lines(response, expected):
    assert ends(response) == [expected]
    assert ends(response, [7] * 9)[0] == expected, "padding is no part of a response"


def test_the_ends_are_those_of_the_text():
    """Against lines of text: each token has its text, and a step is a line with something in it."""
    texts = {1: "\n", 2: "", 3: " ", 4: ".\n", 5: "a", 6: "b", 7: "\n\n"}
    draw = random.Random(0)
    responses = [draw.choices([1, 3, 4, 5, 6, 7], k=draw.randint(1, 12)) + draw.choice([[], [2]]) for _ in range(300)]
    batch = completions([[9]] * len(responses), responses, pad=0)
    found = step_rewards.find_step_ends(batch, [1, 4, 7], [1, 2, 3, 7])
    for row, response in zip(found, responses, strict=True):
        expected, line = [], ""
        for place, token in enumerate(response):
            line += texts[token]
            if "\n" in line:
                expected += [place] if line.strip() else []
                line = ""
        if line.strip() or not expected:
            expected.append(len(response) - 1)
        expected[-1] = len(response) - 1
        assert row.nonzero().flatten().tolist() == expected, response


def process_scorer(how="minimum", model=None):
    model = model or llama_scorer(num_labels=3)
    for name, value in (("reward_objective", "process"), ("reward_step_score", how), ("reward_breaks", BREAKS)):
        setattr(model.config, name, value)
    model.config.reward_blanks = BLANKS
    return model


PROMPTS, RESPONSES = [[5, 6], [5, 6], [8]], [[7, 8, 1, 9, 2], [7, 1, 10, 1, 11, 12, 2], [13]]


def by_hand(model):
    """P(not bad) of each step, by the whole model on one sequence at a time."""
    found = []
    for prompt, response, at in zip(PROMPTS, RESPONSES, ends(*RESPONSES), strict=True):
        hidden = model.base_model(torch.tensor([prompt + response])).last_hidden_state[0]
        bad = model.score(hidden).softmax(-1)[:, 0]
        found.append([1 - bad[len(prompt) + place].item() for place in at])
    return found


def by_log_probabilities(seed=0):
    """A language model that is a process reward model."""
    model = llama(seed)
    model.config.reward_beta, model.config.reward_threshold = 1.5, 2.0
    return process_scorer(model=model)


def logps_by_hand(model):
    """The log-probability of each token of each response, one sequence at a time."""
    found = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        found.append(logits.log_softmax(-1)[range(len(response)), response].tolist())
    return found


def steps_by_hand(model):
    """P(not bad) of each step by the log-probabilities of its own tokens, in a loop over tokens."""
    found = []
    for logps, at in zip(logps_by_hand(model), ends(*RESPONSES), strict=True):
        own, row = [], []
        for place, logp in enumerate(logps):
            own.append(logp)
            if place in at:
                row.append(1 / (1 + math.exp(-1.5 * (sum(own) / len(own) + 2.0))))
                own = []
        found.append(row)
    return found


def answers_by_hand(model):
    """The known mistake: at the end of each step the mean over the whole answer."""
    means = [sum(logps) / len(logps) for logps in logps_by_hand(model)]
    at = ends(*RESPONSES)
    return [[1 / (1 + math.exp(-1.5 * (mean + 2.0)))] * len(row) for mean, row in zip(means, at, strict=True)]


def test_span_means_by_hand():
    values = torch.tensor([[1.0, 3.0, 5.0, 0.0], [4.0, 8.0, 6.0, 2.0]])
    at = torch.tensor([[False, True, True, False], [False, False, False, True]])
    assert step_rewards.compute_span_means(values, at).tolist() == [2.0, 5.0, 5.0]


def test_the_mean_over_the_answer_would_be_noticed():
    model = by_log_probabilities()
    mistaken, right = (chain.from_iterable(of(model)) for of in (answers_by_hand, steps_by_hand))
    apart = [abs(one - other) for one, other in zip(mistaken, right, strict=True)]
    assert max(apart) > 0.05
    assert apart[-1] == pytest.approx(0), "the last answer is one step"


@pytest.mark.parametrize(("scorer", "by_hand"), [(process_scorer, by_hand), (by_log_probabilities, steps_by_hand)])
def test_step_scores_stand_at_the_ends_of_steps(scorer, by_hand):
    model = scorer()
    scores = step_rewards.score_steps(model, completions(PROMPTS, RESPONSES, pad=0)).detach().clone()
    for number, (expected, at) in enumerate(zip(by_hand(model), ends(*RESPONSES), strict=True)):
        assert scores[number, at].tolist() == pytest.approx(expected, rel=1e-4)
        scores[number, at] = 0
    assert not scores.any()


@pytest.mark.parametrize(
    ("how", "of"),
    [("minimum", min), ("product", lambda steps: torch.tensor(steps).prod().item()), ("last", lambda steps: steps[-1])],
)
def test_a_response_is_worth_what_its_steps_are(how, of):
    model = process_scorer(how)
    scores = reward_model.score_responses(model, completions(PROMPTS, RESPONSES, pad=0))
    assert scores.tolist() == pytest.approx([of(steps) for steps in by_hand(model)], rel=1e-4)


def test_an_outcome_reward_is_a_probability_at_the_last_token():
    model, batch = llama_scorer(), completions(PROMPTS, RESPONSES, pad=0)
    plain = reward_model.score_responses(model, batch)
    model.config.reward_objective = "outcome"
    torch.testing.assert_close(reward_model.score_responses(model, batch), plain.sigmoid())


def test_log_probabilities_give_probabilities_of_answers():
    """The sigmoid of the pairs' score with the threshold added; of steps their least."""
    model, batch = by_log_probabilities(), completions(PROMPTS, RESPONSES, pad=0)
    worst = [min(steps) for steps in steps_by_hand(model)]
    assert reward_model.score_responses(model, batch).tolist() == pytest.approx(worst, rel=1e-4)
    model.config.reward_objective = "outcome"
    expected = [one[0] for one in answers_by_hand(model)]
    assert reward_model.score_responses(model, batch).tolist() == pytest.approx(expected, rel=1e-4)
    del model.config.reward_objective
    plain = reward_model.score_responses(model, batch)
    assert (plain + 1.5 * 2.0).sigmoid().tolist() == pytest.approx(expected, rel=1e-4)


def test_probabilities_of_classes():
    found = step_rewards.compute_class_probabilities(torch.tensor([[0.0], [2.0]]))
    good = 1 / (1 + math.exp(-2))
    assert found.tolist() == [[0.5, 0.0, 0.5], pytest.approx([1 - good, 0.0, good])]
    assert torch.equal(step_rewards.compute_class_probabilities(torch.zeros(1, 3)), torch.full((1, 3), 1 / 3))
