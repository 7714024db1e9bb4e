"""Simulated people: lines of a record of judgements of given responses."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tasks.common.tables import Record
from tasks.language.judgements.lines import (
    Answer,
    EditValue,
    Item,
    Judgement,
    Line,
    PairwiseValue,
    RankingValue,
    compute_item_id,
    format_line_as_json,
)

AT = "2026-01-31T12:00:00Z"


def item(mode: str, rows: Sequence[Record], **more: Any) -> Item:
    """The item of a prompt's responses (rows of Responses)."""
    answers = [
        Answer(
            sample=int(row["sample"]),
            source="sft",
            text=row["response"],
            ended=bool(row["ended"]),
            tokens=tuple(map(int, row["tokens"])) if row.get("tokens") is not None else None,
        )
        for row in rows
    ]
    first = rows[0]
    history = first.get("history", "")
    named = {"prompt_id": first["prompt_id"], "prompt": first["prompt"], "history": history}
    name = compute_item_id(mode, first["prompt"], history, [answer.text for answer in answers])
    return Item(item=name, mode=mode, answers=tuple(answers), **named, **more)


def judgement(of: Item, value: Any, person: str = "anna", order: Sequence[int] | None = None, **more: Any) -> Judgement:
    """What a person said of an item; its id follows from what it says."""
    shown = tuple(range(len(of.answers)) if order is None else order)
    said = {"item": of.item, "mode": of.mode, "person": person, "order": shown, "value": value, "repeat": 0, **more}
    name = hashlib.md5(repr(sorted(said.items(), key=str)).encode(), usedforsecurity=False).hexdigest()
    return Judgement(judgement=name, at=AT, seconds=3.0, **said)


def pair(rows: Sequence[Record], strength: str, person: str = "anna", order: Sequence[int] = (0, 1)) -> list[Line]:
    """A pairwise item with one judgement of it."""
    of = item("pairwise", rows)
    return [of, judgement(of, PairwiseValue(strength=strength), person, order)]


def ranking(rows: Sequence[Record], ranks: Iterable[int], person: str = "anna", scores: Any = None) -> list[Line]:
    """An item of mode ranking with one judgement of it."""
    of = item("ranking", rows)
    return [of, judgement(of, RankingValue(ranks=tuple(map(int, ranks)), scores=scores), person)]


def edit(rows: Sequence[Record], text: str, person: str = "anna") -> list[Line]:
    """An item of mode edit with a better answer."""
    of = item("edit", rows)
    return [of, judgement(of, EditValue(text=text, start=None), person)]


def write(path: Path, lines: Iterable[Line]) -> Path:
    """Append the lines to a file of the record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(format_line_as_json(line) + "\n" for line in lines)
    return path


def two_people(file: Path) -> None:
    """Two people judge two answers to each of thirty prompts, and agree about every second one."""
    for n in range(30):
        one = {"prompt_id": f"mine-{n}", "prompt": f"Ada has {n} pens. How many?", "tokens": [5, n, 2], "ended": True}
        rows = [{**one, "sample": sample, "response": f"{text} {n}"} for sample, text in enumerate(("####", "Some:"))]
        write(file, pair(rows, "a better", "anna"))
        write(file, pair(rows, "a better" if n % 2 else "b better", "ben")[1:])
