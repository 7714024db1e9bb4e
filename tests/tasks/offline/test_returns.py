import json
from shutil import copytree, rmtree

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.algorithms.offline.networks.actors import Behaviour
from tasks.algorithms.offline.networks.mlp import Preferences, QValues
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common import tables
from tasks.common.errors import StageError
from tasks.offline import returns
from tasks.offline.bc import run as clone
from tasks.offline.configs.bc import BcConfig
from tasks.offline.configs.returns import FittedQConfig, ReturnsConfig
from tasks.offline.datasets import dataset_files
from tasks.offline.datasets.dataset_files import ScoreReference
from tasks.offline.environments.discrete import GRAPH
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tasks.offline.policies import files, kinds
from tasks.offline.reporting import measurements
from tasks.offline.reporting import tables as measured_tables
from tasks.offline.returns import run
from tests.tasks.offline.worlds import record

FITTED = FittedQConfig(
    most_steps=20, seeds=2, tolerance=0.1, batch_size=32, hidden=[8], learning_rate=0.01, target_rate=0.1
)
CONFIG = ReturnsConfig(
    seed=50,
    episodes=6,
    gamma=0.9,
    fitted_q=FITTED,
)
WITHOUT_ESTIMATES = CONFIG.model_copy(update={"fitted_q": FITTED.model_copy(update={"most_steps": 0})})
BC = BcConfig(
    relabel="none",
    datasets=["CartPole-v1-random"],
    seeds=[0, 1],
    steps=20,
    batch_size=32,
    log_every=10,
    evaluate_every=1,
    evaluate_episodes=2,
    bfloat16=False,
    shares={"BC": 1.0, "10%BC": 0.1},
    hidden=[8],
    learning_rate=0.01,
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A cloned policy of CartPole, with its measurements."""
    home = tmp_path_factory.mktemp("returns")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        data = record(home / "transitions" / "CartPole-v1-random", "CartPole-v1", 12, ScoreReference(20.0, 500.0))
        clone(BC, data, home / "bc" / data.name)
        (home / "metrics.json").write_text(
            json.dumps(run(CONFIG, home / "bc" / data.name, data, home / "returns" / "bc-cart"))
        )
    return home


@pytest.fixture(scope="module")
def found(home):
    return measurements.read_return_scores(home / "returns" / "bc-cart")


def test_every_variant_and_seed_plays_whole_episodes(home, found):
    counts = found.episodes.groupby(["variant", "seed"]).size()
    assert counts.to_dict() == {(variant, seed): 6 for variant in BC.shares for seed in BC.seeds}
    assert found.episodes["target"].isna().all()
    policy = kinds.load_policy_of_any_kind(home / "bc" / "CartPole-v1-random" / "10%BC" / "seed-1")
    played = play_seeded_episodes("CartPole-v1", wrap_as_player(policy), 6, 50)
    rows = found.episodes.query("variant == '10%BC' and seed == 1").sort_values("episode")
    assert rows["total"].tolist() == played.returns.tolist()
    assert rows["length"].tolist() == played.lengths.tolist()


def test_metrics_are_means_over_seeds_with_scores(home, found):
    metrics = json.loads((home / "metrics.json").read_text())
    mean = found.episodes.query("variant == 'BC'")["total"].mean()
    assert metrics["BC"]["return"] == pytest.approx(mean)
    assert metrics["BC"]["score"] == pytest.approx(100 * (mean - 20) / 480)
    assert "d4rl_score" not in metrics["BC"]  # D4RL has no CartPole


def test_the_description_tells_of_data_and_cost(home, found):
    recording = dataset_files.read_offline_dataset(home / "transitions" / "CartPole-v1-random")
    described = found.description
    assert described["method"] == "bc"
    assert described["environment"] == "CartPole-v1"
    assert described["reference"] == {"minimum": 20.0, "maximum": 500.0}
    assert described["data"]["mean"] == pytest.approx(recording.transitions.returns.mean().item())
    assert described["data"]["best"] == recording.transitions.returns.max().item()
    parameters = 4 * 8 + 8 + 8 * 2 + 2
    assert described["cost"] == {name: {"steps": 20, "parameters": parameters} for name in BC.shares}


def test_the_picture_shows_the_best_policys_median_episode(found):
    assert found.picture.startswith(b"GIF89a")
    shown = found.description["picture"]
    means = found.episodes.groupby(["variant", "seed"])["total"].mean()
    assert means[shown["variant"], shown["seed"]] == means.max()
    assert shown["target"] is None
    of_best = found.episodes.query(f"variant == {shown['variant']!r} and seed == {shown['seed']}")
    assert shown["return"] == sorted(of_best["total"])[2]


def test_same_policies_same_bytes(home, tmp_path):
    again = tmp_path / "bc-cart"
    run(CONFIG, home / "bc" / "CartPole-v1-random", home / "transitions" / "CartPole-v1-random", again)
    for file in sorted((home / "returns" / "bc-cart").iterdir()):
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name


def test_logits_claim_nothing_and_the_estimate_stands_beside_the_discounted_return(home, found):
    assert set(found.values["source"]) == {measured_tables.FITTED}
    assert (found.values["gamma"] == 0.9).all()
    policy = kinds.load_policy_of_any_kind(home / "bc" / "CartPole-v1-random" / "BC" / "seed-0")
    truth = play_seeded_episodes("CartPole-v1", wrap_as_player(policy), 6, 50).compute_discounted_returns(0.9).mean()
    row = found.values.query("variant == 'BC' and seed == 0").iloc[0]
    assert row["truth"] == pytest.approx(truth)
    assert not row["converged"]
    fits = found.fits.query("variant == 'BC' and seed == 0")
    assert fits["step"].tolist() == [10, 20]
    assert fits["estimate"].mean() == pytest.approx(row["value"])
    assert row["value"] != pytest.approx(truth)  # 20 steps fit nothing


def test_the_policy_that_recorded_the_data_is_played_greedily(home, tmp_path):
    """It is the better of two, in the same episodes as the other policies; without one the results lack it."""
    data = tmp_path / "CartPole-v1-random"
    copytree(home / "transitions" / data.name, data)
    torch.manual_seed(0)
    for tier, gain in (("medium", 0.0), ("expert", 5.0)):
        policy = Behaviour(Spaces(4, 2, discrete=True), [])
        with torch.no_grad():
            policy.layers[-1].weight.copy_(gain * torch.tensor([[0, 0, -3.0, -1], [0, 0, 3, 1]]))  # against the fall
        files.save_policy(policy, data / "behaviour" / tier)
    best = play_seeded_episodes("CartPole-v1", wrap_as_player(policy), 6, 50).returns.mean()
    assert best > 100
    run(WITHOUT_ESTIMATES, home / "bc" / data.name, data, tmp_path / "bc-cart")
    assert measurements.read_return_scores(tmp_path / "bc-cart").description["behaviour"] == {
        "policy": "expert",
        "return": best,
    }


def test_what_nobody_recorded_here_has_no_such_policy(found):
    assert found.description["behaviour"] is None


class Obedient(Preferences):
    """A policy with targets: it pushes the pole over for as many steps as it is asked for, then balances it for a
    while.
    """

    targets = (3.0, 1.0)

    def with_target(self, target):
        return Leaning(target)


class Leaning:
    def __init__(self, target):
        self.target = target

    def begin(self, episodes):
        self.steps = 0

    def act(self, running, observations):
        self.steps += 1
        lean = 3 * observations[:, 2] + observations[:, 3] > 0
        return (lean if self.target < self.steps < 40 + 5 * self.target else ~lean).long()

    def observe(self, running, rewards):
        pass


def kept(path, policy, monkeypatch, kind=None):
    """Write the policy as a method's folder with one variant and seed."""
    if kind:
        monkeypatch.setitem(kinds.BUILDERS, kind.__name__, kind)
    files.save_policy(policy, path / "it" / "seed-0")
    pd.DataFrame({"variant": ["it"], "seed": [0], "step": [7], "loss": [0.5]}).to_csv(
        path / measurements.CURVES, index=False
    )
    pd.DataFrame({"variant": ["it"], "seed": [0], "step": [7], "return": [1.0]}).to_csv(
        path / measurements.PROGRESS, index=False
    )
    return path


def test_every_target_is_played_and_nothing_is_believed_of_a_policy_that_remembers(home, tmp_path, monkeypatch):
    torch.manual_seed(0)
    made = kept(tmp_path / "dt", Obedient(Spaces(4, 2, discrete=True), [8]), monkeypatch, Obedient)
    metrics = run(CONFIG, made, home / "transitions" / "CartPole-v1-random", tmp_path / "bc-cart")
    found = measurements.read_return_scores(tmp_path / "bc-cart")
    assert found.episodes.groupby("target").size().to_dict() == {1.0: 6, 3.0: 6}
    assert list(metrics) == ["it asked for 3", "it asked for 1"]
    assert found.values.empty
    means = found.episodes.groupby("target")["total"].mean()
    assert found.description["picture"]["target"] == means.idxmax()


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return record(tmp_path_factory.mktemp("graph") / "graph-30", "graph", 30, ScoreReference(-10.0, -3.0))


def shortest():
    """Q-values of the graph by dynamic programming, as a network that has them in its weights."""
    policy = QValues(Spaces(20, 3, discrete=True), [], gamma=1.0)
    with torch.no_grad():
        policy.layers[0].weight.copy_(torch.tensor(-1.0 - GRAPH.distances[GRAPH.successors]).T)
        policy.layers[0].bias.zero_()
    return policy


def test_the_graph_is_told_by_start(graph, tmp_path, monkeypatch):
    made = kept(tmp_path / "tabular", shortest(), monkeypatch)
    config = CONFIG.model_copy(update={"episodes": 38})
    run(config, made, graph, tmp_path / "q-graph")
    found = measurements.read_return_scores(tmp_path / "q-graph")
    assert sorted(found.starts["start"]) == list(GRAPH.starts)
    assert (found.starts["total"] == found.starts["optimum"]).all()
    data = dataset_files.read_offline_dataset(graph).transitions
    first = data.observations[data.starts].argmax(1)
    for row in found.starts.to_dict("records"):
        assert row["optimum"] == -GRAPH.distances[row["start"]]
        walks = data.returns[first == row["start"]]
        assert row["recorded"] == walks.max() if len(walks) else np.isnan(row["recorded"])
    claimed = found.values[found.values["source"] == measured_tables.CLAIMED].iloc[0]
    assert claimed["value"] == pytest.approx(claimed["truth"])  # the exact Q claims what is reached
    assert claimed["gamma"] == 1.0  # the policy's own


def test_variants_stand_in_the_order_of_training(found):
    assert list(dict.fromkeys(found.episodes["variant"])) == ["BC", "10%BC"]
    assert list(found.description["cost"]) == ["BC", "10%BC"]


def test_without_a_budget_there_is_no_estimate(home, tmp_path, monkeypatch):
    made = kept(tmp_path / "q", QValues(Spaces(4, 2, discrete=True), [4], gamma=0.9), monkeypatch)
    run(WITHOUT_ESTIMATES, made, home / "transitions" / "CartPole-v1-random", tmp_path / "bc-cart")
    assert set(measurements.read_return_scores(tmp_path / "bc-cart").values["source"]) == {measured_tables.CLAIMED}


def test_only_the_first_seeds_of_each_variant_have_an_estimate(home, tmp_path):
    config = CONFIG.model_copy(update={"fitted_q": FITTED.model_copy(update={"seeds": 1})})
    run(config, home / "bc/CartPole-v1-random", home / "transitions" / "CartPole-v1-random", tmp_path / "bc-cart")
    found = measurements.read_return_scores(tmp_path / "bc-cart")
    assert found.values.groupby("variant")["seed"].apply(list).to_dict() == {"BC": [0], "10%BC": [0]}
    assert set(found.episodes["seed"]) == {0, 1}


def test_a_policy_that_is_missing_is_one_clear_line(home, tmp_path, monkeypatch):
    made = kept(tmp_path / "q", QValues(Spaces(4, 2, discrete=True), [4], gamma=0.9), monkeypatch)
    rmtree(made / "it")
    with pytest.raises(StageError, match="q/it/seed-0: no policy here"):
        run(CONFIG, made, home / "transitions" / "CartPole-v1-random", tmp_path / "bc-cart")


BAD = {
    "twice the same episode": (lambda frame: pd.concat([frame, frame.tail(1)]), "stands once"),
    "no steps": (lambda frame: frame.assign(length=0), "length"),
    "no return": (lambda frame: frame.assign(total=np.nan), "total"),
    "another column": (lambda frame: frame.assign(luck=1.0), "luck"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_episodes_are_refused(what, found, tmp_path):
    spoil, told = BAD[what]
    with pytest.raises(StageError, match=told):
        tables.write_table(measured_tables.PlayedEpisodes, spoil(found.episodes), tmp_path / measured_tables.EPISODES)
    assert not (tmp_path / measured_tables.EPISODES).exists()


def test_better_than_optimal_is_refused():
    row = {"variant": ["it"], "seed": [0], "target": [np.nan], "start": [3], "optimum": [-2.0], "recorded": [-2.0]}
    good = pd.DataFrame({**row, "total": [-2.0]})
    assert len(measured_tables.Starts.validate(good)) == 1
    for bad in (good.assign(total=-1.0), good.assign(recorded=-1.0)):
        with pytest.raises(Exception, match="nothing is better than the optimum"):
            measured_tables.Starts.validate(bad)


def test_bad_values_are_refused():
    numbers = {"gamma": [0.9], "value": [1.0], "converged": [True], "truth": [1.0], "cut": [0.0]}
    good = {"variant": ["it"], "seed": [0], "source": [measured_tables.CLAIMED], **numbers}
    assert len(measured_tables.Values.validate(pd.DataFrame(good))) == 1
    for column, value in (("source", "guessed"), ("gamma", 1.1), ("truth", np.nan), ("cut", 2.0)):
        with pytest.raises(Exception, match=column):
            measured_tables.Values.validate(pd.DataFrame({**good, column: [value]}))


def test_the_stage_measures_at_least_one_episode():
    with pytest.raises(ValueError, match="episodes"):
        returns.ReturnsConfig.model_validate({**CONFIG.model_dump(), "episodes": 0})
