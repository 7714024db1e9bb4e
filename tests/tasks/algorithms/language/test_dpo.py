from math import exp, log, log1p, sqrt

import pytest
import torch

from tasks.algorithms.language import dpo, rollouts
from tasks.algorithms.language.completions import compute_response_logps, compute_token_logps
from tasks.algorithms.language.dpo import MarginLoss
from tasks.algorithms.language.pairs import NO_LEVEL, Pairs
from tests.tasks.bandits import Table
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import completions, gpt2, llama

# log pi and log pi_ref of two chosen responses, then of two rejected ones, and the number of tokens of each.
LOGPS = torch.tensor([-5.0, -9.0, -7.0, -6.0])
KNOWN = torch.tensor([-6.0, -8.0, -6.5, -8.5])
LENGTHS = torch.tensor([2, 4, 5, 1])
BETA = 0.2


def objective(loss="sigmoid", **changes):
    return MarginLoss(
        loss,
        **{
            "beta": BETA,
            "label_smoothing": 0.0,
            "gamma": 0.0,
            "length_normalised": loss == "simpo",
            "nll": 0.0,
            **changes,
        },
    )


def losses(asked, logps=LOGPS, known=KNOWN, lengths=LENGTHS):
    """The losses of both pairs, with the parts combined as in `fit`."""
    scores = asked.scores(logps, known if asked.needs_reference else None, lengths)
    return asked.losses(scores[:2] - scores[2:])


def cost(margin):
    """-log sigmoid, by another formula."""
    return log1p(exp(-margin))


DPO = objective()
CONSERVATIVE = objective(label_smoothing=0.1)
NORMALISED = objective(length_normalised=True)
IPO = objective("ipo")
NORMALISED_IPO = objective("ipo", length_normalised=True)
SIMPO = objective("simpo", gamma=0.3)
# Scores: sums 1 and -1 against -0.5 and 2.5; means 0.5 and -0.25 against -0.1 and 2.5; SimPO's -2.5 and -2.25 against
# -1.4 and -6. A difference of 2.5 is IPO's aim at this beta.
BY_HAND = {
    DPO: [cost(0.2 * 1.5), cost(0.2 * -3.5)],
    CONSERVATIVE: [0.9 * cost(0.3) + 0.1 * cost(-0.3), 0.9 * cost(-0.7) + 0.1 * cost(0.7)],
    NORMALISED: [cost(0.2 * 0.6), cost(0.2 * -2.75)],
    IPO: [1.0**2, 6.0**2],
    NORMALISED_IPO: [1.9**2, 5.25**2],
    SIMPO: [cost(0.2 * -1.1 - 0.3), cost(0.2 * 3.75 - 0.3)],
}


@pytest.mark.parametrize("asked", BY_HAND, ids=str)
def test_losses_by_hand(asked):
    assert losses(asked).tolist() == pytest.approx(BY_HAND[asked], rel=1e-5)


SWAPPED = [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (DPO, losses(DPO, LOGPS[SWAPPED], KNOWN[SWAPPED])),  # chosen and rejected swapped
        (DPO, losses(DPO, known=KNOWN[SWAPPED])),  # the references swapped
        (DPO, losses(DPO, known=0 * KNOWN)),  # no reference
        (DPO, losses(objective(beta=1.0))),  # beta forgotten
        (DPO, losses(objective(beta=1 / BETA))),
        (DPO, losses(NORMALISED)),  # the mean over tokens in place of the sum
        (NORMALISED, losses(NORMALISED, lengths=torch.tensor(5))),  # over padding too
        (NORMALISED, losses(NORMALISED, lengths=LENGTHS[SWAPPED])),  # over the other's tokens
        (CONSERVATIVE, losses(DPO)),  # smoothing ignored
        (CONSERVATIVE, losses(objective(label_smoothing=0.9))),  # the share of right labels in place of the wrong
        (CONSERVATIVE, (0.9 * losses(DPO) - 0.1 * losses(DPO, LOGPS[SWAPPED], KNOWN[SWAPPED])) / 0.8),  # robust DPO
        (IPO, losses(objective("ipo", beta=1 / BETA))),  # the aim is 1 / (2 beta), not beta / 2
        (IPO, losses(objective("ipo", beta=BETA / 2))),  # nor 1 / beta
        (IPO, losses(NORMALISED_IPO)),
        (NORMALISED_IPO, losses(NORMALISED_IPO, lengths=torch.tensor(5))),
        (SIMPO, losses(objective("simpo", gamma=-0.3))),  # the margin added, not subtracted
        (SIMPO, losses(objective("simpo", gamma=0.3 * BETA))),  # the margin inside beta's bracket
        (SIMPO, losses(objective("simpo"))),
        (SIMPO, losses(objective("simpo", gamma=0.3, length_normalised=False))),
        (
            SIMPO,
            SIMPO.losses(NORMALISED.scores(LOGPS, KNOWN, LENGTHS)[:2] - NORMALISED.scores(LOGPS, KNOWN, LENGTHS)[2:]),
        ),
    ],
)
def test_known_mistakes_give_another_loss(right, wrong):
    assert (wrong - torch.tensor(BY_HAND[right])).abs().min() > 0.01


