import pandas as pd
import pytest

from tasks import check
from tasks.common.errors import StageError
from tasks.offline import tabular_q
from tasks.offline.environments import simulators
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tasks.offline.policies import kinds
from tests.tasks.offline.worlds import record

CONFIG = tabular_q.TabularQConfig(datasets=[], gamma=0.99, tolerance=1e-6, states=100, evaluate_episodes=19)


def test_sixty_random_walks_are_enough_for_the_shortest_path_from_every_start(tmp_path):
    walks = record(tmp_path / "graph-60", "graph", 60)
    metrics = tabular_q.run(CONFIG, walks, tmp_path / "out")
    policy = kinds.load_policy_of_any_kind(tmp_path / "out" / "Q-learning" / "seed-0")
    starts = simulators.GRAPH.starts
    played = play_seeded_episodes("graph", wrap_as_player(policy), len(starts), seed=0)
    assert (-played.returns).tolist() == simulators.GRAPH.distances[starts].tolist()
    assert metrics["Q-learning"]["return"] == pytest.approx(simulators.OPTIMA["graph"])
    assert policy.values(played.initial).numpy() == pytest.approx(played.compute_discounted_returns(0.99), abs=1e-4)


def test_slippery_ice_is_crossed_after_watching_random_walks(tmp_path):
    """Random play reaches the other side 1 to 2 times in 100, the optimal policy three times in four."""
    walks = record(tmp_path / "FrozenLake-v1-random", "FrozenLake-v1", 500)
    metrics = tabular_q.run(
        CONFIG.model_copy(update={"evaluate_episodes": 50, "tolerance": 1e-3}), walks, tmp_path / "out"
    )
    assert metrics["Q-learning"]["states"] == 16
    assert metrics["Q-learning"]["return"] > 0.6


def test_the_curve_has_a_row_a_sweep_and_the_same_data_give_the_same_bytes(tmp_path):
    walks = record(tmp_path / "graph-5", "graph", 5)
    for name in ("one", "other"):
        tabular_q.run(CONFIG, walks, tmp_path / name)
    curve, returns = (pd.read_csv(tmp_path / "one" / f"{name}.csv") for name in ("curves", "returns"))
    assert curve["step"].tolist() == list(range(1, len(curve) + 1))
    assert curve["change"].iloc[-1] <= CONFIG.tolerance < curve["change"].iloc[-2]
    assert list(returns.columns) == ["variant", "seed", "step", "return"]
    files = [file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file()]
    assert len(files) == 4
    assert list(check.find_file_problems(tmp_path / "one")) == []
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes() for file in files)


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            "CartPole-v1",
            r"^data set played: \d+ distinct observations, and a table has at most 100 \(tabular_q.states\)",
        ),
        ("Pendulum-v1", r"^data set played: actions are continuous; a table needs a finite set$"),
    ],
)
def test_data_that_no_table_fits_are_refused_in_one_line(environment, line, tmp_path):
    data = record(tmp_path / "played", environment, 6)
    with pytest.raises(StageError, match=line) as error:
        tabular_q.run(CONFIG, data, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
