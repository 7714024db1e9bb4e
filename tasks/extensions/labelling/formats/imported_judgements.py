"""Judgements that another tool collected, as lines of the record.

What such a tool does not say is set so: an answer has ended and has no tokens, its source is `""` unless it is known,
and the answers were shown as they stand. A judgement's id follows from what it says, so that a file that is read in
twice counts once.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tasks.language.judgements.lines import (
    Answer,
    Item,
    Judgement,
    Line,
    Mode,
    Value,
    compute_item_id,
    find_value_fault,
)
from tasks.language.tables.solutions import split_steps


class PersonalJudgement(NamedTuple):
    """One person's judgement of answers to a prompt."""

    prompt_id: str
    prompt: str
    history: str
    answers: Sequence[str]
    mode: Mode
    value: Value
    person: str
    seconds: float  # 0: not known


def build_record_lines(judgements: Iterable[PersonalJudgement], at: str) -> list[Line]:
    """Items before their judgements, each once; `at` is when they were read in, as the record has times."""
    lines_by_id: dict[str, Line] = {}
    for judgement in judgements:
        item = _build_item(judgement)
        lines_by_id.setdefault(item.item, item)
        identity = [item.item, judgement.person, judgement.value.model_dump(mode="json", by_alias=True)]
        name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
        lines_by_id[name] = Judgement(
            judgement=name,
            item=item.item,
            person=judgement.person,
            mode=judgement.mode,
            order=tuple(range(len(judgement.answers))),
            value=judgement.value,
            seconds=judgement.seconds,
            repeat=0,
            at=at,
        )
    return list(lines_by_id.values())


def _build_item(judgement: PersonalJudgement) -> Item:
    item = Item(
        item=compute_item_id(judgement.mode, judgement.prompt, judgement.history, judgement.answers),
        mode=judgement.mode,
        prompt_id=judgement.prompt_id,
        prompt=judgement.prompt,
        history=judgement.history,
        answers=tuple(
            Answer(sample=number, source="", text=text, ended=True, tokens=None)
            for number, text in enumerate(judgement.answers)
        ),
        steps=split_steps(judgement.answers[0]) if judgement.mode == "steps" else (),
    )
    if wrong := find_value_fault(judgement.value, item):
        raise ValueError(wrong)
    return item


def clean_person_name(name: object) -> str:
    """A name that the record can keep: what stands for no letter, digit, space or one of `_.@-` becomes `_`."""
    text = re.sub(r"[^\w .@-]", "_", str(name))[:64] if name is not None else ""
    if not text:
        raise ValueError("there is no name of who judged; expected one")
    return text


def compute_dense_ranks(numbers: Sequence[float]) -> tuple[int, ...]:
    """Ranks from 1 without a gap, from any numbers of which the smallest is best."""
    distinct = sorted(set(numbers))
    return tuple(distinct.index(number) + 1 for number in numbers)
