from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.algorithms.language.kl import ESTIMATORS, AdaptiveKl, compute_kl_slopes, k1, k2, k3

P, Q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
KL = 0.5 * log(0.5 / 0.2) + 0.2 * log(0.2 / 0.5)


def test_estimators_by_hand():
    logps, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    assert k1(logps, reference).tolist() == [0.5, -1.0]
    assert k2(logps, reference).tolist() == [0.125, 0.5]
    assert k3(logps, reference).tolist() == pytest.approx([exp(-0.5) + 0.5 - 1, exp(1.0) - 1.0 - 1])


def test_slopes_by_hand():
    logps, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    assert compute_kl_slopes("k1", logps, reference).tolist() == [1.0, 1.0]
    assert compute_kl_slopes("k2", logps, reference).tolist() == [0.5, -1.0]
    assert compute_kl_slopes("k3", logps, reference).tolist() == pytest.approx([1 - exp(-0.5), 1 - exp(1.0)])


def test_k1_and_k3_are_unbiased():
    """The expectations under P are computed exactly."""
    expected = {kind: (P * kind(P.log(), Q.log())).sum().item() for kind in (k1, k3)}
    assert expected[k1] == pytest.approx(KL, rel=1e-5)
    assert expected[k3] == pytest.approx(KL, rel=1e-5)


def test_k2_is_biased():
    """Its expectation is the KL up to the second order in the log-ratio: close nearby, and not far away."""
    near = (P.log() + 0.01 * torch.tensor([1.0, -2.0, 3.0])).log_softmax(0)
    kl = (P * (P.log() - near)).sum().item()
    assert (P * k2(P.log(), near)).sum().item() == pytest.approx(kl, rel=0.02)
    far = (P * k2(P.log(), Q.log())).sum().item()
    assert far == pytest.approx(0.7 * log(2.5) ** 2 / 2)
    assert far > 1.05 * KL


LOGITS = st.lists(st.floats(-3, 3), min_size=4, max_size=4).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


def gradient(of, logits):
    """The gradient of a function of log pi, pi being a softmax of the logits."""
    logits = logits.clone().requires_grad_()
    [found] = torch.autograd.grad(of(logits.log_softmax(0)), logits)
    return found


@given(LOGITS, LOGITS)
def test_what_each_estimator_s_gradient_is_as_a_loss(policy, reference):
    """Over samples from pi that are held fixed: nothing for k1, that of KL(pi || ref) for k2, that of KL(ref || pi) for
    k3.
    """
    known, drawn = reference.log_softmax(0), policy.softmax(0)
    as_loss = {
        name: gradient(lambda logps, kind=kind: (drawn * kind(logps, known)).sum(), policy)
        for name, kind in ESTIMATORS.items()
    }
    reverse = gradient(lambda logps: (logps.exp() * (logps - known)).sum(), policy)
    forward = gradient(lambda logps: (known.exp() * (known - logps)).sum(), policy)
    torch.testing.assert_close(as_loss["k1"], torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(as_loss["k2"], reverse, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(as_loss["k3"], forward, rtol=1e-9, atol=1e-12)


def test_the_two_divergences_pull_differently():
    """So the test above tells k2 from k3."""
    reverse = gradient(lambda logps: (logps.exp() * (logps - Q.log())).sum(), P.log())
    forward = gradient(lambda logps: (Q * (Q.log() - logps)).sum(), P.log())
    assert (reverse - forward).abs().max() > 0.05


def test_swapped_arguments_estimate_another_divergence():
    """With the ratio upside down k3's expectation is no longer KL(P || Q)."""
    assert abs((P * k3(Q.log(), P.log())).sum().item() - KL) > 0.03


def test_k3_is_never_negative_and_varies_least():
    values = {kind: kind(P.log(), Q.log()) for kind in (k1, k3)}
    spread = {kind: (P * (value - KL).square()).sum().item() for kind, value in values.items()}
    assert values[k3].min() >= 0 > values[k1].min()
    assert spread[k3] < spread[k1]


def test_the_coefficient_moves_towards_its_target_by_at_most_a_fifth_of_the_rate():
    kl = AdaptiveKl(0.1, target=4.0, rate=0.5)
    kl.update(4.4)
    assert kl.coefficient == pytest.approx(0.1 * (1 + 0.5 * 0.1))
    kl.update(400.0)
    assert kl.coefficient == pytest.approx(0.1 * 1.05 * 1.1)
    kl.update(0.0)
    assert kl.coefficient == pytest.approx(0.1 * 1.05 * 1.1 * 0.9)


def test_without_a_target_it_stays():
    kl = AdaptiveKl(0.1, target=None, rate=0.5)
    kl.update(100.0)
    assert kl.coefficient == 0.1


def test_it_is_resumed_exactly():
    kl = AdaptiveKl(0.1, target=1.0, rate=0.3)
    kl.update(1.1)
    other = AdaptiveKl(0.1, target=1.0, rate=0.3)
    other.load_state_dict(kl.state_dict())
    assert other.coefficient == kl.coefficient
