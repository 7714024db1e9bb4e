"""What a budget buys: prices, what is bought and kept, resume, and that each source teaches."""

import json
from functools import cache

import pytest
import torch
from safetensors.torch import load_file

from tasks.agents import agents_report
from tasks.agents.agents_report import AgentsReportConfig
from tasks.agents.playing import episode_files as recordings
from tasks.agents.playing import playing, purchases
from tasks.agents.playing.collecting import GameCollector
from tasks.agents.playing.playing import GameEpisode
from tasks.algorithms.agents.transcripts import Transcript
from tasks.algorithms.common.optimizer import Optimizer
from tasks.common import checkpoints, models
from tasks.common.errors import ConfigError, DataError
from tests.tasks.agents import small

DOLLARS = 90.0
SOURCES = ("demonstrations", "teacher", "successes", "comparisons", "rewards")


class Scripted:
    """Plays episodes of these returns and turns, two of each game; the first token of an episode is its number."""

    def __init__(self, *groups):
        self.given, self.asked = [list(group) for group in groups], 0

    def groups(self, step):
        self.asked += 1
        if step > len(self.given):
            raise AssertionError("nothing more was to be asked")
        return [[self.episode(number, *one) for number, one in enumerate(self.given[step - 1])]]

    def episode(self, number, total, turns):
        transcript = Transcript()
        transcript.observe([number], 0)
        return GameEpisode(None, transcript, rewards=[0.0] * (turns - 1) + [total])


def numbers(transcripts):
    return [one.tokens[0] for one in transcripts]


def test_a_success_is_the_best_of_its_game_if_it_earned_anything():
    own = Scripted([(0.2, 1), (0.7, 2)], [(-0.5, 1), (0.0, 1)], [(0.4, 3), (0.1, 1)], [(9.0, 1), (9.0, 1)])
    bought = purchases.buy_successful_episodes(own, dollars=70.0, price=10.0)
    assert numbers(bought.episodes) == [1, 0]
    assert (bought.number, bought.spent) == (7, 70.0), (
        "the seventh could be paid for, the eighth not, and its game is not kept"
    )


def test_a_comparison_costs_the_turns_of_the_longer_episode_and_a_tie_teaches_nothing():
    own = Scripted([(0.2, 1), (0.7, 3)], [(0.5, 2), (0.5, 2)], [(0.9, 1), (0.1, 2)], [(0.9, 9), (0.1, 2)])
    bought = purchases.buy_comparisons(own, dollars=100.0, price=10.0)
    assert [(pair.better.tokens[0], pair.worse.tokens[0]) for pair in bought.pairs] == [(1, 0), (0, 1)]
    assert (bought.number, bought.spent) == (3, 30.0 + 20.0 + 20.0), "nine turns more would cost 90"


def test_demonstrations_cost_their_turns_and_a_larger_budget_buys_more_of_the_same(recorded, words):
    world = recordings.read_world(recorded)
    few = purchases.buy_demonstrations(world, words, 0, dollars=50.0, price=3.0)
    more = purchases.buy_demonstrations(world, words, 0, dollars=150.0, price=3.0)
    assert few.number == len(few.episodes) < len(more.episodes)
    assert [one.tokens for one in more.episodes[: few.number]] == [one.tokens for one in few.episodes]
    turns = sum(max(one.turns) + 1 for one in few.episodes)
    assert few.spent == 3.0 * turns <= 50.0
    following = max(more.episodes[few.number].turns) + 1
    assert few.spent + 3.0 * following > 50.0
    other = purchases.buy_demonstrations(world, words, 1, dollars=50.0, price=3.0)
    assert [one.tokens for one in other.episodes] != [one.tokens for one in few.episodes], "each seed has its own games"


@pytest.mark.parametrize("faulty", [3, 19, 20])
def test_games_that_faults_ended_cost_nothing_and_too_many_in_a_row_end_the_search(monkeypatch, faulty):
    """Of no price a budget buys without end."""
    play = [recordings.ExpertGame([], cut=False, fault="game 7, turn 2: broken")] * faulty
    play += [recordings.ExpertGame([{"reward": 1.0}] * 4, cut=False, fault="")] * 2
    monkeypatch.setattr(purchases.episode_files, "play_expert_game", lambda game, number: play.pop(0))
    monkeypatch.setattr(purchases, "_set_bought_episodes", lambda bought, tokenizer, rows: bought)
    world = recordings.World("rooms", small.ROOMS["settings"], 0, 10.0)
    if faulty == 20:
        with pytest.raises(
            DataError, match=r"^rooms: faults .* ended 20 games in a row; the last one: game 7, turn 2: b"
        ):
            purchases.buy_demonstrations(world, None, 0, dollars=10.0, price=2.0)
    else:
        bought = purchases.buy_demonstrations(world, None, 0, dollars=10.0, price=2.0)
        assert (bought.number, bought.spent) == (1, 8.0)


@pytest.fixture(scope="module")
def words(cloned):
    return models.load_tokenizer(cloned)


@pytest.fixture(scope="module")
def teacher(recorded, tmp_path_factory):
    """A wider clone with words of its own."""
    root = tmp_path_factory.mktemp("teacher")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return small.clone(
            root,
            recorded,
            sizes={"rooms": {"width": 64, "layers": 1, "heads": 2}},
            vocabulary=330,
            context=512,
            epochs=3,
        )


