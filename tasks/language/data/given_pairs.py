"""Preference pairs that somebody else collected, as rows of Comparisons, split by prompt into training and test."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.data import forms
from tasks.language.data.comparison_rows import alike
from tasks.language.data.rows import Row, held_out, parsed

Prompt = tuple[str, str]  # the question, and its history


@dataclass(frozen=True)
class GivenPairs:
    """Rows of Comparisons, and how many rows of the source they leave out."""

    train: list[Record]
    test: list[Record]
    equal: int  # the two responses are one text
    duplicates: int  # the same pair stands there twice
    leaked: int  # of rows to train on: their prompt is held out


def read(rows: Iterable[Row], test_share: float, seed: int, source: str) -> GivenPairs:
    """Read pairs in any of the forms of `forms.pair`.

    Rows of files whose names say so (rows.HELD_OUT) are held out. If there are none, a share of the prompts is drawn.
    DataError names file, line and field, or says that one side of the split would be empty.
    """
    found: dict[Prompt, list[Record]] = {}
    seen: set[tuple[str, ...]] = set()
    named: set[Prompt] = set()  # prompts of the rows that the files hold out
    equal = duplicates = leaked = 0
    given = sorted(rows, key=lambda row: not held_out(row.name))  # of two equal pairs the held-out one stays
    for row in given:
        one = parsed(row, _comparison)
        prompt, key = (one["prompt"], one["history"]), (one["prompt"], one["history"], one["chosen"], one["rejected"])
        if one["chosen"].strip() == one["rejected"].strip():
            equal += 1
        elif key in seen:
            duplicates += 1
        else:
            seen.add(key)
            found.setdefault(prompt, []).append({**one, "comparison_id": row.name, "held": held_out(row.name)})
            if held_out(row.name):
                named.add(prompt)
    if len(found) < 2:
        raise DataError(
            f"{source}: pairs with {len(found)} different prompts; expected at least 2, one to train on and one to test"
        )
    kept = named if 0 < len(named) < len(found) else _drawn(list(found), test_share, seed)
    train: list[Record] = []
    test: list[Record] = []
    for number, (prompt, pairs) in enumerate(found.items()):
        for one in pairs:
            held = one.pop("held")
            if prompt in named and kept is named and not held:
                leaked += 1
                continue
            (test if prompt in kept else train).append({**one, "prompt_id": f"prompt-{number}"})
    pairs = alike([*train, *test])
    return GivenPairs(pairs[: len(train)], pairs[len(train) :], equal, duplicates, leaked)


def read_all(rows: Iterable[Row]) -> list[Record]:
    """The same rows without a split: pairs that nothing is trained on."""
    found = []
    for number, row in enumerate(rows):
        found.append({**parsed(row, _comparison), "comparison_id": row.name, "prompt_id": f"prompt-{number}"})
    return alike(found)


def _comparison(row: Record) -> Record:
    pair = forms.pair(row)
    question, history = forms.split_prompt(pair.prompt)
    chosen, rejected = pair.scores or (None, None)
    return {
        "prompt": question,
        "history": history,
        "chosen": pair.chosen,
        "rejected": pair.rejected,
        "chosen_ended": True,
        "rejected_ended": True,
        "chosen_score": chosen,
        "rejected_score": rejected,
        "strength": f"a {pair.level} better".replace("  ", " "),
    }


def _drawn(prompts: list[Prompt], share: float, seed: int) -> set[Prompt]:
    return set(random.Random(seed).sample(prompts, min(max(1, round(share * len(prompts))), len(prompts) - 1)))
