import json

import h5py
import numpy as np
import pytest
from pydantic import ValidationError

from tasks import check
from tasks.common.errors import StageError
from tasks.offline import behaviour, transitions
from tasks.offline.configs.transitions import EpisodeDataset, TransitionsConfig
from tasks.offline.datasets import dataset_files
from tasks.offline.datasets.episodes import make_episode
from tasks.offline.environments import simulators
from tasks.offline.policies import behaviour_folder, files
from tasks.offline.transitions import FIRST_SEED, limit_episodes, run
from tests.tasks.offline.worlds import BRIEFLY, NO_FILES


@pytest.fixture(scope="module")
def home(cart, tmp_path_factory):
    """The outs of `behaviour`: the graph's random policy, and CartPole's from random to expert."""
    home = tmp_path_factory.mktemp("home") / "behaviour"
    for environment in ("graph", "Hopper-v5"):
        behaviour.run(BRIEFLY, NO_FILES, home / environment)
    (home / cart[0].name).symlink_to(cart[0])
    return home


def record(
    home, out, environment, source, *, steps=None, episodes=None, location=None, seed=0, raw=None, references=None
):
    """The stage with one data set, named like the folder `out`."""
    dataset = EpisodeDataset(environment=environment, source=source, location=location, steps=steps, episodes=episodes)
    config = TransitionsConfig(datasets={out.name: dataset}, references=references or {}, path="raw", seed=seed)
    return run(config, home / environment, raw or home, out)


LIMITS = {
    "random": {"steps": 1500},
    "medium": {"steps": 2000},
    "expert": {"steps": 3000},
    "medium-expert": {"steps": 4000},
    "medium-replay": {"steps": 500},
}


@pytest.fixture(scope="module")
def poles(home, tmp_path_factory):
    """CartPole's data sets by their source: a folder each; and the stage's metrics."""
    root = tmp_path_factory.mktemp("poles")
    metrics = {source: record(home, root / source, "CartPole-v1", source, **limit) for source, limit in LIMITS.items()}
    return root, metrics


def test_walks_in_the_graph(home, tmp_path):
    metrics = record(home, tmp_path / "graph-60", "graph", "random", episodes=60)
    found = dataset_files.read_offline_dataset(tmp_path / "graph-60")
    assert metrics["episodes"] == len(found.transitions.lengths) == 60
    assert metrics["steps"] == len(found.transitions)
    assert metrics["return"]["mean"] == pytest.approx(found.transitions.returns.mean().item())
    assert metrics["score"]["mean"] == found.reference.score(metrics["return"]["mean"])
    assert found.reference.maximum == simulators.OPTIMA["graph"]
    assert found.metadata == {
        "source": "random",
        "policies": {"random": files.hash_policy_weights(home / "graph" / "random")},
        "seed": FIRST_SEED,
    }
    assert list(check.find_file_problems(tmp_path)) == []
    nodes, edges = found.transitions.observations.argmax(1), found.transitions.actions
    after = found.transitions.next_observations.argmax(1)
    assert simulators.GRAPH.successors[nodes, edges].tolist() == after.tolist()


def test_sixty_walks_leave_something_to_stitch_and_a_thousand_little(home):
    """The starts with a walk that is a shortest path: few with 60 walks, most with 1,000."""
    optimal, walks = {}, transitions.record_episodes(home / "graph", "random", None, 1000, FIRST_SEED)
    for count in (60, 1000):
        best, taken = set(), set()
        for walk in walks[:count]:
            nodes = walk.observations.argmax(1).tolist()
            taken |= set(zip(nodes[:-1], walk.actions.tolist(), strict=True))
            best |= {(nodes[0], len(walk))} if walk.terminations[-1] else set()
        optimal[count] = sum((s, simulators.GRAPH.distances[s]) in best for s in simulators.GRAPH.starts)
        assert optimal_paths_remain(taken), "dynamic programming over what was seen finds every shortest path"
    assert optimal[60] <= 8
    assert optimal[1000] >= 15


def optimal_paths_remain(taken):
    graph = simulators.GRAPH
    return all(
        any((node, edge) in taken for edge in np.flatnonzero(graph.distances[after] == graph.distances[node] - 1))
        for node, after in enumerate(graph.successors)
        if node != graph.goal
    )


def test_tiers_are_as_good_as_their_policies(home, poles):
    means = {}
    for source in ("random", "medium", "expert"):
        metrics = poles[1][source]
        assert LIMITS[source]["steps"] <= metrics["steps"] < LIMITS[source]["steps"] + 500
        means[source] = metrics["return"]["mean"]
    assert means["random"] < means["medium"] < means["expert"]
    reference = behaviour_folder.read_score_reference(home / "CartPole-v1")
    assert means["random"] == pytest.approx(reference.minimum, rel=0.3)
    assert means["expert"] == pytest.approx(reference.maximum, rel=0.3)


