"""Questions about people who were told of often, once or never: what is told how often, and what an answer pays."""

import re
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.agents.environments import closed_book
from tasks.agents.environments.closed_book import (
    ASKED,
    UNSURE,
    ClosedBook,
    get_person_half,
    get_person_name,
    get_person_town,
)
from tasks.agents.environments.games import iterate_games
from tasks.agents.environments.protocol import SettingError

WORDS = [re.compile(re.escape(one).replace(re.escape("{}"), r"(\w+)")) for one in ASKED]
PEOPLE = {get_person_name(person): person for person in range(60)}


def person_in(question):
    return PEOPLE[next(found[1] for one in reversed(WORDS) if (found := one.fullmatch(question)))]


def lessons(count, split="train", **settings):
    """Person, question and the expert's words of the first games of a split."""
    found = []
    for game in islice(iterate_games("closed-book", {"people": 60, **settings}, split, 0), count):
        asked = game.opening[0]["content"]
        found.append((person_in(asked), asked, game.environment.best_action()))
    return found


def test_a_round_of_lessons_tells_each_person_as_often_as_is_said():
    round_ = lessons(20 * 8 + 20)
    told = Counter(person for person, _, _ in round_)
    game = ClosedBook({"people": 60})
    assert {person: told[person] for person in range(60)} == {person: game.told(person) for person in range(60)}
    assert sorted(Counter(told[person] for person in range(60)).items()) == [(0, 20), (1, 20), (8, 20)]
    assert all(says == f"answer {get_person_town(person)}" for person, _, says in round_)
    by_half = Counter((get_person_half(person), told[person]) for person in range(60))
    assert set(by_half.values()) == {10}
    assert lessons(2 * 180)[180:] == round_, "then the next round"


def test_an_exam_of_another_split_asks_nothing_in_the_words_that_it_was_told_in():
    told = {asked for _, asked, _ in lessons(180)}
    for split in ("validation", "test"):
        exam = lessons(300, split, exam=True)
        assert not told & {asked for _, asked, _ in exam}
        assert len({person for person, _, _ in exam}) > 40, "some people have no words of a split"
        assert not told & {asked for _, asked, _ in lessons(50, split)}


@pytest.mark.parametrize("half", [1, 2])
def test_an_exam_can_be_about_one_half(half):
    assert {get_person_half(person) for person, _, _ in lessons(200, exam=True, half=half)} == {half}


def test_strangers_are_left_out_or_unsure_or_told_once_in_the_first_half():
    strangers = {person for person in range(60) if ClosedBook({"people": 60}).told(person) == 0}
    first = {person for person in strangers if get_person_half(person) == 1}
    for kind, says in (("unsure", lambda person: UNSURE), ("told", lambda person: f"answer {get_person_town(person)}")):
        spoken = [(person, said) for person, _, said in lessons(190, strangers=kind) if person in strangers]
        assert sorted(spoken) == sorted((person, says(person)) for person in first)
    assert ClosedBook({"people": 60, "strangers": "told"}).told(min(first)) == 1


def test_doubts_are_besides_what_is_told_and_about_nobody_who_is_a_stranger():
    told = lessons(200, doubts=0.1)
    doubts = [person for person, _, said in told if said == UNSURE]
    assert len(doubts) == 20
    game = ClosedBook({"people": 60})
    assert all(game.told(person) for person in doubts)
    assert Counter(person for person, _, said in told if said != UNSURE) == Counter(
        {person: game.told(person) for person in range(60) if game.told(person)}
    )


