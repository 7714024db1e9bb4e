from math import exp

import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tasks.algorithms.language.grpo import grpo_loss
from tasks.algorithms.language.policy_gradient import (
    LOG_RATIO_LIMIT,
    Totals,
    aggregate_loss,
    clipped_policy_loss,
    compute_capped_importance_weights,
)

AGGREGATIONS = ["grpo", "bnpo", "dr_grpo", "dapo"]
LOW, HIGH = 0.2, 0.3

# Ratios of two responses with advantages 2 and -2; what is past the second's end is padding.
RATIOS = [[1.5, 0.5, 1.1], [1.5, 0.5, 7.0]]
MASK = torch.tensor([[True, True, True], [True, True, False]])
ADVANTAGES = torch.tensor([2.0, -2.0])
EACH = ADVANTAGES.unsqueeze(1)
OLD = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -4.0, -1.0]])
LOGPS = OLD + torch.tensor(RATIOS).log()
# A good token gains nothing above 1.3, a bad one nothing below 0.8; the other two sides are not clipped.
LOSSES = [[-2 * 1.3, -2 * 0.5, -2 * 1.1], [2 * 1.5, 2 * 0.8, 2 * 7.0]]
CLIPPED = [[True, False, False], [False, True, False]]


def losses(logps=LOGPS, old=OLD, advantages=EACH, low=LOW, high=HIGH):
    return clipped_policy_loss(logps, old, advantages, low, high)[0]


def test_policy_loss_by_hand():
    values, acts = clipped_policy_loss(LOGPS, OLD, EACH, LOW, HIGH)
    torch.testing.assert_close(values, torch.tensor(LOSSES))
    assert acts.tolist() == CLIPPED
    each = torch.tensor([[1.0, -1.0, 0.0], [-2.0, 3.0, 1.0]])
    expected = torch.tensor([[-1.3, 0.8, 0.0], [3.0, -1.5, -1.3]])
    torch.testing.assert_close(losses(advantages=each), expected, msg="an advantage for each token")


def ratio():
    return (LOGPS - OLD).exp()


@pytest.mark.parametrize(
    "wrong",
    [
        losses(advantages=-EACH),  # the sign turned
        losses(logps=OLD, old=LOGPS),  # the ratio upside down
        losses(low=HIGH, high=LOW),  # the sides exchanged
        losses(high=LOW),  # one clip for both sides
        -ratio() * EACH,  # no clip
        -ratio().clamp(1 - LOW, 1 + HIGH) * EACH,  # always the clipped one
        torch.min(-ratio() * EACH, -ratio().clamp(1 - LOW, 1 + HIGH) * EACH),  # min for max
    ],
)
def test_known_mistakes_give_another_policy_loss(wrong):
    assert (wrong - torch.tensor(LOSSES))[MASK].abs().max() > 0.1


def test_where_the_clip_acts_there_is_no_gradient():
    logps = LOGPS.clone().requires_grad_()
    losses(logps).sum().backward()
    assert (logps.grad == 0).tolist() == CLIPPED
    expected = -torch.tensor(RATIOS) * EACH * ~torch.tensor(CLIPPED)
    torch.testing.assert_close(logps.grad, expected)


def test_a_ratio_out_of_all_bounds_stays_finite():
    """exp(200) is infinite in single precision; with a negative advantage the upper clip does not act."""
    far = torch.tensor([[200.0, -200.0, 0.0]])
    values, acts = clipped_policy_loss(far, torch.zeros(1, 3), torch.tensor([[-1.0]]), LOW, HIGH)
    torch.testing.assert_close(values, torch.tensor([[exp(LOG_RATIO_LIMIT), 0.8, 1.0]]))
    assert acts.tolist() == [[False, True, False]]
    assert exp(LOG_RATIO_LIMIT) < 1e9