def test_gradient_by_hand():
    """beta * sigmoid(-margin) on the chosen, the opposite on the rejected, nothing on the reference."""
    logps, known = LOGPS.clone().requires_grad_(), KNOWN.clone().requires_grad_()
    losses(DPO, logps, known).sum().backward()
    pull = [-0.2 / (1 + exp(0.3)), -0.2 / (1 + exp(-0.7))]
    assert logps.grad.tolist() == pytest.approx([*pull, -pull[0], -pull[1]])


def pairs_of(responses, chosen, rejected):
    count = len(chosen)
    index = torch.arange(len(responses.tokens))
    level = torch.full((count,), NO_LEVEL)
    return Pairs(responses, index, torch.tensor(chosen), torch.tensor(rejected), torch.ones(count), level)


RESPONSES = completions([[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]], pad=2)


def test_a_step_by_hand():
    """The row of `fit` compared with sums of token log-probabilities; a mean over tokens would differ."""
    model, reference_model = llama(1), llama(2)
    known = dpo.compute_reference_logps(reference_model, [RESPONSES])
    with torch.no_grad():
        logps = compute_token_logps(model, RESPONSES)
        sums, means = logps.sum(1), logps.sum(1) / RESPONSES.mask.sum(1)
    optimizer = make_optimizer(model, 0.001, 1, clip=1.0)
    row = next(dpo.fit(model, [pairs_of(RESPONSES, [0, 2], [1, 1])], optimizer, reference=known, objective=DPO))

    def loss(values):
        ratio = (BETA * (values - known)).tolist()
        return (cost(ratio[0] - ratio[1]) + cost(ratio[2] - ratio[1])) / 2

    assert row["loss"] == pytest.approx(loss(sums), rel=1e-4)
    assert abs(row["loss"] - loss(means)) > 0.02
    change = (sums - known).tolist()
    assert row["logps/chosen_change"] == pytest.approx((change[0] + change[2]) / 2, rel=1e-4)
    assert row["logps/chosen"] == pytest.approx((sums[0] + sums[2]).item() / 2, rel=1e-4)
    assert row["logps/rejected"] == pytest.approx(sums[1].item(), rel=1e-4)
    assert row["rewards/chosen"] == pytest.approx(BETA * (change[0] + change[2]) / 2, rel=1e-4)
    assert row["rewards/rejected"] == pytest.approx(BETA * change[1], rel=1e-4)
    assert row["rewards/margins"] == pytest.approx(row["rewards/chosen"] - row["rewards/rejected"], rel=1e-4)
    assert row["rewards/accuracies"] == ((change[0] > change[1]) + (change[2] > change[1])) / 2


@pytest.mark.parametrize("loss", ["sigmoid", "ipo", "simpo"])
def test_the_likelihood_of_the_chosen_is_added_to_any_loss(loss):
    """A mean over a response's tokens, then over pairs.

    The chosen are 4 and 2 tokens long, so a mean over all tokens would differ.
    """
    pairs = pairs_of(RESPONSES, [1, 2], [0, 0])
    with torch.no_grad():
        sums = compute_response_logps(llama(1), RESPONSES).tolist()
    known = None if loss == "simpo" else dpo.compute_reference_logps(llama(2), [RESPONSES])

    def row(nll):
        optimizer = make_optimizer(model := llama(1), 0.001, 1, clip=1.0)
        return next(dpo.fit(model, [pairs], optimizer, reference=known, objective=objective(loss, nll=nll)))

    plain, added, by_hand = row(0.0), row(0.5), -(sums[1] / 4 + sums[2] / 2) / 2
    assert plain["nll"] == added["nll"] == pytest.approx(by_hand, rel=1e-4)
    assert added["loss"] - plain["loss"] == pytest.approx(0.5 * by_hand, rel=1e-3)
    assert abs(by_hand + (sums[1] + sums[2]) / 6) > 0.001


