"""Logistic regression against scikit-learn's, and a case by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.extensions.reviews.algorithms.logistic_regression import fit_logistic_regression


def test_one_feature_by_hand():
    """Features 1 and -1 with their own labels: w solves 2 sigmoid(-w) = l2 w, and the bias is 0 by symmetry."""
    weights, bias = fit_logistic_regression(torch.tensor([[1.0], [-1.0]]), torch.tensor([True, False]), 0.5)
    weight = weights.item()
    assert 2 / (1 + math.exp(weight)) == pytest.approx(0.5 * weight, rel=1e-6)
    assert bias.item() == pytest.approx(0.0, abs=1e-6)


def test_without_features_the_bias_is_the_log_odds():
    """The bias has no penalty: three of four are positive."""
    weights, bias = fit_logistic_regression(torch.zeros(4, 1), torch.tensor([True, True, True, False]), 100.0)
    assert weights.item() == pytest.approx(0.0, abs=1e-9)
    assert bias.item() == pytest.approx(math.log(3), rel=1e-5)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.floats(0.05, 5.0))
def test_scikit_learn_finds_the_same(seed, l2):
    from sklearn import linear_model

    rng = np.random.default_rng(seed)
    features = (rng.random((40, 12)) < 0.3).astype(float)
    labels = rng.random(40) < 1 / (1 + np.exp(-features @ rng.normal(size=12)))
    labels[:2] = True, False
    sparse = torch.from_numpy(features).to_sparse()
    weights, bias = fit_logistic_regression(sparse, torch.from_numpy(labels), l2)
    other = linear_model.LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000).fit(features, labels)
    np.testing.assert_allclose(weights.numpy(), other.coef_[0], atol=1e-4)
    assert bias.item() == pytest.approx(other.intercept_[0], abs=1e-4)
