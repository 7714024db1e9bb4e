"""The benchmark against d3rlpy at toy size runs. tests/oracles/test_d3rlpy.py tests that both sides compute the
same.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import offline, offline_agreement, result_files
from benchmarks import offline_peer as peer
from tasks.offline.datasets.dataset_files import read_offline_dataset
from tests.tasks.offline.worlds import record

ROOT = Path(__file__).parent.parent.parent
with_d3rlpy = pytest.mark.skipif(not Path(os.environ.get(peer.VARIABLE, "none")).is_file(), reason=peer.HOW)


@pytest.mark.slow
@with_d3rlpy
def test_the_command(tmp_path):
    out = tmp_path / "offline.json"
    command = [sys.executable, "-m", "benchmarks.offline", "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line for line in result_files.load_result(out)["page"] if re.match(r"\| \w", line)]
    assert [row.split("|")[1].strip() for row in rows] == [case.name for case in offline.CASES]
    for row, case in zip(rows, offline.CASES, strict=True):
        cells = [cell.strip() for cell in row.split("|")[2:-1]]
        measured = [0, 1, 2, 5, 6, *([3, 4, 7] if case.half else [])]
        assert [number for number, cell in enumerate(cells) if cell] == sorted(measured), row
        assert all(float(cells[number].split()[0]) > 0 for number in measured), row


def test_without_d3rlpy_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv(peer.VARIABLE, "/nowhere/python")
    with pytest.raises(SystemExit, match=r"pip install d3rlpy==2.8.1.*POSTTRAIN_D3RLPY") as raised:
        peer.Peer()
    assert "\n" not in str(raised.value)


def test_a_line_of_the_table():
    case = offline.Case("x", offline.HOPPER, {}, 1, half=True)
    rates = offline.Rates(ours=[3.0, 4.0, 9.0], theirs=[2.0, 2.0, 8.0], half=[6.0], work=5e9)
    speed = offline.Speed(single=1e11, half=2e11)
    expected = "| x | 2.0 (2.0 to 8.0) | 4.0 (3.0 to 9.0) | 2.0 | 6.0 (6.0 to 6.0) | 3.0 | 5.00 | 10.0 | 20.0 |"
    assert offline.format_rates_row(case, rates, speed) == expected
    plain = offline.Rates(ours=[300.0], theirs=[100.0], work=5e8)
    assert offline.format_rates_row(case, plain, speed).endswith("| 300 (300 to 300) | 3.0 |  |  | 0.50 | 2.0 |  |")


def test_products_are_counted_whoever_computes_them():
    """BC with one layer of 8: forward, and backward for the weights alone, of 2 x 16 x (8 x 8 + 8 x 4); backward to the
    hidden layer 2 x 16 x 4 x 8.
    """
    data = offline.make_random_transitions(offline.LUNAR_LANDER, 6)
    settings = {"method": "bc", "hidden": [8], "batch_size": 16, "learning_rate": 0.001}
    products = 2 * 16 * (8 * 8 + 8 * 4)
    assert (
        offline.count_step_flops(offline.Ours(data, offline.LUNAR_LANDER, 0, settings)) == 2 * products + 2 * 16 * 4 * 8
    )


def test_made_up_data_has_the_shape_that_is_said():
    data = offline.make_random_transitions(offline.LUNAR_LANDER, 6)
    assert data.observations.shape == (int(data.lengths.sum()), 8)
    assert data.lengths.min() >= 50
    assert data.lengths.max() <= offline.LONGEST
    ends = data.starts + data.lengths - 1
    assert data.terminated[ends].tolist() == [True, False] * 3
    assert int(data.terminated.sum()) == 3
    assert torch.equal(data.actions.unique(), torch.arange(4))


@pytest.mark.slow
@with_d3rlpy
def test_agreement_plays_what_d3rlpy_has_learnt(one_thread, tmp_path):
    """From the same weights on the same batches both sides end at the same policy, which plays the same episodes."""
    recording = read_offline_dataset(record(tmp_path / "cart", "CartPole-v1", 8))
    settings = offline_agreement.SETTINGS | {"method": "bc"}
    with peer.Peer() as theirs:
        lab = offline_agreement.Lab(recording, 30, 5, theirs, tmp_path)
        mine, its = lab.ours(settings, 0), lab.peers(settings | {"same": True}, 0)
        for ours, weights in zip(mine.parameters(), its.parameters(), strict=True):
            torch.testing.assert_close(ours, weights, rtol=1e-3, atol=1e-5)
        assert lab.score(its) == pytest.approx(lab.score(mine), abs=1)
        own = lab.peers(settings, 0)  # from other weights, on other batches
        assert not torch.allclose(next(own.parameters()), next(mine.parameters()), atol=1e-2)
        cells = offline_agreement.train_and_format_row(
            lab, offline_agreement.Run("BC", "on one side", theirs=None), [0, 1]
        ).split("|")
        assert cells[1:3] == [" BC: on one side ", "  "]
        assert f": {lab.score(mine):.0f}, " in cells[3]
