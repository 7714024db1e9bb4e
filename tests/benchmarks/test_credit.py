"""Bias and noise of gradients: the estimates, by hand and by draws whose moments are known."""

import pytest
import torch

from benchmarks import credit
from benchmarks.credit import Moments


def test_the_moments_of_three_draws_by_hand():
    """Products of different draws: 2, -1 and 1; squared lengths 1, 5 and 2."""
    found = Moments()
    for one in ([1.0, 0.0], [2.0, 1.0], [-1.0, 1.0]):
        found.add(torch.tensor(one))
    assert found.squared_norm_of_mean() == pytest.approx((2 - 1 - 1) / 3)
    assert found.variance() == pytest.approx(8 / 3 - 0)


def test_the_moments_are_those_that_the_draws_have():
    generator = torch.Generator().manual_seed(0)
    found = Moments()
    for _ in range(4000):
        found.add(torch.tensor([3.0, -1.0, 0.5]) + 2.0 * torch.randn(3, generator=generator))
    assert found.squared_norm_of_mean() == pytest.approx(10.25, rel=0.05)
    assert found.variance() == pytest.approx(12.0, rel=0.05)


def test_the_page_has_noise_in_that_of_the_unbiased_kind():
    found = [
        {"total return": (12.0, 0.1), credit.UNBIASED: (6.0, 0.0)},
        {"total return": (9.0, -0.1), credit.UNBIASED: (6.0, 0.0)},
    ]
    lengths = {"8": [{credit.BY_TURN: (4.0, 0.0), credit.BY_EPISODE: (5.0, 0.02)}]}
    told = {"machine": "a machine", "minutes": 2.0}
    page = credit.render({"kinds": {**told, "found": found}, "lengths": {**told, "found": lengths}})
    assert "| total return | 2.00, 1.50 | 0.10, -0.10 |" in page
    assert f"| {credit.UNBIASED} | 1.00, 1.00 | 0.00, 0.00 |" in page
    assert "| 8 | 1.25 | 0.02 |" in page
    assert "expected gradient: 6.00, 6.00." in page
    assert "`python -m benchmarks.credit --part lengths` in 2 minutes on a machine." in page


@pytest.mark.slow
def test_the_command(capsys, monkeypatch):
    """A quick run: what lies before an action is noise to it, and a Q critic that hardly learned is nearly silent."""
    monkeypatch.setattr("sys.argv", ["credit", "--quick"])
    monkeypatch.setattr(credit, "ORCHARDS", (1,))
    credit.main()
    noise = dict[str, dict[str, float]]()
    for line in capsys.readouterr().out.splitlines():
        turns, _, told = line.partition(" turns, clone 0: ")
        if told:
            name, _, numbers = told.partition(": noise ")
            noise.setdefault(turns, {})[name] = float(numbers.partition(",")[0])
    assert [*noise] == ["3"]
    assert [*noise["3"]] == [*credit.build_credit_kinds(1, 2), credit.BY_TURN, credit.BY_EPISODE]
    unbiased = noise["3"][credit.UNBIASED]  # the scale of all is the gradient's length, which three batches do not tell
    assert noise["3"]["Q critic of 2 batches"] / unbiased < 0.5
    assert noise["3"]["total return"] / unbiased > 1
    assert noise["3"][credit.BY_EPISODE] / noise["3"][credit.BY_TURN] > 0.5
