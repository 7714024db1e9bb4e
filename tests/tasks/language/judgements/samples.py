"""Items and judgements to test with."""

import hashlib

from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import (
    Answer,
    Flag,
    Item,
    Judgement,
    PairwiseValue,
    RankingValue,
    Skip,
    StepsValue,
    Undo,
    compute_item_id,
)
from tasks.language.tables.solutions import split_steps

AT = "2026-01-31T12:00:00Z"


def item(*texts, mode="pairwise", prompt="Why?", history="", gold=None, sources=("sft", "dpo"), tokens=None):
    answers = [
        Answer(sample=n, source=sources[n % len(sources)], text=text, ended=True, tokens=tokens)
        for n, text in enumerate(texts)
    ]
    return Item(
        item=compute_item_id(mode, prompt, history, texts),
        mode=mode,
        prompt_id=f"id of {prompt}",
        prompt=prompt,
        history=history,
        answers=answers,
        steps=split_steps(texts[0]) if mode == "steps" else (),
        gold=gold,
    )


def value_of(said):
    """`a better`, ranks as a tuple or labels as a list."""
    if isinstance(said, str):
        return PairwiseValue(strength=said)
    return RankingValue(ranks=said) if isinstance(said, tuple) else StepsValue(labels=said)


def judgement(item, said, person="anna", order=None, repeat=0, seconds=2.0, number=0, at=AT):
    name = f"{item.item} {said} {person} {repeat} {number}".encode()
    return Judgement(
        judgement=hashlib.md5(name, usedforsecurity=False).hexdigest(),
        item=item.item,
        person=person,
        mode=item.mode,
        order=tuple(range(len(item.answers))) if order is None else order,
        value=value_of(said),
        seconds=seconds,
        repeat=repeat,
        at=at,
    )


def undo(line, person=None):
    return Undo(judgement=line.judgement, person=person or line.person, at=AT)


def skip(item, person="anna", at=AT):
    return Skip(item=item.item, person=person, at=at)


def flag(item, person="anna", reason="it is not a question"):
    return Flag(item=item.item, person=person, reason=reason, at=AT)


def record_of(*lines):
    record = JudgementRecord()
    for line in lines:
        record.add(line)
    return record


def said(lines):
    """Who said what of which answers, in the order of the record."""
    items = {line.item: line for line in lines if isinstance(line, Item)}
    return {
        (line.person, items[line.item].prompt, tuple(answer.text for answer in items[line.item].answers), line.value)
        for line in lines
        if isinstance(line, Judgement)
    }