VALUES = torch.tensor([[1.0, 2.0, 6.0], [8.0, 2.0, 99.0]])  # 99 is padding
BY_HAND = {
    "grpo": ((1 + 2 + 6) / 3 + (8 + 2) / 2) / 4,
    "dapo": (1 + 2 + 6 + 8 + 2) / 11,
    "dr_grpo": (1 + 2 + 6 + 8 + 2) / (4 * 10),
    "bnpo": (1 + 2 + 6 + 8 + 2) / 5 * 2 / 4,
}
TOTALS = Totals(sequences=4, tokens=11, max_length=10)  # of the whole batch, of which VALUES are a part


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_aggregation_by_hand(how):
    assert aggregate_loss(VALUES, MASK, how, TOTALS).item() == pytest.approx(BY_HAND[how])
    assert len({round(value, 6) for value in BY_HAND.values()}) == 4
    mistakes = [
        (VALUES.sum(1) / MASK.sum(1)).sum() / 4,  # padding in the sum
        ((VALUES * MASK).mean(1)).sum() / 4,  # padding in the count
        (VALUES * MASK).sum(1).div(MASK.sum(1)).mean(),  # the part's size for the batch's
        (VALUES * MASK).sum() / MASK.sum(),
        (VALUES * MASK).sum() / (2 * 10),
        (VALUES * MASK).sum() / (4 * 3),  # the longest here for the longest possible
    ]
    assert all(abs(mistake.item() - BY_HAND[how]) > 0.05 for mistake in mistakes)


@pytest.mark.parametrize(("how", "ratio"), [("grpo", 1 / 4), ("dapo", 1.0), ("dr_grpo", 1.0)])
def test_only_grpo_s_own_aggregation_pushes_a_long_wrong_answer_down_less_at_each_token(how, ratio):
    """Of two equally wrong answers the one of 8 tokens and the one of 2 (Dr. GRPO, arXiv:2503.20783, section 3.1)."""
    logps = torch.zeros(2, 8, requires_grad=True)
    mask = torch.arange(8) < torch.tensor([[8], [2]])
    values, _ = clipped_policy_loss(logps, torch.zeros(2, 8), torch.full((2, 1), -1.0), LOW, HIGH)
    aggregate_loss(values, mask, how, Totals(2, 10, 16)).backward()
    push = logps.grad
    assert push.gt(0).equal(mask), "each token is made less likely"
    assert (push[0, 0] / push[1, 0]).item() == pytest.approx(ratio)


def test_a_response_that_is_masked_whole_counts_nothing():
    mask = torch.tensor([[True, True, True], [False, False, False]])
    for how in AGGREGATIONS:
        assert aggregate_loss(VALUES, mask, how, TOTALS).isfinite()
    assert aggregate_loss(VALUES, mask, "grpo", TOTALS).item() == pytest.approx(3 / 4)


@st.composite
def cuts(draw):
    """A batch of values with its mask, and one way to cut it into parts."""
    rows, columns = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    lengths = torch.tensor([draw(st.integers(1, columns)) for _ in range(rows)])
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(draw(st.integers(0, 999)))).double()
    order = torch.tensor(draw(st.permutations(range(rows))))
    ends = sorted(draw(st.sets(st.integers(1, rows - 1)))) if rows > 1 else []
    return values, torch.arange(columns) < lengths[:, None], order.tensor_split(ends)


@given(cuts(), st.sampled_from(["grpo", "dapo", "dr_grpo"]))
@examples(max_examples=60)
def test_parts_add_up_to_the_whole_under_any_cut(cut, how):
    values, mask, parts = cut
    totals = Totals(len(values), int(mask.sum()), 9)
    shares = sum(aggregate_loss(values[part], mask[part], how, totals).item() for part in parts)
    assert shares == pytest.approx(aggregate_loss(values, mask, how, totals).item(), abs=1e-9)


def test_bnpo_depends_on_the_cut():
    totals = Totals(2, 5, 9)
    parts = sum(aggregate_loss(VALUES[i : i + 1], MASK[i : i + 1], "bnpo", totals).item() for i in range(2))
    assert parts == pytest.approx((9 / 3 + 10 / 2) / 2)
    assert aggregate_loss(VALUES, MASK, "bnpo", totals).item() == pytest.approx(19 / 5)


KNOWN = LOGPS + torch.tensor([[0.5, -0.5, 0.0], [1.0, 0.0, 50.0]])  # the reference; exp(50) is padding


def loss_of(**changes):
    plain = {"clip_low": LOW, "clip_high": HIGH, "aggregation": "dapo", "totals": Totals(2, 5, 9)}
    return grpo_loss(LOGPS, OLD, ADVANTAGES.unsqueeze(1), MASK, **{**plain, **changes})


