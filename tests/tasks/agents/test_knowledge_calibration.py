"""Whether policies know what they know: coverage, accuracy, thresholds and calibration, by hand."""

import json
from math import inf, log

import pandas as pd
import pytest

from tasks.agents import agents_report
from tasks.agents.agents_report import AgentsReportConfig
from tasks.agents.reporting import knowledge_calibration
from tasks.agents.reporting.policy_returns import PolicyEpisodes
from tests.tasks.agents import small

Game = tuple[int, float, int, int, *tuple[int, ...]]
GAMES: list[
    Game
] = [  # told, probability of what it said, whether it answered, whether that was right, and calls if any
    (8, 0.9, 1, 1),
    (8, 0.9, 1, 1),
    (1, 0.7, 1, 1),
    (1, 0.7, 1, 0),
    (0, 0.5, 1, 0),
    (0, 0.5, 1, 0),
    (0, 0.8, 0, 0),
    (0, 0.8, 0, 0),
]


def policy(games=GAMES, seeds=(-1,)):
    """A policy whose greedy games are these, each an answer of two tokens; at temperature 1 it only errs."""
    episodes, turns = [], []
    for seed in seeds:
        for temperature in (1.0, 0.0):
            for number, (told, probability, answered, right, *called) in enumerate(games):
                right = right if temperature == 0 or called else 0
                counted = {"answered": answered, "right": right, "told": told} | (
                    {"calls": called[0]} if called else {}
                )
                total = ((1.0 if right else -1.0) if answered else 0.0) - 0.25 * sum(called)
                key = {"seed": seed, "temperature": temperature, "episode": number}
                episodes.append(key | {"total": total, "counted": json.dumps(counted), "optimum": 1.0})
                logps = [log(probability) / 2] * 2
                turns.append(key | {"turn": 0, "logps": logps})
    return PolicyEpisodes("one", "exam", False, pd.DataFrame(episodes), pd.DataFrame(turns), None)


@pytest.fixture
def panels(monkeypatch):
    """In place of a plot's picture its panels."""
    monkeypatch.setattr(knowledge_calibration.plots, "render_small_multiples", lambda panels, *_: panels)


def test_answers_are_the_greedy_ones_with_the_probability_of_all_their_tokens():
    found = knowledge_calibration.build_answer_table(policy())
    assert found["probability"].tolist() == pytest.approx([one[1] for one in GAMES])
    assert found["answered"].tolist() == [one[2] for one in GAMES]
    assert found["right"].tolist() == [one[3] for one in GAMES]
    assert found["told"].tolist() == [one[0] for one in GAMES]


def test_the_last_turn_of_an_episode_is_its_answer():
    one = policy([(8, 0.9, 1, 1)])
    before = one.turns.assign(turn=-1, logps=[[log(0.1)]] * len(one.turns))
    longer = PolicyEpisodes("one", "exam", False, one.episodes, pd.concat([one.turns, before]), None)
    assert knowledge_calibration.build_answer_table(longer)["probability"].tolist() == pytest.approx([0.9])


def test_coverage_accuracy_and_calibration_by_hand():
    row = knowledge_calibration.build_knowledge_row("one", knowledge_calibration.build_answer_table(policy()))
    assert row.coverage.mean == 6 / 8
    assert row.accuracy.mean == 3 / 6
    assert row.earned.mean == 0.0
    gap = (2 * abs(1 - 0.9) + 2 * abs(0.5 - 0.7) + 2 * abs(0 - 0.5)) / 6
    assert row.gap.mean == pytest.approx(gap)
    assert (row.coverage.low, row.coverage.high) == (-inf, inf), "one policy has no spread"


def test_a_threshold_of_one_half_counts_on_the_other():
    """Even games choose 0.7: they have 0.9 right, 0.7 right, 0.5 wrong; odd ones 0.9: 0.9 right, 0.7 wrong, 0.5
    wrong.
    """
    rows = knowledge_calibration.build_answer_table(policy())
    even_of_odd, odd_of_even = 1 - 1, 1 + 0
    assert knowledge_calibration.compute_return_with_threshold(rows) == pytest.approx((even_of_odd + odd_of_even) / 8)


