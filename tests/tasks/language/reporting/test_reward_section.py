"""What the report says of a reward model, by hand."""

import numpy as np
import pandas as pd
import pytest

from tasks.common import tables
from tasks.language.reporting.reward_section import FILE, build_reward_section, find_first_bad_step
from tasks.language.tables.held_out import HeldOut


def comparison(number, chosen_reward, strength="a better", lengths=(5, 5), scores=(6.0, 3.0), **more):
    return {
        "prompt_id": f"p-{number}",
        "prompt": f"What is {number}?",
        "comparison_id": f"p-{number}/0-1{more.get('person', '')}",
        "chosen": f"right {number}",
        "rejected": f"wrong {number}",
        "strength": strength,
        "chosen_score": scores[0],
        "rejected_score": scores[1],
        "chosen_reward": chosen_reward,
        "rejected_reward": 0.0,
        "chosen_length": lengths[0],
        "rejected_length": lengths[1],
        **more,
    }


def made(rows, folder):
    tables.write_table(HeldOut, pd.DataFrame(rows), folder / FILE)
    return build_reward_section(folder, 0, 200)


def shares(found, heading):
    rows = next(rows for name, rows in found.tables if heading in name)
    return {row.name: (row.count, round(row.right.mean, 3)) for row in rows}


def test_comparisons_by_strength_and_length(tmp_path):
    found = made(
        [
            comparison(0, 2.0, "a significantly better", (5, 15)),
            comparison(1, -1.0, "b significantly better", (15, 5)),
            comparison(2, 1.0, "a negligibly better", (5, 5)),
            comparison(3, -3.0, "a slightly better", (7, 5)),
            comparison(4, 0.0, "b better", (5, 8)),
        ],
        tmp_path,
    )
    assert shares(found, "by strength") == {
        "all": (5, 0.5),  # two right, two wrong, a tie
        "significantly better": (2, 0.5),
        "better": (1, 0.5),
        "slightly better": (1, 0.0),
        "negligibly better": (1, 1.0),
    }
    assert shares(found, "difference of lengths") == {  # the median difference is 3 tokens
        "chosen shorter, by more than 3 tokens": (1, 1.0),
        "chosen shorter": (1, 0.5),
        "equally long": (1, 1.0),
        "chosen longer": (1, 0.0),
        "chosen longer, by more than 3 tokens": (1, 0.0),
    }
    assert [sides[1]["text"] for sides in found.mistakes] == ["right 3", "right 1"]  # by how much they are wrong
    assert len(found.figures) == 2
    assert all(svg.startswith("<svg") for svg in found.figures.values())


def test_judges_agree_on_the_comparisons_that_both_order(tmp_path):
    rows = [
        comparison(0, 1.0, person="anna"),
        comparison(0, 1.0, person="ben"),
        comparison(1, 1.0, scores=(2.0, 4.0), person="anna"),
        {**comparison(1, 1.0, person="ben"), "chosen": "wrong 1", "rejected": "right 1"},
        comparison(2, 1.0, scores=(3.0, 3.0), person="anna"),
    ]
    rows[3] |= {"chosen_reward": 0.0, "rejected_reward": 1.0, "chosen_score": 4.0, "rejected_score": 2.0}
    assert shares(made(rows, tmp_path), "two judges") == {
        "reward model and given scores": (2, 0.5),
        "reward model and anna": (3, 1.0),
        "reward model and ben": (2, 0.5),
        "given scores and anna": (2, 0.5),
        "given scores and ben": (2, 1.0),
        "anna and ben": (2, 0.5),
    }


def solution(number, right, reward, bad=None, truth=None):
    lists = {} if bad is None else {"labels": truth, "truth": truth, "bad": bad}
    if bad is not None:
        lists |= {"neutral": [0.0] * len(bad), "good": [1 - chance for chance in bad]}
    return {
        "prompt_id": f"p-{number}",
        "prompt": f"What is {number}?",
        "solution_id": f"p-{number}/0",
        "response": "1 + 1 = 2\n\n2 + 2 = 5\n#### 5",
        "right": right,
        "reward": reward,
        "length": 9,
        **lists,
    }


def test_solutions_by_their_outcome(tmp_path):
    found = made([solution(0, True, 0.9), solution(1, True, 0.2), solution(2, False, 0.4)], tmp_path)
    assert shares(found, "whether they are right") == {
        "all": (3, 0.667),
        "right solutions": (2, 0.5),
        "wrong solutions": (1, 1.0),
    }
    assert found.mistakes[0][1]["said"] == "right, reward 0.20"


def test_steps_by_class_and_the_first_wrong_one(tmp_path):
    found = made(
        [
            solution(0, False, 0.3, [0.1, 0.7, 0.9], [1, -1, -1]),
            solution(1, False, 0.3, [0.1, 0.2, 0.9], [0, -1, -1]),
            solution(2, True, 0.8, [0.1, 0.2, 0.6], [1, 1, 1]),
        ],
        tmp_path,
    )
    assert shares(found, "steps") == {"bad steps": (4, 0.75), "neutral steps": (1, 1.0), "good steps": (4, 0.75)}
    assert shares(found, "first wrong step") == {
        "solutions with a wrong step": (2, 0.5),
        "solutions without one": (1, 0.0),
    }
    assert "0.30  2 + 2 = 5\n0.10  #### 5" in found.mistakes[0][1]["text"] + found.mistakes[1][1]["text"]


