"""Questions with a search tool, and key-to-door in words."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.agents.environments.facts import RELATIONS, Facts
from tasks.agents.environments.key_to_door import KeyToDoor
from tasks.agents.environments.protocol import SettingError


def played(game, choose):
    total, done, said = 0.0, False, []
    while not done:
        turn = game.step(choose(game))
        total, done = total + turn.reward, turn.done
        said.append(turn)
    return total, said


@given(st.integers(0, 10**6), st.integers(4, 16), st.integers(1, 3), st.sampled_from([0.0, 0.1]))
def test_the_chain_of_searches_leads_to_the_answer(seed, people, hops, cost):
    game = Facts({"people": people, "hops": hops, "search_cost": cost})
    game.reset(seed)
    best = game.optimum()
    total, said = played(game, Facts.best_action)
    assert total == pytest.approx(best)
    assert best == pytest.approx(1 - cost * hops)
    assert len(said) == hops + 1
    assert game.result in said[-2].observation


def test_a_question_names_its_hops_and_a_search_says_what_is_known():
    game = Facts({"hops": 2})
    [asked] = game.reset(3)
    words = asked["content"].removesuffix("?").split()
    what, relation, name = words[3], words[6], words[-1]
    assert relation in RELATIONS
    said = game.step(f"search {name}").observation
    known = dict(pair.split(" ") for pair in said.split(", "))
    friend = game.step(f"search {known[relation]}").observation
    assert dict(pair.split(" ") for pair in friend.split(", "))[what] == game.result
    assert game.step("search Nobody").observation == "Nobody of this name."
    assert game.step("find Ada").observation == "I do not understand that."
    wrong = game.step("answer nothing")
    assert (wrong.reward, wrong.done) == (0.0, True)


@given(st.integers(0, 10**6), st.integers(0, 8), st.integers(2, 6), st.integers(0, 99))
def test_the_best_way_to_the_door_is_the_optimum_and_no_other_is_better(seed, orchard, boxes, draw):
    game, generator = KeyToDoor({"orchard": orchard, "boxes": boxes}), random.Random(draw)
    game.reset(seed)
    best = game.optimum()
    total, said = played(game, KeyToDoor.best_action)
    assert total == pytest.approx(best)
    assert len(said) == orchard + 2
    assert said[-1].counted == {"opened": 1.0}
    game.reset(seed)
    other, _ = played(game, lambda one: generator.choice([one.best_action(), "pick", "walk", "open", "take red"]))
    assert other <= best + 1e-9


def test_without_the_key_the_door_stays_shut():
    game = KeyToDoor({"orchard": 1})
    game.reset(0)
    wrong = next(place for place in ("red", "blue", "green") if place != game.key_box)
    assert game.step(f"take {wrong}").observation == "You have nothing. Apples hang here."
    assert game.optimum() == pytest.approx(max(0.0, game.worth[0]))
    assert game.step("pick").reward == game.worth[0]
    last = game.step("open")
    assert (last.reward, last.done, last.counted) == (0.0, True, {"opened": 0.0})


@pytest.mark.parametrize(
    ("kind", "given", "line"),
    [
        (Facts, {"hops": 4}, "hops: expected a number from 1 to 3, got 4"),
        (KeyToDoor, {"boxes": 1}, "boxes: expected a number from 2 to 6, got 1"),
    ],
)
def test_wrong_settings_are_one_line(kind, given, line):
    with pytest.raises(SettingError, match=line):
        kind(given)