def alone(model, prompt, response):
    """log pi(response | prompt) of one response by itself, from whole logits."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
    return sum(logits[len(prompt) + at - 1, token].item() for at, token in enumerate(response))


@pytest.mark.parametrize("asked", [CONSERVATIVE, NORMALISED, NORMALISED_IPO, SIMPO], ids=str)
def test_a_padded_batch_is_its_responses_one_by_one(asked):
    """Padding is the end token here, so code that counts or sums padding, or leaves out the end token, is wrong."""
    prompts, responses = [[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]]
    logps, known = (
        torch.tensor([alone(llama(seed), p, r) for p, r in zip(prompts, responses, strict=True)]) for seed in (1, 2)
    )
    scores = asked.scores(logps, known if asked.needs_reference else None, torch.tensor([2, 4, 2]))
    expected = asked.losses(scores[[0, 2]] - scores[[1, 1]]).mean().item()
    optimizer = make_optimizer(model := llama(1), 0.001, 1, clip=1.0)
    reference = dpo.compute_reference_logps(llama(2), [RESPONSES]) if asked.needs_reference else None
    row = next(dpo.fit(model, [pairs_of(RESPONSES, [0, 2], [1, 1])], optimizer, reference=reference, objective=asked))
    assert row["loss"] == pytest.approx(expected, rel=1e-4)
    assert row["rewards/margins"] == pytest.approx(BETA * (scores[[0, 2]] - scores[[1, 1]]).mean().item(), rel=1e-3)
    assert ("logps/chosen_change" in row) == asked.needs_reference


def test_it_starts_at_log_two_with_dropout_off():
    """The policy is its own reference at first, so with dropout off in both every ratio is exactly one."""
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5).train()
    known = dpo.compute_reference_logps(model, [RESPONSES])
    model.train()
    optimizer = make_optimizer(model, 0.001, 1, clip=1.0)
    row = next(dpo.fit(model, [pairs_of(RESPONSES, [0], [1])], optimizer, reference=known, objective=DPO))
    assert row["loss"] == pytest.approx(log(2), abs=1e-6)
    assert row["logps/chosen_change"] == pytest.approx(0, abs=1e-5)
    dropped = compute_response_logps(model.train(), RESPONSES)
    assert (dropped - compute_response_logps(model.eval(), RESPONSES)).abs().max() > 0.1, "dropout would show"


def test_references_are_found_by_their_place_in_the_whole_set():
    model = llama(1)
    known = dpo.compute_reference_logps(model, [RESPONSES])
    part = completions([[5], [3, 4]], [[6, 2], [8, 9, 10, 2]], pad=2)
    level = torch.tensor([NO_LEVEL])
    pairs = Pairs(part, torch.tensor([2, 1]), torch.tensor([0]), torch.tensor([1]), torch.ones(1), level)
    row = next(dpo.fit(model, [pairs], make_optimizer(model, 0.001, 1, clip=1.0), reference=known, objective=DPO))
    assert row["loss"] == pytest.approx(log(2), abs=1e-5), "every ratio is one only with each response's own reference"


def test_references_are_made_batch_by_batch_in_order():
    model = llama(1)
    halves = [completions([[3, 4]], [[7, 2]], pad=2), completions([[3, 4], [5]], [[8, 9, 10, 2], [6, 2]], pad=2)]
    torch.testing.assert_close(
        dpo.compute_reference_logps(model, halves),
        dpo.compute_reference_logps(model, [RESPONSES]),
        rtol=1e-4,
        atol=1e-5,
    )
    assert not dpo.compute_reference_logps(model, halves).requires_grad


A, B = 1, 2


def share_of_a(model):
    """Of the answers A and B to the prompt 0, the share of A among 4,000 samples."""
    drawn = rollouts.sample_rollouts(
        model, [[0]], samples=4000, max_new_tokens=1, temperature=1.0, end_tokens=[], seed=0, batch_size=1
    )
    tokens = next(iter(drawn)).tokens[:, 0]
    return ((tokens == A).sum() / ((tokens == A) | (tokens == B)).sum()).item()


THREE_IN_FOUR = ([0, 0, 0, 1], [1, 1, 1, 0])  # A preferred three times in four, so the odds are 3
ALWAYS = ([0], [1])


def bandit(asked, preferred, other, *, steps=110):
    """Fit a policy that is a table to preferences between the answer A and `other`.

    Returns the difference of their scores in the end, the rows, and the share of A among samples before and after.
    """
    model = Table(1, spread=0.3)
    answers = completions([[0], [0]], [[A], other], pad=3)
    known = dpo.compute_reference_logps(model, [answers])
    before, optimizer = share_of_a(model), make_optimizer(model, 0.25, steps, clip=1.0)
    reference = known if asked.needs_reference else None
    batches = [pairs_of(answers, *preferred)] * steps
    rows = list(dpo.fit(model, batches, optimizer, reference=reference, objective=asked))
    scores = asked.scores(dpo.compute_reference_logps(model, [answers]), reference, answers.mask.sum(1))
    return (scores[0] - scores[1]).item(), rows, before, share_of_a(model)


@pytest.mark.parametrize(
    ("changes", "optimum"),
    [
        # A tenth of the labels flipped: 0.7.
        ({"loss": "sigmoid", "label_smoothing": 0.1, "length_normalised": True}, log(0.7 / 0.3) / 0.5),
        ({"loss": "ipo", "beta": 0.125, "length_normalised": True}, (0.75 - 0.25) / (2 * 0.125)),
        ({"loss": "simpo", "gamma": 0.5}, log(exp(0.5) + sqrt(exp(1.0) + 3)) / 0.5),
    ],
    ids=str,
)
def test_a_bandit_ends_at_the_closed_form(changes, optimum):
    """It ends where the derivative of 3 l(d) + l(-d) is zero.

    For DPO that is the policy pi_ref exp(r / beta) / Z, r being the log-odds.
    """
    asked = objective(**{"beta": 0.5, **changes})
    difference, rows, before, after = bandit(asked, THREE_IN_FOUR, [B, B] if asked.length_normalised else [B])
    assert difference == pytest.approx(optimum, abs=0.02)
    assert after > before + 0.15, "A is drawn more often than by the untrained policy"
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_dpo_ends_at_the_entropy_of_the_choices():
    """The probability of A is pi_ref exp(r / beta) / Z, in samples too, and the loss is the entropy of the choices."""
    difference, rows, before, after = bandit(objective(beta=0.5), THREE_IN_FOUR, [B])
    assert difference == pytest.approx(log(3) / 0.5, abs=0.02)
    assert after > before + 0.15, "A is drawn more often than by the untrained policy"
    assert after == pytest.approx(1 / (1 + exp(-difference) * (1 - before) / before), abs=0.03)
    assert rows[0]["loss"] == pytest.approx(log(2), abs=1e-5)
    assert rows[-1]["loss"] == pytest.approx(-0.75 * log(0.75) - 0.25 * log(0.25), abs=0.001)


@pytest.mark.slow
def test_without_a_dissenting_label_ipo_stops_and_dpo_does_not():
    """That is IPO's purpose: if a preference always holds, DPO's optimum is infinitely far from its reference."""
    assert bandit(objective("ipo", beta=0.5), ALWAYS, [B])[0] == pytest.approx(1.0, abs=0.02)
    assert bandit(objective(beta=0.5), ALWAYS, [B])[0] > 3.0
    smoothed = bandit(objective(beta=0.5, label_smoothing=0.1), ALWAYS, [B])[0]
    assert smoothed == pytest.approx(log(9) / 0.5, abs=0.1)


def test_the_margin_grows():
    model = llama(1, num_hidden_layers=1)
    known = dpo.compute_reference_logps(model, [RESPONSES])
    pairs = pairs_of(RESPONSES, [0, 2], [1, 1])
    rows = list(dpo.fit(model, [pairs] * 8, make_optimizer(model, 0.005, 8, clip=1.0), reference=known, objective=DPO))
    assert rows[0]["rewards/margins"] == pytest.approx(0, abs=1e-5)
    assert rows[-1]["rewards/margins"] > 0.5
    assert rows[-1]["rewards/accuracies"] == 1
    assert rows[-1]["logps/chosen"] - rows[-1]["logps/chosen_change"] == pytest.approx(
        rows[0]["logps/chosen"], rel=1e-4
    )
