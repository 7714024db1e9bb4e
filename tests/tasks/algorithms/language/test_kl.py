from math import exp, log

import pytest
import torch

from tasks.algorithms.language.kl import AdaptiveKl, k1, k3

P, Q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
KL = 0.5 * log(0.5 / 0.2) + 0.2 * log(0.2 / 0.5)


def test_estimators_by_hand():
    logps, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    assert k1(logps, reference).tolist() == [0.5, -1.0]
    assert k3(logps, reference).tolist() == pytest.approx([exp(-0.5) + 0.5 - 1, exp(1.0) - 1.0 - 1])


def test_k1_and_k3_are_unbiased():
    """The expectations under P are computed exactly."""
    expected = {kind: (P * kind(P.log(), Q.log())).sum().item() for kind in (k1, k3)}
    assert expected[k1] == pytest.approx(KL, rel=1e-5)
    assert expected[k3] == pytest.approx(KL, rel=1e-5)


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