@pytest.mark.parametrize(("bad", "place"), [([0.1, 0.6, 0.9], 1), ([0.5, 0.5], -1), ([], -1)])
def test_the_first_wrong_step(bad, place):
    assert find_first_bad_step(np.array(bad)) == place


def test_a_model_from_elsewhere_has_no_section(tmp_path):
    assert build_reward_section(tmp_path, 0, 10) is None


def untrained(trained_right, untrained_right, count=40):
    """Comparisons of as many prompts, of which the model orders the first `trained_right` rightly, the untrained one
    the first `untrained_right`.
    """
    return [
        comparison(
            number,
            1.0 if number < trained_right else -1.0,
            chosen_untrained=1.0 if number < untrained_right else -1.0,
            rejected_untrained=0.0,
        )
        for number in range(count)
    ]


def test_whether_training_helped_is_told_against_the_untrained_log_probability(tmp_path):
    found = made(untrained(30, 30), tmp_path)
    assert (found.gain.before, found.gain.after, found.gain.difference.mean) == (0.75, 0.75, 0.0)
    assert "whether training helped cannot be told" in found.helped
    better = made(untrained(38, 18), tmp_path)
    assert better.helped.startswith(
        "It orders 95.00 % of the held-out comparisons as labelled, and the mean log-probability a token of the "
        "policy that it started from, "
        "untrained, 45.00 %. The difference is +50.00 points ("
    )
    assert better.helped.endswith(": training helped).")
    assert made(untrained(18, 38), tmp_path).helped.endswith(": training did harm).")
    assert "too few comparisons" in made(untrained(20, 10, count=25), tmp_path).helped
    assert made([comparison(number, 1.0) for number in range(40)], tmp_path).helped == "", "a head has no such measure"


def test_the_summed_log_probability_is_the_measure_where_it_orders_more(tmp_path):
    """-1 nat a token over 2 tokens is likelier than -0.9 over 3; where the chosen answers are the longer ones it is the
    other way round.
    """
    shorter = [
        comparison(number, 1.0, lengths=(2, 3), chosen_untrained=-1.0, rejected_untrained=-0.9) for number in range(40)
    ]
    assert (made(shorter, tmp_path).gain.by, made(shorter, tmp_path).gain.before) == ("log-probability", 1.0)
    longer = [
        comparison(number, 1.0, lengths=(3, 2), chosen_untrained=-0.9, rejected_untrained=-1.0) for number in range(40)
    ]
    assert (made(longer, tmp_path).gain.by, made(longer, tmp_path).gain.before) == ("mean log-probability a token", 1.0)


def test_how_well_it_knows_right_answers_is_told_of_comparisons_with_one(tmp_path):
    """The labels prefer the wrong answer in 20 of 40 comparisons; the model follows the labels, the policy the
    answers.
    """
    rows = [
        comparison(
            number,
            1.0,
            chosen_right=number < 20,
            rejected_right=number >= 20,
            chosen_untrained=1.0 if number < 20 else -1.0,
            rejected_untrained=0.0,
        )
        for number in range(40)
    ]
    both_right = [
        {**row, "prompt_id": f"q-{n}", "comparison_id": f"q-{n}/0-1", "chosen_right": True, "rejected_right": True}
        for n, row in enumerate(rows)
    ]
    found = made([*rows, *both_right], tmp_path)
    assert (found.correctness.before, found.correctness.after) == (1.0, 0.5)
    assert found.knows_answers.startswith(
        "Of the held-out comparisons with one right answer it prefers that one in 50.00 %, and the"
    )
    assert found.knows_answers.endswith(": it is below).")
    assert made(untrained(30, 30), tmp_path).knows_answers == "", "nobody knows which answers are right"
    assert made(both_right, tmp_path).knows_answers == ""


def test_of_few_rows_or_prompts_no_interval_is_shown(tmp_path):
    many = made([comparison(number, 1.0 if number % 3 else -1.0) for number in range(40)], tmp_path)
    assert next(iter(many.tables[0][1])).interval
    assert build_reward_section(tmp_path, 0, 20).tables != build_reward_section(tmp_path, 0, 200).tables, (
        "resamples make the interval"
    )
    few = made([comparison(number, 1.0 if number % 3 else -1.0) for number in range(29)], tmp_path)
    assert {row.interval for _, rows in few.tables for row in rows} == {""}
    of_ten_prompts = [
        {**comparison(number, 1.0 if number % 3 else -1.0), "prompt_id": f"p-{number % 10}"} for number in range(40)
    ]
    assert {row.interval for _, rows in made(of_ten_prompts, tmp_path).tables for row in rows} == {""}


def test_each_figure_says_what_it_shows(tmp_path):
    found = made([comparison(number, 1.0) for number in range(40)], tmp_path)
    assert found.captions.keys() == found.figures.keys()
    assert len({*found.captions.values()}) == len(found.figures)