@pytest.fixture(scope="module")
def trained(cloned, teacher, recorded, tmp_path_factory):
    """`trained(source)`: what 90 dollars for this source make of the policy, trained once: (folder, metrics)."""

    @cache
    def once(source):
        root = tmp_path_factory.mktemp(source)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)
            return small.buy(root, cloned, teacher, recorded, {"source": source, "dollars": DOLLARS})

    return once


def test_a_clone_has_the_sizes_of_its_own(teacher, cloned):
    assert models.load_model(teacher).config.hidden_size == 64
    assert models.load_model(cloned).config.hidden_size == 32


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_moves_the_policy_within_its_budget(source, cloned, trained):
    out, metrics = trained(source)
    assert 0 < metrics["spent"] <= DOLLARS
    assert metrics["number"] > 0
    written = json.loads((out / "bought.json").read_text())
    assert written == {"source": source, "dollars": DOLLARS, **metrics}
    before, after = (load_file(folder / "model.safetensors") for folder in (cloned, out / "seed-0"))
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_budget_that_buys_nothing_is_one_line(cloned, teacher, recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source in SOURCES:
        with pytest.raises(
            ConfigError, match=r"^params\.yaml: branches\.budgets\.one\.dollars: expected enough for one "
        ):
            small.buy(tmp_path, cloned, teacher, recorded, {"source": source, "dollars": 1.0})


def test_what_another_model_says_is_learned_in_the_learner_s_words(cloned, teacher, recorded, words):
    model, its = models.load_model(teacher), models.load_tokenizer(teacher)
    plays = GameCollector(
        model, its, recordings.read_world(recorded), 0, 4, 1, playing.build_action_sampling(model, its, 8, 0.0)
    )
    bought = purchases.buy_teacher_episodes(plays, words, dollars=100.0, price=10.0)
    [first, *_] = plays.groups(1)
    said = words.decode(bought.episodes[0].action(0), skip_special_tokens=True).strip()
    assert said == first[0].actions[0]
    assert bought.spent == 10.0 * sum(max(one.turns) + 1 for one in bought.episodes)


def test_the_report_has_the_plot_and_the_table(cloned, teacher, recorded, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small.measure(cloned, recorded, tmp_path / "returns/clone", games=2)
    cheap, _ = small.buy(tmp_path / "cheap", cloned, teacher, recorded, {"dollars": 30.0})
    for name, out in (("cheap", cheap), ("dear", trained("successes")[0])):
        small.measure(out, recorded, tmp_path / f"returns/{name}", games=2)
    bought = {name: {"stage": "budgets", "branch": name, "environment": "rooms"} for name in ("cheap", "dear")}
    section = {"policies": {"clone": small.MEASURED["clone"], **bought}, "expectations": [], "shown": 0}
    agents_report.run(AgentsReportConfig.model_validate(section), tmp_path / "returns", tmp_path / "out")
    page, text = ((tmp_path / "out" / name).read_text() for name in ("agents_report.html", "agents_report.md"))
    assert "What money buys (rooms)" in page
    assert "costs-rooms.svg" in text
    assert "| dear | successes | 90 | 18 |" in text
    assert ">clone<" in (tmp_path / "out/costs-rooms.svg").read_text()


@pytest.mark.parametrize("source", ["successes", "comparisons", "rewards"])
def test_a_killed_training_goes_on_with_the_same_bits(
    source, cloned, teacher, recorded, trained, tmp_path, monkeypatch
):
    """Cut after the second gradient step, or in the second update by rewards: what is bought again is the same, and so
    is the reference of the comparisons.
    """
    entry, (whole, _) = {"source": source, "dollars": DOLLARS}, trained(source)
    (tmp_path / "cut").mkdir()
    monkeypatch.chdir(tmp_path / "cut")
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    step, steps, last = Optimizer.step, list[int](), 4 if source == "rewards" else 3

    def cut(optimizer):
        steps.append(1)
        if len(steps) == last:
            raise KeyboardInterrupt
        return step(optimizer)

    monkeypatch.setattr(Optimizer, "step", cut)
    with pytest.raises(KeyboardInterrupt):
        small.buy(tmp_path / "cut", cloned, teacher, recorded, entry)
    again = len(steps)
    out, metrics = small.buy(tmp_path / "cut", cloned, teacher, recorded, entry)
    every = metrics["steps"] * (3 if source == "rewards" else 1)  # updates
    assert len(steps) - again < every, "it goes on, and does not begin anew"
    for file in ("curve.csv", "bought.json", "seed-0/model.safetensors"):
        assert (out / file).read_bytes() == (whole / file).read_bytes(), file


def test_a_model_without_room_for_a_turn_is_one_line(cloned, recorded):
    model, words = models.load_model(cloned), models.load_tokenizer(cloned)
    games = recordings.read_world(recorded).games("train", 2)
    how = playing.build_action_sampling(model, words, 10_000, 0.0)
    with pytest.raises(DataError, match="max_action_tokens = 10000 are more than the model's 256 positions"):
        playing.play_games(model, words, games, how, torch.Generator())
