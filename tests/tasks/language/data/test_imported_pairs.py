"""Given pairs: split by prompt, nothing lost but what is counted."""

import json
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common.errors import StageError
from tasks.language.data.imported_pairs import parse_and_split_pairs, parse_unsplit_pairs
from tasks.language.data.rows import Row
from tasks.language.tables.preferences import Comparisons


def row(prompt, chosen="good", rejected="bad", **more):
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def of(train, test=()):
    named = [("train", train), ("test", test)]
    return [
        Row(values, f"{name}-{n}", f"{name}.jsonl: line {n + 1}")
        for name, rows in named
        for n, values in enumerate(rows)
    ]


def split(train, test=(), share=0.25, seed=0):
    return parse_and_split_pairs(of(train, test), share, seed, "data/raw/preferences")


def texts(rows):
    return [(one["prompt"], one["chosen"], one["rejected"]) for one in rows]


TEN = [row(f"Question {n}?", rejected=f"bad {n}") for n in range(10)]


def test_a_share_of_the_prompts_is_held_out():
    found = split([*TEN, *[row(one["prompt"], "better", "worse") for one in TEN]], share=0.3)
    assert (len(found.train), len(found.test)) == (14, 6)
    assert not {one["prompt"] for one in found.train} & {one["prompt"] for one in found.test}
    assert (found.equal, found.duplicates, found.leaked) == (0, 0, 0)
    for side in (found.train, found.test):
        Comparisons.validate(pd.DataFrame(side))
        by_prompt = {one["prompt"]: one["prompt_id"] for one in side}
        assert [by_prompt[one["prompt"]] for one in side] == [one["prompt_id"] for one in side]
        assert len({*by_prompt.values()}) == len(by_prompt)


def test_the_seed_decides():
    one, same, other = (split(TEN, seed=seed, share=0.5) for seed in (0, 0, 1))
    assert one == same
    assert texts(one.test) != texts(other.test)


def test_files_that_begin_with_test_are_held_out():
    found = split(TEN[:6], TEN[6:], share=0.9)
    assert texts(found.train) == texts(TEN[:6])
    assert texts(found.test) == texts(TEN[6:])


def test_prompts_that_are_held_out_are_dropped_from_training_and_counted():
    """Each prompt leaks by its text and its history; the same question behind another system prompt is another
    prompt.
    """
    behind = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Question 7?"}]
    found = split([*TEN[:6], row("Question 6?", "x"), row("Question 6?", "y"), row(behind)], TEN[6:])
    assert found.leaked == 2
    assert texts(found.train) == [*texts(TEN[:6]), ("Question 7?", "good", "bad")]
    assert texts(found.test) == texts(TEN[6:])
    [other] = [one for one in found.train if one["prompt"] == "Question 7?"]
    assert json.loads(other["history"]) == behind[:1]
    assert other["prompt_id"] not in {one["prompt_id"] for one in found.test}
    assert {one["history"] for one in [*found.train[:-1], *found.test]} == {""}


def test_duplicates_and_equal_texts_are_left_out_and_counted():
    """The same pair the other way round is another pair: people disagree."""
    found = split([*TEN, TEN[3], TEN[3], row("Question 4?", "same", " same\n"), row("Question 3?", "bad 3", "good")])
    assert (found.duplicates, found.equal, found.leaked) == (2, 1, 0)
    assert len(found.train) + len(found.test) == 11


def test_a_duplicate_in_both_files_is_held_out():
    found = split(TEN, TEN[8:])
    assert texts(found.train) == texts(TEN[:8])
    assert texts(found.test) == texts(TEN[8:])
    assert (found.leaked, found.duplicates) == (0, 2)


def test_scores_are_kept_where_every_row_has_them():
    scored = [{**one, "score_chosen": 8.5, "score_rejected": n} for n, one in enumerate(TEN)]
    found = split(scored)
    kept = {one["rejected"]: (one["chosen_score"], one["rejected_score"]) for one in [*found.train, *found.test]}
    assert kept == {f"bad {n}": (8.5, float(n)) for n in range(10)}
    less = split([*scored[:9], TEN[9]])
    assert not any("chosen_score" in one or "rejected_score" in one for one in [*less.train, *less.test])