def until(lengths, steps):
    """The first episodes, as many as have so many steps."""
    return lengths[: int(np.searchsorted(np.cumsum(lengths), steps)) + 1]


def test_medium_expert_is_one_half_each(poles):
    medium, expert, both = (
        dataset_files.read_offline_dataset(poles[0] / source) for source in ("medium", "expert", "medium-expert")
    )
    half = LIMITS["medium-expert"]["steps"] // 2
    lengths = [length for tier in (medium, expert) for length in until(tier.transitions.lengths.tolist(), half)]
    assert both.transitions.lengths.tolist() == lengths
    assert set(both.metadata["policies"]) == {"medium", "expert"}


def test_medium_replay_is_training_itself(home, poles):
    replay, found = (
        behaviour_folder.read_replay_episodes(home / "CartPole-v1"),
        dataset_files.read_offline_dataset(poles[0] / "medium-replay"),
    )
    lengths = found.transitions.lengths.tolist()
    assert lengths == [len(one) for one in replay][: len(lengths)]
    assert sum(lengths[:-1]) < 500 <= sum(lengths)


def test_policies_act_by_chance(home, poles):
    """A clone of greedy actions would earn more than the policy itself, so the data must hold sampled actions."""
    data = dataset_files.read_offline_dataset(poles[0] / "medium").transitions
    greedy = behaviour_folder.load_behaviour_policy(home / "CartPole-v1", "medium").act(data.observations)
    assert 0.6 < (greedy == data.actions).float().mean() < 0.99


