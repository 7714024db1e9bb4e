"""Agents' episodes as a data set of the offline flow: recorded, imported, learned from, and played."""

import json
import re
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest
from pydantic import ValidationError

from tasks.agents import agent_episodes
from tasks.agents.agent_episodes import AgentEpisodesConfig
from tasks.agents.environments import as_gymnasium
from tasks.agents.environments.splits import compute_opening_split
from tasks.agents.playing.minari_export import Transcribed
from tasks.agents.playing.playing import GameEpisode
from tasks.common.errors import ConfigError, DataError
from tasks.offline import bc, behaviour, dqn, returns, transitions
from tasks.offline.datasets import dataset_files, dataset_import
from tasks.offline.environments import simulators
from tests.conftest import PARAMS
from tests.tasks.agents import small

MODULE = "tasks.agents.environments.as_gymnasium"
SHORT = {"seeds": [0], "steps": 10, "batch_size": 32, "log_every": 10, "evaluate_episodes": 2, "hidden": [16]}
FEW = {"episodes": 6}
NO_TRAINING = {"steps": 0, "medium": 0.5, "evaluate_every": 1, "learning_rate": 0.001, "gamma": 0.99, "entropy": 0.0}


@pytest.fixture(scope="module")
def home(cloned, recorded, tmp_path_factory):
    """A folder with the data set `mixed`: 8 of the expert's episodes, then 6 of the clone's."""
    root = tmp_path_factory.mktemp("home")
    small.as_data(cloned, recorded, root / "agent_episodes/mixed", FEW)
    return root


@pytest.fixture(scope="module")
def by_the_expert(cloned, recorded, tmp_path_factory):
    """A data set of the expert's 8 episodes alone, and the stage's metrics."""
    out = tmp_path_factory.mktemp("expert") / "mixed"
    return out, small.as_data(cloned, recorded, out, {"episodes": 0})


@pytest.fixture(scope="module")
def mixed(home):
    return home / "agent_episodes/mixed"