def test_how_much_better_is_kept():
    said = ("better", "slightly better", "negligibly better", "b significantly better")
    found = split([{**one, "strength": said[n % 4]} for n, one in enumerate(TEN)])
    kept = {one["rejected"]: one["strength"] for one in [*found.train, *found.test]}
    assert kept == {f"bad {n}": f"a {said[n % 4].removeprefix('b ')}" for n in range(10)}


@pytest.mark.parametrize(
    ("train", "test", "prompts"),
    [
        ([], [], 0),
        (TEN[:1], [], 1),
        ([TEN[0], row("Question 0?", "x")], [], 1),
        ([row("a", "same", "same"), TEN[0]], [], 1),
    ],
)
def test_too_few_prompts_are_one_line(train, test, prompts):
    with pytest.raises(StageError) as stopped:
        split(train, test)
    expected = "expected at least 2, one to train on and one to test"
    assert str(stopped.value) == f"data/raw/preferences: pairs with {prompts} different prompts; {expected}"
    with pytest.raises(StageError, match=r"; rows left out: 2 without an answer$"):
        split([*train, row("b", "", "x"), row("c", None, "x")], test)


def test_nothing_left_to_train_on_is_one_line():
    """All prompts are held out by their file: the file is taken for all there is, and split."""
    found = split([], TEN, share=0.2)
    assert (len(found.train), len(found.test)) == (8, 2)
    both = split(TEN, TEN, share=0.2)
    assert not {one["prompt"] for one in both.train} & {one["prompt"] for one in both.test}


def test_a_bad_row_is_named():
    with pytest.raises(StageError, match=r"^train\.jsonl: line 2: field 'rejected' is int 3"):
        split([TEN[0], row("x", rejected=3)])
    with pytest.raises(StageError, match=r"^train\.jsonl: line 1: the prompt ends with a turn of system"):
        split([row([{"role": "user", "content": "x"}, {"role": "system", "content": "3"}])])


PAIRS = st.lists(st.builds(row, st.sampled_from("abcdef"), st.sampled_from("xyz"), st.sampled_from("xyz")))


@given(PAIRS, PAIRS, st.floats(0.01, 0.99), st.integers(0, 9))
@settings(max_examples=12)
def test_no_prompt_on_both_sides_and_nothing_lost_but_what_is_counted(train, test, share, seed):
    found = None
    try:
        found = split(train, test, share, seed)
    except StageError:
        found = None
    if found is None:
        assert len({one["prompt"] for one in [*train, *test] if one["chosen"] != one["rejected"]}) < 2
        return
    sides = [{one["prompt"] for one in side} for side in (found.train, found.test)]
    assert sides[0]
    assert sides[1]
    assert not sides[0] & sides[1]
    kept = Counter(texts([*found.train, *found.test]))
    assert set(kept.values()) == {1}
    assert len(kept) + found.equal + found.duplicates + found.leaked == len(train) + len(test)
    given_pairs = {pair for pair in texts([*train, *test]) if pair[1] != pair[2]}
    assert {*kept} <= given_pairs
    if not found.leaked:
        assert {*kept} == given_pairs
    for side in (found.train, found.test):
        Comparisons.validate(pd.DataFrame(side))


def test_files_that_ask_the_same_prompts_are_split_as_one():
    """If every prompt is in a held-out file, none would be left to train on: a share is drawn, and no row is left
    out.
    """
    found = split(TEN, [row(one["prompt"], "better", "worse") for one in TEN], share=0.2)
    assert (len(found.train), len(found.test), found.leaked) == (16, 4, 0)
    assert not {one["prompt"] for one in found.train} & {one["prompt"] for one in found.test}


def test_pairs_that_nothing_is_trained_on_are_all_kept_each_with_its_prompt():
    """Duplicates too; of scores and histories those columns stay that every row needs."""
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    found = parse_unsplit_pairs(of([row("How?", score_chosen=2, score_rejected=1), row(asked), row(asked)]))
    assert [one["prompt"] for one in found] == ["How?", "Why?", "Why?"]
    assert len({one["prompt_id"] for one in found}) == len(found)
    assert [bool(one["history"]) for one in found] == [False, True, True]
    assert "chosen_score" not in found[0]
    Comparisons.validate(pd.DataFrame(found))
    assert parse_unsplit_pairs([]) == []
