"""The stage bc: every share of the trajectories is cloned separately, with discrete and with continuous actions."""

import numpy as np
import pytest
import torch

from tasks.offline import bc
from tasks.offline.datasets import dataset_files
from tasks.offline.datasets.dataset_files import ScoreReference
from tasks.offline.datasets.episodes import Episode
from tasks.offline.policies import kinds
from tests.tasks.offline.worlds import record

CONFIG = bc.BcConfig(
    datasets=[],
    seeds=[0],
    shares={"BC": 1.0, "10%BC": 0.1},
    hidden=[8],
    steps=60,
    batch_size=32,
    learning_rate=0.03,
    relabel="none",
    log_every=30,
    evaluate_every=2,
    evaluate_episodes=1,
    bfloat16=False,
)
STATES = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).mul(0.1)


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pushing(action, steps, rng):
    """An episode of CartPole in which only one action was ever taken."""
    ends = np.arange(1, steps + 1) == steps
    return Episode(
        rng.normal(0, 0.1, (steps + 1, 4)).astype(np.float32),
        np.full(steps, action),
        np.ones(steps, dtype=np.float32),
        ends,
        np.zeros(steps, dtype=bool),
    )


def test_the_best_tenth_is_cloned_by_itself(tmp_path):
    """Nine short episodes push to the left, the longest one to the right: the best data differ from most of the
    data.
    """
    rng = np.random.default_rng(0)
    played = [pushing(0, 5, rng) for _ in range(9)] + [pushing(1, 20, rng)]
    dataset_files.write_offline_dataset(tmp_path / "data", "CartPole-v1", played, ScoreReference(5, 20), {})
    metrics = bc.run(CONFIG, tmp_path / "data", tmp_path / "out")
    acts = {
        name: kinds.load_policy_of_any_kind(tmp_path / "out" / name / "seed-0").act(STATES) for name in CONFIG.shares
    }
    assert acts["BC"].float().mean() < 0.3
    assert acts["10%BC"].float().mean() == 1
    assert metrics["10%BC"]["accuracy"] == 1
    assert metrics["BC"]["accuracy"] == pytest.approx(45 / 65, abs=0.1)


def test_continuous_actions_are_cloned_as_their_mean(tmp_path):
    record(tmp_path / "data", "Pendulum-v1", 2)
    metrics = bc.run(CONFIG, tmp_path / "data", tmp_path / "out")
    actions = kinds.load_policy_of_any_kind(tmp_path / "out/BC/seed-0").act(STATES[:, :3])
    assert actions.shape == (50, 1)
    assert actions.abs().max() < 1
    uniform = 1 / 3  # the variance of what random play does
    assert metrics["BC"]["loss"] == pytest.approx(uniform, rel=0.2)