def test_what_is_kept_back_is_looked_up_where_that_can_be_done(panels):
    """Looking up earned 0.75 at both temperatures.

    Even games choose 0.9, odd ones 0.7; games 4 and 5 called a tool already.
    """
    games: list[Game] = [
        (8, 0.9, 1, 1),
        (8, 0.9, 1, 1),
        (1, 0.7, 1, 0),
        (1, 0.7, 1, 1),
        (0, 0.5, 1, 1, 1),
        (0, 0.5, 1, 1, 1),
    ]
    rows = knowledge_calibration.build_answer_table(policy(games))
    assert rows["kept_back"].tolist() == [0.75] * 6
    even_of_odd, odd_of_even = 1 - 1 + 0.75, 1 + 0.75 + 0.75
    assert knowledge_calibration.compute_return_with_threshold(rows) == pytest.approx((even_of_odd + odd_of_even) / 6)
    assert knowledge_calibration.build_knowledge_row("one", rows, with_calls=True).calls.mean == 2 / 6
    tables, drawn = knowledge_calibration.build_knowledge_view([policy(games)])
    assert tables["exam"][0].calls.mean == 2 / 6
    assert drawn["told-exam"][-1].title == "calls, a question"
    assert drawn["told-exam"][-1].seeds["one"] == knowledge_calibration._build_lines_by_times_told(rows, "calls")


def test_a_tool_that_costs_more_than_it_earns_is_not_called_instead():
    rows = knowledge_calibration.build_answer_table(policy([(0, 0.5, 1, 0), (0, 0.5, 1, 0), (0, 0.5, 1, 0, 1)]))
    assert rows["kept_back"].tolist() == [0.0] * 3


def test_where_every_answer_is_wrong_nothing_is_said():
    rows = knowledge_calibration.build_answer_table(policy([(0, 0.5, 1, 0)] * 4))
    assert knowledge_calibration.compute_return_with_threshold(rows) == 0.0


def test_a_policy_that_answers_nothing_has_no_accuracy():
    row = knowledge_calibration.build_knowledge_row(
        "one", knowledge_calibration.build_answer_table(policy([(0, 0.5, 0, 0)] * 4, seeds=(0, 1)))
    )
    assert row.coverage.mean == 0
    assert row.accuracy.mean != row.accuracy.mean
    assert row.gap.mean != row.gap.mean
    assert row.with_threshold.mean == 0.0


def test_other_environments_are_not_asked(panels):
    one = policy()
    other = PolicyEpisodes("one", "rooms", False, one.episodes.assign(counted='{"won": 1}'), one.turns, None)
    assert knowledge_calibration.build_knowledge_view([other]) == ({}, {})
    tables, drawn = knowledge_calibration.build_knowledge_view([one, other])
    assert list(tables) == ["exam"]
    assert tables["exam"][0].calls is None
    assert list(drawn) == ["told-exam", "knowing-exam"]


def test_seeds_are_lines_of_their_own():
    found = knowledge_calibration.build_answer_table(policy(seeds=(0, 1, 2)))
    assert len(knowledge_calibration._build_lines_by_times_told(found, "answered")) == 3
    assert knowledge_calibration._build_lines_by_times_told(found, "answered")[0] == ([0.0, 1.0, 8.0], [0.5, 1.0, 1.0])
    assert knowledge_calibration._build_wrong_answer_lines(found)[0] == ([0.0, 1.0, 8.0], [0.5, 0.5, 0.0])
    shares, accuracy = knowledge_calibration._build_coverage_lines(found)[0]
    assert shares == [number / 8 for number in range(1, 7)]
    assert accuracy == pytest.approx([1, 1, 1, 3 / 4, 3 / 5, 3 / 6])
    assert knowledge_calibration._build_calibration_lines(found)[0] == (
        pytest.approx([0.5, 0.7, 0.9]),
        pytest.approx([0, 0.5, 1]),
    )


def test_the_report_of_an_exam_has_the_table_and_the_plots(tmp_path, one_thread, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = {"kind": "closed-book", "settings": {"people": 12, "doubts": 0.2}, "episodes": 30, "validation": 4}
    recorded = small.record(tmp_path / "lessons", world | {"seconds": 10.0})
    cloned = small.clone(tmp_path / "clone", recorded, context=64, epochs=2)
    exam = {**world, "settings": {"people": 12, "exam": True}, "episodes": 0, "validation": 0, "seconds": 10.0}
    asked = small.record(tmp_path / "exam", exam)
    small.measure(cloned, asked, tmp_path / "returns/clone", games=8)
    section = {"policies": {"clone": small.MEASURED["clone"]}, "expectations": [], "shown": 1}
    agents_report.run(AgentsReportConfig.model_validate(section), tmp_path / "returns", tmp_path / "out")
    page, text = ((tmp_path / "out" / name).read_text() for name in ("agents_report.html", "agents_report.md"))
    for one in (page, text):
        assert "Does it know what it knows? (rooms)" in one
    assert page.count("<svg") >= 2
    assert "knowing-rooms.svg" in text
