"""Pairs and rankings of people's judgements."""

import pytest

from tasks.language.judgements import judged_pairs
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import AnswerScores, PairwiseValue
from tests.tasks.language import judged

TEXTS = ("3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "#### 8")
ROWS = [
    {"prompt_id": "train-1", "prompt": "Ada has 3 pens and buys 4?", "sample": n, "response": text}
    | {"tokens": [5, n, 2], "ended": True}
    for n, text in enumerate(TEXTS)
]
PROBLEM = {"question": ROWS[0]["prompt"], "solution": TEXTS[0], "answer": "7"}


def read(*lines, known=None, sampled=None, disagreement="each"):
    record = JudgementRecord()
    for line in lines:
        record.add(line)
    return judged_pairs.build_judged_pairs(record, known or {}, sampled or {}, disagreement)


def words(found):
    """Of each pair: what was preferred to what, with its strength."""
    return [(row["chosen"], row["rejected"], row["strength"]) for row in found.pairs]


def test_a_judgement_of_two_is_a_pair_with_its_level_and_the_sampled_tokens():
    found = read(*judged.pair(ROWS[:2], "b significantly better", order=[1, 0]))
    [row] = found.pairs
    assert (row["chosen"], row["rejected"]) == (TEXTS[1], TEXTS[0])
    assert row["strength"] == "a significantly better", "a is what was shown first"
    assert row["comparison_id"] == "train-1/1-0"
    assert (row["chosen_tokens"], row["rejected_tokens"]) == ([5, 1, 2], [5, 0, 2])
    assert row["person"] == "anna"
    assert "history" not in row
    assert "chosen_score" not in row, "the problem is not known"
    assert [(row["sample"], row["rank"]) for row in found.rankings] == [(0, 2), (1, 1)]


def test_answers_to_a_known_problem_have_rubric_points():
    [row] = read(*judged.pair(ROWS[:2], "a better"), known={"train-1": PROBLEM}).pairs
    assert row["chosen_score"] == 10 > row["rejected_score"]
    other = {**PROBLEM, "question": "Another one of this id?"}
    assert "chosen_score" not in read(*judged.pair(ROWS[:2], "a better"), known={"train-1": other}).pairs[0]


@pytest.mark.parametrize(("said", "bad"), [("tie", 0), ("both bad", 1)])
def test_ties_give_no_pair_and_are_rankings(said, bad):
    found = read(*judged.pair(ROWS[:2], said))
    assert (found.pairs, found.both_bad) == ([], bad)
    assert [row["rank"] for row in found.rankings] == [1, 1]
    assert found.prompts == ["train-1"]


def test_the_lecture_s_ranking_gives_five_pairs_by_distance_in_rank():
    """D > C > A = B: A and B tie, and the others are one or two ranks apart."""
    found = read(*judged.ranking(ROWS, [3, 3, 2, 1]))
    a, b, c, d = TEXTS
    assert words(found) == [
        (c, a, "b slightly better"),
        (d, a, "b better"),
        (c, b, "b slightly better"),
        (d, b, "b better"),
        (d, c, "b slightly better"),
    ]
    assert [row["rank"] for row in found.rankings] == [3, 3, 2, 1]
    assert {row["ranking_id"] for row in found.rankings} == {"train-1/anna"}


def test_scores_say_by_how_much_where_both_answers_have_them():
    def marks(*numbers):
        return AnswerScores(**dict(zip(("helpful", "truthful", "harmless"), numbers, strict=True)))

    scores = [marks(5, 5, 5), marks(3, 3, 3), marks(3, 3, 3), None]
    levels = {row[:2]: row[2] for row in words(read(*judged.ranking(ROWS, [1, 2, 3, 4], scores=scores)))}
    a, b, c, d = TEXTS
    assert levels[a, b] == "a significantly better", "two points apart"
    assert levels[b, c] == "a negligibly better", "ranked apart, but of equal scores"
    assert levels[a, d] == "a significantly better", "three ranks apart, since one has no scores"
    assert levels[c, d] == "a slightly better"


def test_an_edit_is_better_than_all_that_was_shown():
    found = read(*judged.edit(ROWS[2:], TEXTS[0]))
    assert words(found) == [(TEXTS[0], TEXTS[2], "a better"), (TEXTS[0], TEXTS[3], "a better")]
    assert [row["comparison_id"] for row in found.pairs] == ["train-1/edit-2", "train-1/edit-3"]
    assert "chosen_tokens" not in found.pairs[0], "nobody sampled it"
    assert (found.rankings, found.judgements) == ([], {"pairwise": 0, "ranking": 0, "edit": 1})
    assert read(*judged.edit(ROWS[:1], TEXTS[0])).equal == 1


def test_tokens_stay_beside_pairs_without():
    found = read(*judged.pair(ROWS[:2], "a better"), *judged.edit(ROWS[2:3], "So."))
    assert [row["chosen_tokens"] for row in found.pairs] == [None, [5, 0, 2]], "a demonstration comes first"


def disagreeing():
    """Two for the first answer, one for the second, who was shown them the other way round."""
    of = judged.item("pairwise", ROWS[:2])
    said = [("anna", "a better", [0, 1]), ("ben", "a negligibly better", [0, 1]), ("carl", "b better", [1, 0])]
    return [of, *(judged.judgement(of, PairwiseValue(strength=strength), who, order) for who, strength, order in said)]


def test_who_disagrees_is_a_pair_of_its_own_or_outvoted():
    each = read(*disagreeing())
    assert [(row["comparison_id"], row["chosen"], row["person"]) for row in each.pairs] == [
        ("train-1/0-1", TEXTS[0], "anna"),
        ("train-1/0-1#2", TEXTS[0], "ben"),
        ("train-1/1-0", TEXTS[1], "carl"),
    ]
    [row] = read(*disagreeing(), disagreement="majority").pairs
    assert (row["chosen"], row["person"]) == (TEXTS[0], "majority")
    assert row["strength"] == "a slightly better", "between better and negligibly better"
    assert read(*disagreeing()[:2], disagreement="majority").pairs[0]["person"] == "anna"
    draw = [one for one in disagreeing() if getattr(one, "person", "") != "ben"]
    assert read(*draw, disagreement="majority").pairs == []
    assert len({row["ranking_id"] for row in each.rankings}) == 3


def test_known_answers_and_repeats_are_left_out_and_the_last_word_counts():
    gold = judged.item("pairwise", ROWS[:2], gold=PairwiseValue(strength="a better"))
    assert read(gold, judged.judgement(gold, PairwiseValue(strength="a better"))).pairs == []
    of = judged.item("pairwise", ROWS[:2])
    first, again = (judged.judgement(of, PairwiseValue(strength=said)) for said in ("a better", "b better"))
    repeat = judged.judgement(of, PairwiseValue(strength="tie"), repeat=1)
    found = read(of, first, again, repeat)
    assert words(found) == [(TEXTS[1], TEXTS[0], "b better")]
    assert found.judgements["pairwise"] == 1


def test_a_prompt_is_known_by_its_text():
    """Other responses may have come to the same id since; the one that the responses have now keeps it."""
    other = [{**row, "prompt": "Another question?"} for row in ROWS]
    text = (ROWS[0]["prompt"], "")
    lines = [*judged.pair(other[:2], "a better"), *judged.pair(ROWS[:2], "a better")]
    found = read(*lines, sampled={text: "train-1"})
    assert {row["prompt"]: row["prompt_id"] for row in found.pairs} == {
        "Another question?": "train-1#2",
        ROWS[0]["prompt"]: "train-1",
    }
    assert read(*judged.pair(ROWS[:2], "a better"), sampled={text: "train-9"}).pairs[0]["prompt_id"] == "train-9"