@pytest.fixture(scope="module")
def learned(home, mixed):
    """What the offline flow's stages make of it: data/transitions/mixed and policies."""
    entry = {**NO_TRAINING, "id": f"{MODULE}:{mixed}"}
    section = {**PARAMS["behaviour"], "hidden": [8], "environments": {"rooms": entry}, "environment_files": str(mixed)}
    behaviour.run(behaviour.BehaviourConfig.model_validate(section), mixed, home / "behaviour/rooms")
    dataset = {"environment": "rooms", "source": "minari", "location": "mixed", "steps": None, "episodes": None}
    section = {**PARAMS["transitions"], "datasets": {"mixed": dataset}}
    config = transitions.TransitionsConfig.model_validate(section)
    transitions.run(config, home / "behaviour/rooms", home / "agent_episodes", home / "transitions/mixed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name, stage in (("bc", bc), ("dqn", dqn)):
            section = {**PARAMS[name], **SHORT, "datasets": ["mixed"]}
            config = (bc.BcConfig if name == "bc" else dqn.DqnConfig).model_validate(section)
            stage.run(config, home / "transitions/mixed", home / name / "mixed")
    return home


def episodes(folder):
    """Each episode's arrays, its texts, and the number of its game."""
    with h5py.File(folder / dataset_files.DATA) as file:
        for number in range(len(file)):
            group = file[f"episode_{number}"]
            fields = {name: group[name][()] for name in ("observations", "actions", "rewards", "terminations")}
            texts = {name: [one.decode() for one in group[f"infos/{name}"][()]] for name in ("text", "said")}
            yield {**fields, **texts, "truncations": group["truncations"][()], "game": int(group.attrs["seed"])}


def test_played_again_by_numbers_a_game_gives_what_was_recorded(mixed):
    env = as_gymnasium.make(mixed)
    rows = [*episodes(mixed)]
    assert len(rows) == 14
    for row in rows:
        seen, info = env.reset(options={"game": row["game"]})
        assert (seen.tolist(), info) == (row["observations"][0].tolist(), {"text": row["text"][0], "said": ""})
        for turn, action in enumerate(row["actions"]):
            seen, reward, terminated, truncated, info = env.step(action)
            assert seen.tolist() == row["observations"][turn + 1].tolist()
            assert reward == pytest.approx(row["rewards"][turn], abs=1e-6)
            assert (terminated, truncated) == (row["terminations"][turn], False)
            assert info["said"] == env.described.actions[action]
        assert row["text"][-1] == info["text"]
        assert row["truncations"].tolist() == [False] * turn + [not terminated], (
            "only the context's end cuts an episode"
        )


def test_the_actions_are_the_distinct_texts_in_their_order(mixed):
    described = as_gymnasium.make(mixed).described
    said = {text for row in episodes(mixed) for text in row["said"][1:]}
    assert described.actions == sorted(described.actions)
    assert {text.replace("\0", "\N{REPLACEMENT CHARACTER}") for text in described.actions} == said
    assert described.action_space.n == len(described.actions) >= len(said)


def test_no_opening_is_both_recorded_and_measured(mixed):
    env, opened = as_gymnasium.make(mixed), set()
    for row in episodes(mixed):
        env.reset(options={"game": row["game"]})
        assert compute_opening_split(env.game.opening) == "train"
        opened.add(row["text"][0])
    for seed in range(50):
        assert env.reset(seed=seed)[1]["text"] not in opened


def test_minari_itself_opens_it_with_its_texts(mixed):
    found = minari.MinariDataset(mixed / "data")
    assert (found.total_episodes, found.total_steps) == (14, sum(len(row["actions"]) for row in episodes(mixed)))
    first = next(found.iterate_episodes())
    assert first.infos["text"][0].decode().startswith("Find the lamp")
    assert first.infos["said"][-1].decode() == "take lamp"
    assert first.observations.shape == (len(first.actions) + 1, 3 * 16 + 1)


def test_its_numbers_are_those_of_its_episodes(by_the_expert):
    out, metrics = by_the_expert
    rows = [*episodes(out)]
    assert len(rows) == metrics["episodes"] == 8
    assert metrics["return"] == pytest.approx(np.mean([row["rewards"].sum() for row in rows]), abs=1e-6)
    assert metrics["return"] == pytest.approx(metrics["optimum"]), "the expert plays as well as can be"
    assert metrics["terminated"] == 1.0
    assert metrics["observation"] == 49
    assert all(row["said"][-1] == "take lamp" for row in rows)


def test_the_same_again_is_the_same_bytes_and_another_seed_is_not(mixed, cloned, recorded, tmp_path):
    small.as_data(cloned, recorded, tmp_path / "mixed", FEW)
    small.as_data(cloned, recorded, tmp_path / "other/mixed", FEW, seed=1)
    for file in (dataset_files.DATA, dataset_files.METADATA, Path("environment.json")):
        assert (tmp_path / "mixed" / file).read_bytes() == (mixed / file).read_bytes()
    assert (tmp_path / "other/mixed" / dataset_files.DATA).read_bytes() != (mixed / dataset_files.DATA).read_bytes()


def test_an_episode_with_a_rare_action_is_left_out():
    def saying(*actions):
        return Transcribed(0, [], actions, actions, [0.0] * len(actions), True), None

    pairs = [saying("a", "a"), saying("a", "b"), saying("b", "c")]
    assert agent_episodes._drop_rare_action_episodes(pairs, 1) == pairs
    assert agent_episodes._drop_rare_action_episodes(pairs, 2) == pairs[:2], "c is said once"
    assert agent_episodes._drop_rare_action_episodes(pairs, 3) == pairs[:1]
    assert agent_episodes._drop_rare_action_episodes(pairs, 4) == []


def test_an_episode_that_the_context_cut_short_is_truncated(recorded):
    game = as_gymnasium.games.Game(1, None, [])
    whole = GameEpisode(game, None, ["a"], ["b"], [1.0])
    assert agent_episodes._transcribe_episode(whole).terminated
    whole.context_cut = True
    assert not agent_episodes._transcribe_episode(whole).terminated
    for reason in ("faults", "turns_cut"):
        unfinished = GameEpisode(game, None, ["a"], ["b"], [1.0], counted={reason: 1.0})
        assert not agent_episodes._transcribe_episode(unfinished).terminated


def test_the_offline_flow_reads_it_as_it_is(learned, mixed):
    dataset = dataset_files.read_offline_dataset(learned / "transitions/mixed")
    rows = [*episodes(mixed)]
    assert dataset.environment == f"{MODULE}:{learned}/transitions/mixed", "its own folder is all that it needs"
    assert dataset.transitions.lengths.tolist() == [len(row["actions"]) for row in rows]
    first = rows[0]
    count = len(first["actions"])
    assert dataset.transitions.observations[:count].tolist() == first["observations"][:-1].tolist()
    assert dataset.transitions.next_observations[:count].tolist() == first["observations"][1:].tolist()
    assert dataset.transitions.actions[:count].tolist() == first["actions"].tolist()
    assert dataset.transitions.terminated[:count].tolist() == [False] * (count - 1) + [True]
    assert dataset.spaces == simulators.get_policy_spaces(f"{MODULE}:{mixed}")
    assert dataset.reference.maximum == pytest.approx(as_gymnasium.make(mixed).optimum)


@pytest.mark.parametrize("method", ["bc", "dqn"])
def test_what_learns_from_it_plays_the_game(learned, method, tmp_path):
    fitting = {**PARAMS["returns"]["fitted_q"], "most_steps": 10}
    config = returns.ReturnsConfig.model_validate({**PARAMS["returns"], "episodes": 5, "fitted_q": fitting})
    metrics = returns.run(config, learned / method / "mixed", learned / "transitions/mixed", tmp_path)
    for found in metrics.values():
        assert 1 <= found["length"] <= 6, "turns of a game"
        assert found["return"] >= -0.02 * 6 - 0.3 * 10


def test_a_data_set_of_another_game_is_refused(mixed, by_the_expert):
    other, _ = by_the_expert
    environment = f"{MODULE}:{mixed}"
    with pytest.raises(DataError, match=re.escape(f"{other}: recorded in another environment than {MODULE}")):
        dataset_import.read_minari_dataset(other, environment)


@pytest.mark.parametrize("broken", ["{", "{}"])
def test_a_folder_that_holds_no_environment_is_one_line(tmp_path, broken):
    (tmp_path / "environment.json").write_text(broken)
    with pytest.raises(DataError, match=rf"^environment {MODULE}:{tmp_path}: cannot be made: [^\n]+$"):
        simulators.make_offline_environment(f"{MODULE}:{tmp_path}")


def test_more_of_the_expert_than_there_is_is_one_line(cloned, recorded, tmp_path):
    expected = "params.yaml: branches.agent_episodes.much.expert: expected at most the 24 that are recorded, got 25"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        small.as_data(cloned, recorded, tmp_path / "much", {"expert": 25})


def test_actions_that_are_all_rare_are_one_line(cloned, recorded, tmp_path):
    with pytest.raises(DataError, match=r"^branches\.agent_episodes\.few: no episode is left; expected a smaller "):
        small.as_data(cloned, recorded, tmp_path / "few", {"episodes": 1}, least=10**6)


def test_an_empty_set_is_told_before_anything_runs():
    section = {**PARAMS["agent_episodes"], "sets": {"none": {**small.MIXED, "episodes": 0, "expert": 0}}}
    with pytest.raises(ValidationError, match="expected at least 1 here or in episodes"):
        AgentEpisodesConfig.model_validate(section)


def test_a_game_that_pays_otherwise_than_when_it_was_recorded_is_told(cloned, recorded, tmp_path):
    for file in recorded.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    world = json.loads((recorded / "environment.json").read_text())
    world["settings"]["turn_cost"] = 0.5
    (tmp_path / "environment.json").write_text(json.dumps(world))
    with pytest.raises(DataError, match=r"game \d+ pays something else than when it was recorded"):
        small.as_data(cloned, tmp_path, tmp_path / "out/mixed", {"episodes": 0})