def test_grpo_loss_by_hand():
    """k3 of log-ratios r is exp(r) - r - 1, added to each token's loss with weight beta."""
    penalty = (exp(0.5) - 1.5) + (exp(-0.5) - 0.5) + 0 + (exp(1) - 2) + 0
    policy = sum(LOSSES[0]) + sum(LOSSES[1][:2])
    loss, sums = loss_of(reference_logps=KNOWN, beta=0.3)
    assert loss.item() == pytest.approx((policy + 0.3 * penalty) / 5, rel=1e-5)
    assert sums["kl"].item() == pytest.approx(penalty, rel=1e-5)
    assert sums["clip_ratio"] == 2
    alone, sums = loss_of()
    assert alone.item() == pytest.approx(policy / 5, rel=1e-5)
    assert "kl" not in sums
    upside_down, _ = grpo_loss(
        LOGPS, OLD, ADVANTAGES.unsqueeze(1), MASK, clip_low=LOW, clip_high=HIGH, aggregation="dapo", totals=Totals(2, 5, 9),  # noqa: E501
        reference_logps=2 * LOGPS - KNOWN, beta=0.3,
    )  # fmt: skip
    assert abs(upside_down.item() - loss.item()) > 0.01
    assert abs(loss_of(reference_logps=KNOWN, beta=-0.3)[0].item() - loss.item()) > 0.01


def test_other_estimators_in_the_loss_by_hand():
    """Log-ratios to the reference are -0.5, 0.5, 0, -1, 0; what is logged is k3 in any case."""
    plain, _ = loss_of()
    for kl, penalty in (("k1", -1.0), ("k2", (0.25 + 0.25 + 1) / 2)):
        loss, sums = loss_of(reference_logps=KNOWN, beta=0.3, kl=kl)
        assert loss.item() == pytest.approx(plain.item() + 0.3 * penalty / 5, rel=1e-5)
        assert sums["kl"] == loss_of(reference_logps=KNOWN, beta=0.3)[1]["kl"]


def test_importance_weights_by_hand():
    trained, sampled = torch.tensor([0.5, 0.1, 0.9, 0.2]).log(), torch.tensor([0.25, 0.4, 0.1, 0.2]).log()
    found = compute_capped_importance_weights(trained.requires_grad_(), sampled, 3.0)
    torch.testing.assert_close(found, torch.tensor([2.0, 0.25, 3.0, 1.0]))
    assert not found.requires_grad
    assert compute_capped_importance_weights(torch.tensor(-1.0), torch.tensor(-999.0), 1e30).isfinite()


def test_weights_are_on_the_reward_s_part_of_the_loss_by_hand():
    weights = torch.tensor([[2.0, 1.0, 0.5], [1.0, 3.0, 9.0]])
    policy = (weights * torch.tensor(LOSSES))[MASK].sum().item()
    assert loss_of(weights=weights)[0].item() == pytest.approx(policy / 5, rel=1e-5)
    penalty = 0.3 * loss_of(reference_logps=KNOWN, beta=0.3)[1]["kl"].item()
    loss, _ = loss_of(weights=weights, reference_logps=KNOWN, beta=0.3)
    assert loss.item() == pytest.approx((policy + penalty) / 5, rel=1e-5), "the KL has none"


def test_weights_make_the_gradient_that_of_the_policy():
    """Exact expectations over one token that a sampler of temperature 0.5 draws, for a policy at temperature 1."""
    logits, advantages = torch.tensor([0.3, -1.0, 1.2, 0.0]), torch.tensor([1.0, 2.0, -0.5, 0.7])
    sampler = (2 * logits).log_softmax(0)

    def gradient(drawn, weights):
        leaf = logits.clone().requires_grad_()
        [found] = torch.autograd.grad((drawn * weights(leaf) * advantages * leaf.log_softmax(0)).sum(), leaf)
        return found

    wanted = gradient(logits.softmax(0), lambda leaf: 1.0)
    corrected = gradient(
        sampler.exp(), lambda leaf: compute_capped_importance_weights(leaf.log_softmax(0), sampler, 100.0)
    )
    torch.testing.assert_close(corrected, wanted)
    assert (gradient(sampler.exp(), lambda leaf: 1.0) - wanted).abs().max() > 0.05
