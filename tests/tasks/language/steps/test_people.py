"""Several people's labels of one solution, by hand."""

import pytest

from tasks.common import models
from tasks.language.data import chat
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import Answer, Item, Judgement, StepsValue, compute_item_id
from tasks.language.steps import people


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([[1, 0, -1]], [1, 0, -1]),
        ([[1, -1, None]], [1, -1, -1]),  # behind the first wrong step nobody went on
        ([[1, 1, 1], [1, -1, None], [1, 1, 0]], [1, 1, 0]),  # of the two who judged it, the worse
        ([[1, 1], [-1, None], [-1, 1]], [-1, 1]),  # it was judged, so it stays
        ([[1], [0], [-1]], [-1]),
        ([[1], [0], [0], [-1], [-1], [0]], [0]),
        ([[-1, None, None], [1, -1, None]], [-1, -1, -1]),
    ],
)
def test_the_majority(said, expected):
    assert people.merge_labels_by_majority(said) == expected


def solution(text, tokens=None):
    return Item(
        item=compute_item_id("steps", "Why?", "", [text]),
        mode="steps",
        prompt_id="p",
        prompt="Why?",
        history="",
        answers=(Answer(sample=0, source="sft", text=text, ended=True, tokens=tokens),),
        steps=tuple(text.split("\n")),
    )


def judgement(number, item, person, *labels):
    return Judgement(
        judgement=f"{number:032x}", item=item.item, mode="steps", order=(0,), value=StepsValue(labels=labels),
        seconds=1.0, repeat=0, person=person, at="2026-01-31T12:00:00Z",
    )  # fmt: skip


def test_a_person_has_one_voice_and_solutions_that_nobody_judged_are_left_out():
    record, first, second = JudgementRecord(), solution("a\nb"), solution("c")
    lines = [judgement(0, first, "anna", 1, -1), judgement(1, first, "ben", 0, 0), judgement(2, first, "anna", 0, 1)]
    for line in (first, second, *lines):
        record.add(line)
    assert people.collect_judged_solutions(record) == [(first, [0, 0])], (
        "anna's second judgement, and of 0 and 1 the worse"
    )


def test_tokens_of_another_tokenizer_are_not_taken(made):
    words = models.load_tokenizer(made / "pretrained")
    text = "3 + 4 = 7\n#### 7"
    [three] = chat.encode_response(words, "3", ended=False)
    own = chat.encode_response(words, text)
    for given in (None, own, [10**6, 2], [three, 10**9], [three]):
        assert people.get_or_encode_answer_tokens(words, solution(text, given).answers[0]) == own
    other = [*chat.encode_response(words, "3 + 4 =", ended=False), *chat.encode_response(words, " 7\n#### 7")]
    assert people.get_or_encode_answer_tokens(words, solution(text, other).answers[0]) == other, (
        "as the model sampled them"
    )
