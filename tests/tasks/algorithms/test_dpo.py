from math import exp, log, log1p

import pytest
import torch

from tasks.algorithms import dpo, rollouts
from tasks.algorithms.completions import response_logps, token_logps
from tasks.algorithms.optimizer import Optimizer
from tasks.algorithms.pairs import Pairs
from tests.tasks.tiny import completions, gpt2, llama

# log pi and log pi_ref of two chosen and two rejected responses.
CHOSEN, REJECTED = torch.tensor([-5.0, -9.0]), torch.tensor([-7.0, -6.0])
KNOWN_CHOSEN, KNOWN_REJECTED = torch.tensor([-6.0, -8.0]), torch.tensor([-6.5, -8.5])
BETA = 0.2


def cost(difference):
    """-log sigmoid, by another route."""
    return log1p(exp(-difference))


BY_HAND = [cost(0.2 * (1.0 + 0.5)), cost(0.2 * (-1.0 - 2.5))]


def test_loss_by_hand():
    """Equation 7: -log sigmoid(beta (log pi_w / ref_w - log pi_l / ref_l))."""
    losses, chosen, rejected = dpo.dpo_loss(CHOSEN, REJECTED, KNOWN_CHOSEN, KNOWN_REJECTED, BETA)
    assert losses.tolist() == pytest.approx(BY_HAND)
    assert chosen.tolist() == pytest.approx([0.2, -0.2])
    assert rejected.tolist() == pytest.approx([-0.1, 0.5])


@pytest.mark.parametrize(
    "arguments",
    [
        (REJECTED, CHOSEN, KNOWN_REJECTED, KNOWN_CHOSEN, BETA),  # chosen and rejected swapped
        (CHOSEN, REJECTED, KNOWN_REJECTED, KNOWN_CHOSEN, BETA),  # the references swapped
        (CHOSEN, REJECTED, 0 * CHOSEN, 0 * CHOSEN, BETA),  # no reference
        (CHOSEN, REJECTED, KNOWN_CHOSEN, KNOWN_REJECTED, 1.0),  # beta forgotten
        (CHOSEN, REJECTED, KNOWN_CHOSEN, KNOWN_REJECTED, 1 / BETA),
    ],
)
def test_known_mistakes_give_another_loss(arguments):
    wrong = dpo.dpo_loss(*arguments)[0]
    assert (wrong - torch.tensor(BY_HAND)).abs().min() > 0.02


def test_gradient_by_hand():
    """beta * sigmoid(-margin) on the chosen, the opposite on the rejected, nothing on the reference."""
    inputs = [value.clone().requires_grad_() for value in (CHOSEN, REJECTED)]
    dpo.dpo_loss(*inputs, KNOWN_CHOSEN, KNOWN_REJECTED, BETA)[0].sum().backward()
    expected = [-0.2 / (1 + exp(0.3)), -0.2 / (1 + exp(-0.7))]
    assert inputs[0].grad.tolist() == pytest.approx(expected)
    assert inputs[1].grad.tolist() == pytest.approx([-value for value in expected])


def pairs_of(responses, chosen, rejected):
    count = len(chosen)
    index = torch.arange(len(responses.tokens))
    strong = torch.zeros(count, dtype=torch.bool)
    return Pairs(responses, index, torch.tensor(chosen), torch.tensor(rejected), torch.ones(count), strong)


RESPONSES = completions([[3, 4], [3, 4], [5]], [[7, 2], [8, 9, 10, 2], [6, 2]], pad=2)


def test_a_step_by_hand():
    """`fit`'s row against sums of token log-probabilities; a mean over tokens would say something else."""
    model, reference_model = llama(1), llama(2)
    known = dpo.reference_logps(reference_model, [RESPONSES])
    with torch.no_grad():
        logps = token_logps(model, RESPONSES)
        sums, means = logps.sum(1), logps.sum(1) / RESPONSES.mask.sum(1)
    optimizer = Optimizer(model, 0.001, 1, clip=1.0)
    row = next(dpo.fit(model, [pairs_of(RESPONSES, [0, 2], [1, 1])], optimizer, reference=known, beta=BETA))

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


