from math import exp, log, log1p, sqrt
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import pad

from tasks.algorithms.language import reward_model, reward_model_checks
from tasks.algorithms.language.completions import Completions, compute_response_states
from tasks.algorithms.language.pairs import NO_LEVEL, TIED, Pairs
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import BIGRAMS, Bigrams, completions, llama, llama_scorer

# Three pairs of one prompt (C(3, 2) = 3, weight 1/3 each) and one of another.
CHOSEN, REJECTED = torch.tensor([2.0, 1.0, 0.5, -1.0]), torch.tensor([1.0, 0.5, 0.75, 1.0])
WEIGHT = torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0])
MARGIN = torch.tensor([0.5, 0.0, 0.0, 0.5])


NO_MARGINS = (0.0, 0.0, 0.0, 0.0)


def cost(difference):
    """-log sigmoid, by another formula."""
    return log1p(exp(-difference))


BY_HAND = ((cost(0.5) + cost(0.5) + cost(-0.25)) / 3 + cost(-2.5)) / 2
CENTRING = (3.0**2 + 1.5**2 + 1.25**2 + 0.0**2) / 4


def test_loss_by_hand():
    assert reward_model.pair_loss(CHOSEN, REJECTED, WEIGHT, MARGIN, 0.0).item() == pytest.approx(BY_HAND)
    with_centring = reward_model.pair_loss(CHOSEN, REJECTED, WEIGHT, MARGIN, 0.01).item()
    assert with_centring == pytest.approx(BY_HAND + 0.01 * CENTRING)


@pytest.mark.parametrize(
    "arguments",
    [
        (REJECTED, CHOSEN, WEIGHT, MARGIN, 0.0),  # chosen and rejected swapped
        (CHOSEN, REJECTED, torch.ones(4), MARGIN, 0.0),  # a prompt counts as often as it has pairs
        (CHOSEN, REJECTED, WEIGHT, -MARGIN, 0.0),  # the margin added, not subtracted
        (CHOSEN, REJECTED, WEIGHT, 0 * MARGIN, 0.0),
    ],
)
def test_known_mistakes_give_another_loss(arguments):
    assert abs(reward_model.pair_loss(*arguments).item() - BY_HAND) > 0.02


def test_centring_holds_sums_and_not_differences():
    """Scores far from zero cost something, however large their difference; the gradient moves both the same way."""
    chosen = torch.tensor([11.0], requires_grad=True)
    rejected = torch.tensor([9.0], requires_grad=True)
    one = torch.ones(1)
    reward_model.pair_loss(chosen, rejected, one, 0 * one, 0.01).backward()
    pull = 1 / (1 + exp(2.0))
    assert chosen.grad.item() == pytest.approx(-pull + 0.01 * 2 * 20)
    assert rejected.grad.item() == pytest.approx(pull + 0.01 * 2 * 20)


PROMPTS, RESPONSES = [[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]]


def test_scores_are_read_at_the_last_real_token():
    """Padding is the end token, so neither the last column nor the last other token is right."""
    model = llama_scorer()
    batch = completions(PROMPTS, RESPONSES, pad=2)
    scores = reward_model.score_responses(model, batch)
    alone = torch.stack([model(torch.tensor([p + r])).logits[0, 0] for p, r in zip(PROMPTS, RESPONSES, strict=True)])
    torch.testing.assert_close(scores, alone, rtol=1e-4, atol=1e-5)
    hidden = compute_response_states(model.base_model, batch)
    every = model.score(hidden)[:, :, 0]
    last_column = every[:, -1]
    before_end = every[torch.arange(3), batch.mask.sum(1) - 1]
    assert (last_column - scores).abs()[[0, 2]].min() > 0.01
    assert (before_end - scores).abs().min() > 0.01


def test_log_probabilities_by_hand():
    """Beta times the mean over a response's own tokens: longer ones are not worth less."""
    model = Bigrams(BIGRAMS)
    model.config = SimpleNamespace(reward_beta=2.0)
    found = reward_model.score_responses(model, completions([[0], [1, 0]], [[1, 0, 2], [2]], pad=2))
    assert found.tolist() == pytest.approx([2 * (log(0.3) + log(0.1) + log(0.2)) / 3, 2 * log(0.2)])