@pytest.mark.parametrize(("environment", "source"), [("graph", "random"), ("Hopper-v5", "random")])
def test_same_seed_same_bytes(environment, source, home, tmp_path):
    outs = [tmp_path / name / "it" for name in ("one", "same", "other")]
    for out, seed in zip(outs, (0, 0, 1), strict=True):
        record(home, out, environment, source, episodes=2, seed=seed)
    one, same, other = (
        {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*.*") if file.is_file()} for out in outs
    )
    assert len(one) == 3
    assert one == same
    assert one["data/main_data.hdf5"] != other["data/main_data.hdf5"]


def whole(*lengths):
    return [make_episode(np.zeros((n + 1, 1)), np.zeros(n), np.zeros(n), True) for n in lengths]


@pytest.mark.parametrize(
    ("steps", "count", "kept"),
    [(None, None, 4), (None, 2, 2), (1, None, 1), (3, None, 1), (4, None, 2), (9, None, 3), (100, None, 4), (4, 1, 1)],
)
def test_limits_by_hand(steps, count, kept):
    assert len(limit_episodes(whole(3, 4, 2, 5), steps, count)) == kept


def d4rl(path, *, timeouts=True):
    generator = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["observations"] = generator.normal(size=(9, 11))
        file["actions"] = generator.uniform(-1, 1, (9, 3))
        file["rewards"] = np.ones(9)
        file["terminals"] = np.arange(9) == 3
        if timeouts:
            file["timeouts"] = np.arange(9) == 8


def test_a_d4rl_file_below_the_raw_folder(home, tmp_path, capsys):
    d4rl(tmp_path / "it.hdf5")
    metrics = record(home, tmp_path / "hopper-d4rl", "Hopper-v5", "d4rl", location="it.hdf5", raw=tmp_path)
    assert (metrics["episodes"], metrics["steps"], metrics["terminated"], metrics["left_out"]) == (2, 8, 0.5, 1)
    assert capsys.readouterr().err.splitlines() == [
        "transitions: data set hopper-d4rl: 1 of 9 steps are left out: 0 behind the last end, 1 at a cut, where "
        "the observation that follows is not in the file",
        "transitions: data set hopper-d4rl: a D4RL file names no environment: shapes and ranges alone were compared",
    ]
    found = dataset_files.read_offline_dataset(tmp_path / "hopper-d4rl")
    assert found.metadata == {"source": "d4rl", "location": "it.hdf5"}
    assert found.d4rl.score(3234.3) == 100


def test_what_scores_are_measured_between(home, tmp_path, capsys):
    """By behaviour, unless the imported data says it, unless params.yaml does; a return of 2 of 0 to 8 scores 25."""
    record(home, tmp_path / "walks", "graph", "random", episodes=3)
    again = {"location": "walks", "raw": tmp_path}
    metadata = tmp_path / "walks" / dataset_files.METADATA
    said = json.loads(metadata.read_text())
    known = behaviour_folder.read_score_reference(home / "graph")
    for minimum, maximum in ((None, None), (-50.0, 50.0)):
        metadata.write_text(json.dumps(said | {"ref_min_score": minimum, "ref_max_score": maximum}))
        record(home, tmp_path / "again", "graph", "minari", **again)
        reference = dataset_files.read_offline_dataset(tmp_path / "again").reference
        assert (reference.minimum, reference.maximum) == (
            (minimum, maximum) if maximum else (known.minimum, known.maximum)
        )
    scale = {"graph": {"minimum": -8, "maximum": 2}}
    capsys.readouterr()
    metrics = record(home, tmp_path / "again", "graph", "minari", **again, references=scale)
    said = "scores are measured from -8 to 2, as transitions.references says"
    assert capsys.readouterr().err == f"transitions: data set again: {said}\n"
    assert metrics["score"]["mean"] == pytest.approx(10 * (metrics["return"]["mean"] + 8))
    metrics = record(home, tmp_path / "own", "graph", "random", episodes=3, references=scale)
    assert metrics["score"]["best"] == pytest.approx(10 * (metrics["return"]["best"] + 8))


def test_where_nobody_knows_what_a_good_return_is(tmp_path):
    """Then data can be imported that says it, or params.yaml can; steps is 0, since PPO would not learn it."""
    behaviour.run(BRIEFLY, NO_FILES, tmp_path / "Reacher-v5")
    with pytest.raises(StageError, match=r"no good return is known: .*transitions.references.Reacher-v5$"):
        record(tmp_path, tmp_path / "out", "Reacher-v5", "random", episodes=2)
    scale = {"Reacher-v5": {"minimum": -50, "maximum": -5}}
    metrics = record(tmp_path, tmp_path / "out", "Reacher-v5", "random", episodes=2, references=scale)
    assert metrics["score"]["mean"] == pytest.approx((metrics["return"]["mean"] + 50) / 45 * 100)


@pytest.mark.parametrize(
    "scale", [{"minimum": 1, "maximum": 1}, {"minimum": 0}, {"minimum": 0, "maximum": float("inf")}]
)
def test_no_scale(scale):
    with pytest.raises(ValidationError):
        TransitionsConfig(datasets={}, references={"graph": scale}, path="raw", seed=0)


def test_an_episode_that_was_cut_early_is_in_no_return(home, tmp_path):
    """Of costs of 1 a step: one ended after 2, the time limit cut one after 4, and one was cut after a single step."""

    def walk(steps, terminated):
        return make_episode(np.eye(20)[: steps + 1], np.zeros(steps, np.int64), -np.ones(steps), terminated)

    dataset_files.write_offline_dataset(
        tmp_path / "walks",
        "graph",
        [walk(2, True), walk(4, False), walk(1, False)],
        dataset_files.ScoreReference(-10, 0),
        {},
    )
    metrics = record(home, tmp_path / "it", "graph", "minari", location="walks", raw=tmp_path)
    assert (metrics["episodes"], metrics["steps"], metrics["cut_early"]) == (3, 7, 1)
    assert metrics["return"] == {"mean": -3, "best": -2, "worst": -4}


def test_our_own_data_set_can_be_imported_as_minaris(home, tmp_path):
    record(home, tmp_path / "cart-random", "CartPole-v1", "random", episodes=4)
    record(home, tmp_path / "cart-again", "CartPole-v1", "minari", location="cart-random", raw=tmp_path)
    one, same = (dataset_files.read_offline_dataset(tmp_path / name) for name in ("cart-random", "cart-again"))
    assert one.transitions.rewards.tolist() == same.transitions.rewards.tolist()
    assert (one.transitions.observations == same.transitions.observations).all()


def test_bad_input_is_one_clear_line_and_nothing_is_written(home, tmp_path):
    with h5py.File(tmp_path / "it.hdf5", "w") as file:
        file["observations"] = np.zeros((9, 11))
    for arguments, told in (
        ({"source": "d4rl", "location": "it.hdf5"}, "^data set out: it.hdf5: actions: missing"),
        (
            {"source": "d4rl", "location": "no.hdf5"},
            r"^data set out: \S+no.hdf5: no D4RL file: No such file or directory$",
        ),
        (
            {"source": "minari", "location": "no"},
            r"^data set out: \S+no: no Minari data set: No such file or directory$",
        ),
        ({"source": "expert", "steps": 5}, r"no expert policy; branches.behaviour.Hopper-v5.steps is 0\?"),
        ({"source": "medium-replay"}, r"no episodes of training; branches.behaviour.Hopper-v5.steps is 0\?"),
    ):
        with pytest.raises(StageError, match=told):
            record(home, tmp_path / "out", "Hopper-v5", raw=tmp_path, **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "tiers"),
    [("random", []), ("medium", ["medium"]), ("medium-replay", ["medium"]), ("medium-expert", ["expert", "medium"])],
)
def test_a_data_set_is_handed_on_with_the_policies_that_recorded_it(home, poles, source, tiers):
    """The policies' weights are the same, so that learned policies can be compared with them."""
    kept = poles[0] / source / behaviour_folder.RECORDERS
    assert sorted(folder.name for folder in kept.glob("*")) == tiers
    for tier in tiers:
        assert files.hash_policy_weights(kept / tier) == files.hash_policy_weights(home / "CartPole-v1" / tier)
    assert list(check.find_file_problems(poles[0] / source)) == []