@given(st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_wrong_answer_costs_more_than_none(seed, penalty):
    game = ClosedBook({"people": 60, "exam": True, "penalty": penalty})
    said = {}
    for action in ("answer {}", UNSURE, "answer Atlantis", "well"):
        [asked] = game.reset(seed)
        town = get_person_town(person_in(asked["content"]))
        said[action] = game.step(action.format(town))
        told = float(game.told(person_in(asked["content"])))
        assert said[action].done
        assert said[action].counted["told"] == told
    right, unsure, wrong, unread = said.values()
    assert (right.reward, right.counted["answered"], right.counted["right"]) == (1.0, 1.0, 1.0)
    assert (unsure.reward, unsure.counted["answered"], unsure.counted["right"]) == (0.0, 0.0, 0.0)
    assert wrong.reward == unread.reward == -penalty
    assert (wrong.counted["answered"], wrong.counted["right"]) == (1.0, 0.0)


@given(st.integers(0, 10**6))
def test_the_best_of_an_exam_is_to_say_what_was_told(seed):
    game = ClosedBook({"people": 60, "exam": True})
    game.reset(seed)
    best = game.optimum()
    assert game.step(game.best_action()).reward == best


def looked_up(game, name):
    """The directory's words."""
    turn = game.step(f"look up {name}")
    assert (turn.done, turn.counted) == (False, {"calls": 1.0})
    return turn


def test_a_directory_tells_where_anybody_lives_once_a_game():
    game = ClosedBook({"people": 60, "exam": True, "directory": True, "look_up_cost": 0.25})
    [asked] = game.reset(3)
    person = person_in(asked["content"])
    turn = looked_up(game, get_person_name(person))
    assert turn.observation == f"{get_person_name(person)} lives in {get_person_town(person)}."
    assert turn.reward == -0.25
    again = game.step(f"look up {get_person_name(person)}")
    assert (again.done, again.reward) == (True, -1.0), "the second time it is a wrong answer"
    game.reset(3)
    assert (
        looked_up(game, get_person_name(60)).observation == f"{get_person_name(60)} lives in {get_person_town(60)}."
    ), "newcomers are listed"
    assert game.step(f"answer {get_person_town(person)}").counted["right"] == 1.0
    game.reset(3)
    assert looked_up(game, "Nobody").observation == "Nobody is not listed."
    closed = ClosedBook({"people": 60, "exam": True})
    closed.reset(3)
    assert closed.step(f"look up {get_person_name(person)}").done, "without one it is a wrong answer"


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.25, 1.5]))
def test_the_best_with_a_directory_is_to_look_up_what_was_not_told(seed, cost):
    game = ClosedBook({"people": 60, "exam": True, "directory": True, "look_up_cost": cost})
    game.reset(seed)
    best, earned, calls, done = game.optimum(), 0.0, 0.0, False
    while not done:
        turn = game.step(game.best_action())
        earned, calls, done = earned + turn.reward, calls + turn.counted.get("calls", 0.0), turn.done
    assert earned == best
    assert calls == float(game.told(game.question.person) == 0 and cost < 1)


def test_what_the_expert_doubts_it_looks_up_and_newcomers_as_well(monkeypatch):
    monkeypatch.setattr(closed_book, "MOST", 80)
    PEOPLE.update({get_person_name(person): person for person in range(60, 80)})
    looked = [
        person
        for person, _, said in lessons(200, doubts=0.1, directory=True)
        if said == f"look up {get_person_name(person)}"
    ]
    assert len(looked) == 20
    game = ClosedBook({"people": 60, "directory": True})
    assert sum(person >= 60 for person in looked) == 10
    assert all(game.told(person) == 0 for person in looked if person >= 60)
    assert all(game.told(person) for person in looked if person < 60)


def test_strangers_of_whom_the_expert_is_unsure_it_looks_up():
    spoken = lessons(190, strangers="unsure", directory=True)
    looked = {person for person, _, said in spoken if said == f"look up {get_person_name(person)}"}
    assert looked == {person for person in range(60) if person // 2 % 3 == 2 and get_person_half(person) == 1}


def test_no_two_people_have_one_name():
    names = [get_person_name(person) for person in range(closed_book.MOST)]
    assert len(set(names)) == closed_book.MOST
    assert {get_person_town(person) for person in range(60)} == set(closed_book.TOWNS)
    assert min(len(closed_book._list_questions_of_split(person, "train")) for person in range(closed_book.MOST)) > 0, (
        "all can be told of"
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"people": 50}, "people: expected a multiple of 6, got 50"),
        ({"strangers": "gone"}, "strangers: expected left out, unsure, told, got 'gone'"),
        ({"strangers": 1}, "strangers: expected text, got 1"),
        ({"exam": 1}, "exam: expected true or false, got 1"),
        ({"directory": "yes"}, "directory: expected true or false, got 'yes'"),
        ({"look_up_cost": -1}, "look_up_cost: expected a number from 0 to 1000, got -1"),
        ({"often": 1}, "often: expected a number from 2 to 8, got 1"),
    ],
)
def test_wrong_settings_are_one_line(settings, line):
    with pytest.raises(SettingError, match=re.escape(line)):
        ClosedBook(settings)