@pytest.mark.parametrize("kind", ["head", "log_probability"])
def test_padding_changes_neither_score_nor_gradient(kind):
    model = llama_scorer() if kind == "head" else llama()
    if kind == "log_probability":
        model.config.reward_beta = 0.5
    narrow = completions(PROMPTS, RESPONSES, pad=2)
    wide = Completions(
        pad(narrow.prompts, (4, 0), value=2),
        pad(narrow.prompt_mask, (4, 0)),
        narrow.owner,
        pad(narrow.tokens, (0, 4), value=2),
        pad(narrow.mask, (0, 4)),
    )
    found = []
    for batch in (narrow, wide):
        scores = reward_model.score_responses(model, batch)
        model.zero_grad()
        scores.square().sum().backward()
        found.append((scores.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


def ranking(batch, pairs, levels=None):
    """All `pairs` (chosen row, rejected row) of one prompt over the rows of `batch`."""
    chosen, rejected = map(torch.tensor, zip(*pairs, strict=True))
    rows, count = len(batch.tokens), len(pairs)
    level = torch.full((count,), NO_LEVEL) if levels is None else torch.tensor(levels)
    return Pairs(batch, torch.arange(rows), chosen, rejected, torch.full((count,), 1 / count), level)


def gradient(model, pairs):
    scores = reward_model.score_responses(model, pairs.responses)
    zero = torch.zeros(len(pairs.chosen))
    loss = reward_model.pair_loss(scores[pairs.chosen], scores[pairs.rejected], pairs.weight, zero, 0.01)
    model.zero_grad()
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_each_response_once_is_two_rows_a_pair():
    model = llama_scorer()
    pairs = [(0, 1), (0, 2), (1, 2)]
    once = ranking(completions(PROMPTS, RESPONSES, pad=2), pairs)
    rows = [row for pair in pairs for row in pair]
    twice = completions([PROMPTS[row] for row in rows], [RESPONSES[row] for row in rows], pad=2)
    torch.testing.assert_close(
        gradient(model, once), gradient(model, ranking(twice, [(0, 1), (2, 3), (4, 5)])), rtol=1e-4, atol=1e-5
    )


def test_fit_asks_of_each_pair_the_margin_of_its_level():
    model = llama_scorer()
    pairs = ranking(completions(PROMPTS, RESPONSES, pad=2), [(0, 1), (2, 1), (2, 0)], levels=[3, 1, NO_LEVEL])
    a, b, c = reward_model.score_responses(model, pairs.responses).tolist()
    row = next(
        reward_model.fit(
            model,
            [pairs],
            make_optimizer(model, 0.001, 1, clip=1.0),
            margins=(9.0, 0.5, 9.0, 2.0),
            centering=0.0,
            likelihood=0.0,
        )
    )
    assert row["loss"] == pytest.approx((cost(a - b - 2.0) + cost(c - b - 0.5) + cost(c - a)) / 3, rel=1e-4)
    assert row["margin"] == pytest.approx((a - b + c - b + c - a) / 3, rel=1e-4)
    assert row["accuracy"] == pytest.approx(((a > b) + (c > b) + (c > a)) / 3)


def test_a_tied_pair_asks_for_equal_scores():
    """By hand: its loss is least, log 2, where the scores are equal, and the same whichever of the two stands first."""
    one, zero, tied = torch.ones(1), torch.zeros(1), torch.tensor([True])

    def loss(a, b):
        return reward_model.pair_loss(torch.tensor([a]), torch.tensor([b]), one, zero, 0.0, tied=tied).item()

    assert loss(1.5, 1.5) == pytest.approx(log(2))
    assert loss(2.0, 1.5) == loss(1.5, 2.0) == pytest.approx((cost(0.5) + cost(-0.5)) / 2)
    assert loss(2.0, 1.5) > log(2)


def test_fit_counts_a_tie_half_and_asks_no_margin_and_no_likelihood_of_it():
    model = llama()
    model.config.reward_beta = 0.5
    pairs = ranking(completions(PROMPTS, RESPONSES, pad=2), [(0, 1), (2, 1)], levels=[2, TIED])
    a, b, c = reward_model.score_responses(model, pairs.responses).tolist()
    still = make_optimizer(model, 0.001, 1, clip=1.0)
    row = next(reward_model.fit(model, [pairs], still, margins=(9.0,) * 4, centering=0.0, likelihood=3.0))
    tie = (cost(c - b) + cost(b - c)) / 2
    assert row["loss"] == pytest.approx((cost(a - b - 9.0) + tie) / 2 - 3.0 * a / 2 / 0.5, rel=1e-4)
    assert row["margin"] == pytest.approx((a - b) / 2, rel=1e-4)
    assert row["accuracy"] == ((a > b) + 0.5) / 2


def test_the_likelihood_of_chosen_answers_by_hand():
    """Three chosen answers of a prompt weigh 1/3 each, whatever their lengths, since each counts by the mean over its
    tokens.
    """
    pairs = ranking(completions(PROMPTS, RESPONSES, pad=2), [(0, 1), (2, 1), (0, 2)])

    def loss(likelihood):
        model = llama()
        model.config.reward_beta = 0.5
        found = reward_model.score_responses(model, pairs.responses).tolist()
        still = make_optimizer(model, 0.001, 1, clip=1.0)
        return found, next(
            reward_model.fit(model, [pairs], still, margins=NO_MARGINS, centering=0.0, likelihood=likelihood)
        )["loss"]

    (a, _, c), without = loss(0.0)
    _, with_it = loss(3.0)
    assert with_it - without == pytest.approx(-3.0 * (2 * a + c) / 3 / 0.5, rel=1e-4)


def test_the_head_starts_at_one_over_the_root_of_the_width():
    model = llama_scorer(hidden_size=1024, intermediate_size=8, num_hidden_layers=1)
    reward_model.initialise_score_head(model, torch.Generator().manual_seed(0))
    assert model.score.weight.std().item() == pytest.approx(1 / sqrt(1025), rel=0.1)
    first = model.score.weight.clone()
    reward_model.initialise_score_head(model, torch.Generator().manual_seed(0))
    assert torch.equal(first, model.score.weight)


def test_calibration_by_hand():
    """Seen from the higher-scored side: margins 0.1 and -0.2 in the first bin, 2 and 3 in the second."""
    low, high = reward_model_checks.compute_calibration_bins(torch.tensor([3.0, -0.2, 0.1, 2.0]), bins=2)

    def sigmoid(d):
        return 1 / (1 + exp(-d))

    assert low == {"predicted": pytest.approx((sigmoid(0.1) + sigmoid(0.2)) / 2), "observed": 0.5, "pairs": 2}
    assert high == {"predicted": pytest.approx((sigmoid(2) + sigmoid(3)) / 2), "observed": 1.0, "pairs": 2}


def margins(model, pairs):
    """r_w - r_l of each pair."""
    found = reward_model.score_batches(model, [pairs.responses])
    return found[pairs.chosen] - found[pairs.rejected]


def echoes(cases):
    """For each (asked, other), the answer that repeats the question's token is preferred over the other answer."""
    prompts = [[asked] for asked, _ in cases for _ in range(2)]
    answers = [[token, 15] for asked, other in cases for token in (asked, other)]
    rows, one = torch.arange(len(cases)) * 2, torch.ones(len(cases))
    return Pairs(
        completions(prompts, answers, pad=15),
        torch.arange(2 * len(cases)),
        rows,
        rows + 1,
        one,
        torch.full((len(cases),), NO_LEVEL),
    )


def test_it_learns_a_preference_and_a_random_head_has_not():
    """No response is better by itself: each of two tokens wins under the question that it repeats."""
    cases = [(asked, other) for asked in range(14) for other in range(14) if asked != other]
    order = torch.randperm(len(cases), generator=torch.Generator().manual_seed(0)).tolist()
    train, held_out = (echoes([cases[i] for i in part]) for part in (order[:130], order[130:]))
    model = llama_scorer(initializer_range=0.1, num_hidden_layers=1)
    reward_model.initialise_score_head(model, torch.Generator().manual_seed(0))
    untrained = (margins(model, held_out) > 0).float().mean().item()
    assert 0.3 < untrained < 0.7
    rows = list(
        reward_model.fit(
            model,
            [train] * 25,
            make_optimizer(model, 0.02, 25, clip=1.0),
            margins=NO_MARGINS,
            centering=0.01,
            likelihood=0.0,
        )
    )
    assert (margins(model, held_out) > 0).float().mean() > 0.9
    assert rows[-1]["loss"] < log(2) / 2 < rows[0]["loss"]


def test_scores_of_all_batches_in_order():
    model = llama_scorer()
    cases = [(1, 2), (3, 4), (5, 6)]
    apart = reward_model.score_batches(model, [echoes([case]).responses for case in cases])
    torch.testing.assert_close(
        apart, reward_model.score_batches(model, [echoes(cases).responses]), rtol=1e-4, atol=1e-5
    )


def test_beats_corrupted_by_hand(monkeypatch):
    """Scored by the number of tokens, a good answer beats the one cut off, and ties with those of equal length, which
    is no win.
    """
    monkeypatch.setattr(reward_model_checks, "score_responses", lambda _, responses: responses.mask.sum(1).float())
    batch = completions([[3], [3], [4], [4]], [[7, 8, 9, 2], [7, 2], [6, 2], [5, 6, 2]], pad=2)
    pairs = [ranking(batch.rows(torch.tensor(rows)), [(0, 1)]) for rows in ((0, 1), (2, 3))]
    found = reward_model_checks.measure_wins_over_corruptions(
        torch.nn.Linear(1, 1), pairs, 16, torch.Generator().manual_seed(0)
    )
    assert found == {"cut_off": 1.0, "unending": 0.0, "shuffled": 0.0, "random_tokens": 0.0}
