"""Lines of the record: each is read back as it was written, and every fault is one line."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.judgements.lines import (
    CRITERIA,
    VERDICTS,
    Answer,
    AnswerScores,
    EditValue,
    Item,
    Judgement,
    RankingValue,
    compute_item_id,
    format_line_as_json,
    parse_line,
)
from tasks.language.tables.solutions import split_steps
from tests.tasks.language.judgements.samples import flag, item, judgement, skip, undo

PAIR = item("yes", "no")
GOOD = json.loads(format_line_as_json(judgement(PAIR, "a better")))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCORED = AnswerScores(helpful=4, truthful=5, harmless=1)


def test_an_items_id_follows_from_its_texts():
    """By hand: sha256 of ["pairwise","Why?","",["yes","no"]]."""
    assert compute_item_id("pairwise", "Why?", "", ["yes", "no"]) == "8c654cf1515decdc" == PAIR.item
    others = [
        ("ranking", "Why?", "", ["yes", "no"]),
        ("pairwise", "Why?", "", ["no", "yes"]),
        ("pairwise", "Why?", "[]", ["yes", "no"]),
    ]
    assert len({compute_item_id(*one) for one in others} | {PAIR.item}) == 4


def test_a_step_is_a_line_that_is_not_blank():
    assert split_steps("2 + 2 = 4\n\n \n  so 4\n") == ("2 + 2 = 4", "  so 4")


def test_lines_have_the_fields_of_the_record_and_no_others():
    assert list(GOOD) == ["kind", "judgement", "item", "mode", "order", "value", "seconds", "repeat", "person", "at"]
    assert set(json.loads(format_line_as_json(PAIR))) == {
        "kind",
        "item",
        "mode",
        "prompt_id",
        "prompt",
        "history",
        "answers",
        "gold",
    }
    assert json.loads(format_line_as_json(item("1\n2", mode="steps")))["steps"] == ["1", "2"]
    edit = EditValue(text="better", start=0)
    assert json.loads(format_line_as_json(judgement(PAIR, "tie").model_copy(update={"value": edit})))["value"] == {
        "text": "better",
        "from": 0,
    }


@pytest.mark.parametrize(
    "line",
    [
        PAIR,
        item("a\n\nb", mode="steps", gold={"labels": [1, -1]}),
        item("a", "b", "c", mode="ranking", tokens=(1, 2), gold={"ranks": [1, 2, 1], "scores": [None, SCORED, None]}),
        item(mode="edit"),
        *(judgement(PAIR, verdict) for verdict in VERDICTS),
        judgement(item("a", "b", "c", mode="ranking"), (1, 2, 1), order=(2, 0, 1)),
        judgement(item("a\nb\nc", mode="steps"), [0, -1, None]),
        undo(judgement(PAIR, "tie")),
        skip(PAIR),
        flag(PAIR),
    ],
)
def test_each_line_is_read_back_as_it_was_written(line):
    text = format_line_as_json(line)
    assert "\n" not in text
    assert parse_line(text) == parse_line(text.encode()) == line


@given(prompt=TEXTS.filter(bool), answers=st.lists(TEXTS, min_size=2, max_size=5), reason=TEXTS)
@settings(max_examples=25)
def test_any_text_is_kept(prompt, answers, reason):
    line = item(*answers, mode="ranking", prompt=prompt)
    assert parse_line(format_line_as_json(line)) == line
    assert "\n" not in format_line_as_json(flag(line, reason=reason))
    assert parse_line(format_line_as_json(flag(line, reason=reason))).reason == reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "verdict"}, "kind: expected item, judgement, undo, skip, flag, got 'verdict'"),
        ({"kind": None}, "kind: expected item"),
        ({"person": "anna/.."}, "person: String should match pattern"),
        ({"person": "anna\n"}, "person: String should match pattern"),
        ({"person": "x" * 65}, "person: String should match pattern"),
        ({"person": ""}, "person: String should match pattern"),
        ({"person": "\ud800"}, "person: expected to be a valid string"),
        ({"at": "2026-13-01T00:00:00Z"}, "at: expected a time in UTC such as"),
        ({"at": "2026-01-01 00:00:00Z"}, "at: expected a time in UTC such as"),
        ({"at": "2026-01-01T00:00:00+"}, "at: expected a time in UTC such as"),
        ({"at": 7}, "at: expected to be a valid string"),
        ({"seconds": -1}, "seconds: expected to be greater than or equal to 0"),
        ({"seconds": True}, "seconds: expected to be a valid number"),
        ({"seconds": "1"}, "seconds: expected to be a valid number"),
        ({"repeat": 1.0}, "repeat: expected to be a valid integer"),
        ({"repeat": True}, "repeat: expected to be a valid integer"),
        ({"order": "01"}, "order: expected to be a valid tuple"),
        ({"order": [0, -1]}, "order.1: expected to be greater than or equal to 0"),
        ({"judgement": "G" * 32}, "judgement: String should match pattern"),
        ({"item": PAIR.item + "0"}, "item: String should match pattern"),
        ({"surprise": 1}, "surprise: unknown field"),
        ({"value": 3}, "value: expected to be an object with strength, ranks, labels or text"),
        ({"value": {}}, "value: expected to be an object with strength, ranks, labels or text"),
        ({"value": {"strength": "a is better"}}, "value.pairwise.strength: expected 'a negligibly better'"),
        ({"value": {"strength": "tie", "x": 1}}, "value.pairwise.x: unknown field"),
        ({"value": {"ranks": [1, 3]}}, "expected ranks 1, 2, .. without a gap, got [1, 3]"),
        ({"value": {"ranks": [0, 1]}}, "expected ranks 1, 2, .. without a gap, got [0, 1]"),
        ({"value": {"ranks": [1, 2], "scores": [None]}}, "expected scores, or null, for each of 2 answers, got 1"),
        ({"value": {"ranks": [1, 2], "scores": [None, dict.fromkeys(CRITERIA, 6)]}}, "less than or equal to 5"),
        ({"value": {"ranks": [1, 2], "scores": [None, {"helpful": 1}]}}, "truthful: is not there"),
        ({"value": {"labels": [1, 2]}}, "value.steps.labels.1: expected -1, 0, 1, got 2"),
        ({"value": {"labels": [True]}}, "expected to be a valid integer"),
        ({"value": {"labels": [1, None, -1]}}, "expected -1, 0 or 1 for each step up to the first bad one, got null"),
        ({"value": {"text": ""}}, "at least 1 character"),
        ({"value": {"text": "x", "start": 0}}, "value.edit.start: unknown field"),
        ({"value": {"text": "x", "from": -1}}, "value.edit.from: expected to be greater"),
    ],
)
def test_a_wrong_judgement_is_one_line(change, words):
    with pytest.raises(ValueError, match=re.escape(words)) as stopped:
        parse_line(json.dumps({**GOOD, **change}))
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("name", [name for name in GOOD if name != "kind"])
def test_a_missing_field_is_named(name):
    with pytest.raises(ValueError, match=f"^{name}: is not there$"):
        parse_line(json.dumps({key: value for key, value in GOOD.items() if key != name}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": "Who?"}, "item: expected [0-9a-f]{16}, which follows from mode"),
        ({"mode": "ranking"}, "item: expected"),
        ({"mode": "steps"}, "expected 1 answers in mode steps, got 2"),
        ({"answers": []}, "expected 2 answers in mode pairwise, got 0"),
        ({"steps": ["yes"]}, "steps: expected the lines of the answer"),
        ({"gold": {"ranks": [1, 2]}}, "gold: expected a value of mode pairwise, got one of mode ranking"),
        ({"answers": [{"sample": 0, "source": "", "text": "yes", "ended": 1, "tokens": None}]}, "answers.0.ended"),
        ({"answers": [{"sample": 0, "source": "", "text": "yes", "ended": True, "tokens": []}]}, "answers.0.tokens"),
    ],
)
def test_a_wrong_item_is_one_line(change, words):
    with pytest.raises(ValueError, match=words):
        parse_line(json.dumps({**json.loads(format_line_as_json(PAIR)), **change}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected JSON: "),
        ("7", "expected an object, got int"),
        ("[" * 10**6, "not nested so deeply"),
        ('{"a":' * 10**5, "not nested so deeply"),
        ('{"kind": "skip", "kind": "undo"}', "'kind' is there twice; expected it once"),
        ('{"kind": NaN}', "expected numbers, got NaN"),
        ('{"kind": -Infinity}', "expected numbers, got -Infinity"),
        ("1" * 5000, "limit"),
        ('{"seconds": "a\tb"}', "expected JSON: Invalid control character"),
        ("<<<<<<< HEAD", "a conflict of git stands here"),
        (b"=======", "a conflict of git stands here"),
        (b'{"kind": "\xff"}', "expected UTF-8, found byte 0xff at 10"),
        (
            format_line_as_json(judgement(PAIR, "tie")).replace("2.0", "1e999"),
            "seconds: expected to be a finite number",
        ),
    ],
)
def test_what_is_no_json_object_is_one_line(text, words):
    with pytest.raises(ValueError, match=words):
        parse_line(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(sorted(GOOD)),
)
@settings(max_examples=12)
def test_any_other_value_is_refused_or_kept_as_it_is(value, name):
    """Nothing but ValueError comes out of it."""
    text = json.dumps({**GOOD, name: value})
    try:
        line = parse_line(text)
    except ValueError:
        return
    assert isinstance(line, Judgement)
    assert json.loads(format_line_as_json(line)) == json.loads(text)


def test_an_item_is_checked_where_it_is_made():
    with pytest.raises(ValueError, match="which follows from mode"):
        Item(**{**PAIR.model_dump(), "item": "0" * 16})
    with pytest.raises(ValueError, match="tokens"):
        Answer(sample=0, source="sft", text="x", ended=True, tokens=[-1])
    with pytest.raises(ValueError, match="without a gap"):
        RankingValue(ranks=(2, 3))
