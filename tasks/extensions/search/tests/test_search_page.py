"""The sentences of the page, from numbers made up."""

import re

import numpy as np
import pytest

from tasks.extensions.search import methods, search_page
from tasks.extensions.search.configs.search import SearchConfig
from tasks.extensions.search.methods import MethodCurve
from tests.conftest import PARAMS

PROBLEMS = 400
NUMBERS = {"sft": {"weights": 1000}, "small": {"weights": 250}}


def config(**changes):
    return SearchConfig.model_validate({**PARAMS["search"], "bootstrap": 200, **changes})


def line(method, shares, ties="chance", tokens=20.0):
    """The first problems are right, so many at each budget that their share is this."""
    right = np.array([np.arange(PROBLEMS) < share * PROBLEMS for share in shares], dtype=float)
    budgets = [2**power for power in range(len(shares))]
    cost = tokens * np.array(budgets)[:, None] * np.ones(PROBLEMS)
    return MethodCurve(method, ties, budgets, right, cost, 0 * cost)


def test_it_says_from_which_budget_on_the_small_model_beats_the_larger_one_s_greedy_answers():
    """A share of 0.5 against 0.4 is beyond chance over 400 problems; pass@n and first wins do not count."""
    small = [
        line("greedy", [0.2]),
        line("pass", [0.9, 0.95, 0.99]),
        line("majority", [0.2, 0.39, 0.5], tokens=5.0),
        line("best_likelihood", [0.3, 0.3, 0.3]),
        line("majority", [0.9, 0.9, 0.9], ties="first"),
    ]
    first, own, other = search_page.format_search_headline(
        config(), {"sft": [line("greedy", [0.4]), line("majority", [0.4])], "small": small}, NUMBERS
    )
    assert (
        first == "sft (1,000 weights) answers 40.0 % [35.3, 44.9] of the problems greedily, with 20 tokens a problem."
    )
    assert own.startswith("sft (1,000 weights) with search: no budget of any method beats its own greedy answers.")
    assert other.startswith(
        "small (250 weights) with search beats sft's greedy answers from majority of 4 on: +10.0 points ["
    )
    assert "at 20 tokens a problem. The largest gain is by majority of 4: +10.0 points" in other


def test_it_says_so_where_no_budget_does():
    lines = {"sft": [line("greedy", [0.4]), line("majority", [0.4, 0.4])], "small": [line("majority", [0.1, 0.395])]}
    _, own, other = search_page.format_search_headline(config(), lines, NUMBERS)
    assert "no budget of any method beats its own greedy answers" in own
    assert "small (250 weights) with search: no budget of any method beats sft's greedy answers." in other
    assert "The nearest is majority of 2: -0.5 points [" in other


def test_a_budget_that_a_larger_one_loses_again_is_no_answer():
    lines = [line("majority", [0.1, 0.6, 0.1])]
    assert [*search_page.iterate_methods_beating_greedy(config(), lines, line("greedy", [0.4]))] == []


def test_intervals_are_of_so_many_resamples():
    base, own = line("greedy", [0.4]), [line("majority", [0.5])]
    few, many = (
        next(search_page.iterate_comparisons_with_greedy(config(bootstrap=n), own, base))["difference"]
        for n in (5, 500)
    )
    assert few.mean == many.mean == pytest.approx(0.1)
    assert (few.low, few.high) != (many.low, many.high)


def test_a_row_of_first_wins_is_shown_only_where_ties_matter():
    lines = [
        line("best_likelihood", [0.2, 0.3]),
        line("majority", [0.2, 0.3]),
        line("best_likelihood", [0.2, 0.3], ties="first"),
        line("majority", [0.2, 0.4], ties="first"),
    ]
    shown = search_page.build_model_table("sft", methods.build_accuracy_table("sft", lines))
    assert [row["name"] for row in shown["rows"]] == ["best by own log-probability", "majority", "majority, first wins"]
    assert shown["budgets"] == [1, 2]


def test_the_figure_has_a_line_for_each_drawn_method_and_the_larger_one_s_greedy_answers():
    lines = [line("greedy", [0.4]), line("majority", [0.2, 0.3]), line("weighted_likelihood", [0.2, 0.3])]
    text = search_page.render_accuracy_figure(methods.build_accuracy_table("sft", lines), "sft")
    words = re.findall(r">([^<>]+)</text>", text)
    assert {"sft", "majority", "sft, greedy", "strict accuracy"} <= {*words}
    assert "weighted majority by own log-probability" not in words