def test_it_starts_at_log_two_with_dropout_off():
    """The policy is its own reference at first, so with dropout off in both every ratio is exactly one."""
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5).train()
    known = dpo.reference_logps(model, [RESPONSES])
    model.train()
    optimizer = Optimizer(model, 0.001, 1, clip=1.0)
    row = next(dpo.fit(model, [pairs_of(RESPONSES, [0], [1])], optimizer, reference=known, beta=BETA))
    assert row["loss"] == pytest.approx(log(2), abs=1e-6)
    assert row["logps/chosen_change"] == pytest.approx(0, abs=1e-5)
    dropped = response_logps(model.train(), RESPONSES)
    assert (dropped - response_logps(model.eval(), RESPONSES)).abs().max() > 0.1, "dropout would show"


def test_references_are_found_by_their_place_in_the_whole_set():
    model = llama(1)
    known = dpo.reference_logps(model, [RESPONSES])
    part = completions([[5], [3, 4]], [[6, 2], [8, 9, 10, 2]], pad=2)
    strong = torch.zeros(1, dtype=torch.bool)
    pairs = Pairs(part, torch.tensor([2, 1]), torch.tensor([0]), torch.tensor([1]), torch.ones(1), strong)
    row = next(dpo.fit(model, [pairs], Optimizer(model, 0.001, 1, clip=1.0), reference=known, beta=BETA))
    assert row["loss"] == pytest.approx(log(2), abs=1e-5), "every ratio is one only with each response's own reference"


def test_references_are_made_batch_by_batch_in_order():
    model = llama(1)
    halves = [completions([[3, 4]], [[7, 2]], pad=2), completions([[3, 4], [5]], [[8, 9, 10, 2], [6, 2]], pad=2)]
    torch.testing.assert_close(
        dpo.reference_logps(model, halves), dpo.reference_logps(model, [RESPONSES]), rtol=1e-4, atol=1e-5
    )
    assert not dpo.reference_logps(model, halves).requires_grad


A, B = 1, 2


def share_of_a(model):
    """Of the answers A and B to the prompt 0, the share of A among 4,000 samples."""
    drawn = rollouts.sample(
        model, [[0]], samples=4000, max_new_tokens=1, temperature=1.0, end_tokens=[], seed=0, batch_size=1
    )
    tokens = next(iter(drawn)).tokens[:, 0]
    return ((tokens == A).sum() / ((tokens == A) | (tokens == B)).sum()).item()


def test_a_bandit_ends_at_the_closed_form():
    """Two answers, A preferred three times in four, so r_A - r_B = log 3. The best policy is pi_ref exp(r / beta) / Z."""
    model, beta = llama(vocab_size=4, initializer_range=0.1), 0.5
    answers = completions([[0], [0]], [[A], [B]], pad=3)
    known = dpo.reference_logps(model, [answers])
    before = share_of_a(model)
    optimum = (known[0] - known[1] + log(3) / beta).sigmoid().item()
    pairs = pairs_of(answers, [0, 0, 0, 1], [1, 1, 1, 0])
    rows = list(dpo.fit(model, [pairs] * 150, Optimizer(model, 0.003, 150, clip=1.0), reference=known, beta=beta))
    now = dpo.reference_logps(model, [answers])
    assert (now[0] - now[1]).sigmoid().item() == pytest.approx(optimum, abs=0.005)
    assert share_of_a(model) == pytest.approx(optimum, abs=0.03)
    assert share_of_a(model) > before + 0.2
    assert rows[-1]["loss"] == pytest.approx(-0.75 * log(0.75) - 0.25 * log(0.25), abs=0.001), (
        "the entropy of the choices"
    )
    assert rows[0]["loss"] == pytest.approx(log(2), abs=1e-5)


def test_the_margin_grows():
    model = llama(1)
    known = dpo.reference_logps(model, [RESPONSES])
    pairs = pairs_of(RESPONSES, [0, 2], [1, 1])
    rows = list(dpo.fit(model, [pairs] * 20, Optimizer(model, 0.002, 20, clip=1.0), reference=known, beta=BETA))
    assert rows[0]["rewards/margins"] == pytest.approx(0, abs=1e-5)
    assert rows[-1]["rewards/margins"] > 0.5
    assert rows[-1]["rewards/accuracies"] == 1
    assert rows[-1]["logps/chosen"] - rows[-1]["logps/chosen_change"] == pytest.approx(
        rows[0]["logps/chosen"], rel=1e-4
    )
