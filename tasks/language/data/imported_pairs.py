"""Preference pairs that somebody else collected, as rows of Comparisons, split by prompt into training and test."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.data import forms, messages
from tasks.language.data.columns import Omissions
from tasks.language.data.comparison_rows import unify_comparison_columns
from tasks.language.data.rows import Row, is_held_out, iterate_learnable_rows

Prompt = tuple[str, ...]  # as forms.prompt_key tells them apart


@dataclass(frozen=True)
class GivenPairs:
    """Rows of Comparisons, and how many rows of the source they leave out."""

    train: list[Record]
    test: list[Record]
    equal: int  # the two responses are one text
    duplicates: int  # the same pair stands there twice
    leaked: int  # of rows to train on: their prompt is held out
    contradicted: int  # of the pairs: the rejected answer has the higher score
    omissions: Omissions

    def lines(self, source: str) -> list[str]:
        """What is left out or not read of the rows, and where scores contradict the preference; none where there is
        nothing to say.
        """
        count = len(self.train) + len(self.test)
        contradiction_line = (
            f"{source}: in {self.contradicted:,} of {count:,} pairs the rejected answer has the higher score"
        )
        return [*self.omissions.lines(source), *([contradiction_line] if self.contradicted else [])]


def parse_and_split_pairs(rows: Iterable[Row], test_share: float, seed: int, source: str) -> GivenPairs:
    """Read pairs in any of the forms of `forms.parse_preference_pair`.

    Rows of files whose names say so (rows.HELD_OUT) are held out. If there are none, a share of the prompts is drawn.
    DataError names file, line and field, or says that one side of the split would be empty.
    """
    pairs_by_prompt: dict[Prompt, list[Record]] = {}
    seen: set[tuple[Prompt, str, str]] = set()
    named: set[Prompt] = set()  # prompts of the rows that the files hold out
    omissions = Omissions()
    equal = duplicates = leaked = 0
    ordered_rows = sorted(rows, key=lambda row: not is_held_out(row.name))  # of two equal pairs the held-out one stays
    for row, comparison in _iterate_comparisons(ordered_rows, omissions):
        prompt = forms.build_prompt_key(comparison["prompt"], comparison["history"])
        key = (prompt, comparison["chosen"], comparison["rejected"])
        if comparison["chosen"].strip() == comparison["rejected"].strip():
            equal += 1
        elif key in seen:
            duplicates += 1
        else:
            seen.add(key)
            pairs_by_prompt.setdefault(prompt, []).append(
                {**comparison, "comparison_id": row.name, "held": is_held_out(row.name)}
            )
            if is_held_out(row.name):
                named.add(prompt)
    if len(pairs_by_prompt) < 2:
        raise DataError(
            f"{source}: pairs with {len(pairs_by_prompt)} different prompts; expected at least 2, one to train on "
            "and one to test"
            f"{omissions.format_clause()}"
        )
    kept = (
        named
        if 0 < len(named) < len(pairs_by_prompt)
        else _draw_held_out_prompts(list(pairs_by_prompt), test_share, seed)
    )
    train: list[Record] = []
    test: list[Record] = []
    for number, (prompt, pairs) in enumerate(pairs_by_prompt.items()):
        for comparison in pairs:
            held = comparison.pop("held")
            if prompt in named and kept is named and not held:
                leaked += 1
                continue
            (test if prompt in kept else train).append({**comparison, "prompt_id": f"prompt-{number}"})
    contradicted = sum(
        (comparison["chosen_score"] or 0) < (comparison["rejected_score"] or 0) for comparison in (*train, *test)
    )
    pairs = unify_comparison_columns([*train, *test])
    return GivenPairs(pairs[: len(train)], pairs[len(train) :], equal, duplicates, leaked, contradicted, omissions)


def parse_unsplit_pairs(rows: Iterable[Row], omissions: Omissions | None = None) -> list[Record]:
    """The same rows without a split: pairs that nothing is trained on."""
    comparisons = []
    for number, (row, comparison) in enumerate(_iterate_comparisons(rows, omissions or Omissions())):
        comparisons.append({**comparison, "comparison_id": row.name, "prompt_id": f"prompt-{number}"})
    return unify_comparison_columns(comparisons)


def _iterate_comparisons(rows: Iterable[Row], omissions: Omissions) -> Iterator[tuple[Row, Record]]:
    """The rows that hold a pair, with it; what the others are, and what is not read, is counted in `omissions`."""
    for row, pair in iterate_learnable_rows(rows, forms.parse_preference_pair, omissions):
        try:
            yield row, _build_comparison(pair)
        except ValueError as error:
            raise DataError(f"{row.where}: {error}") from None


def _build_comparison(pair: forms.AnswerPair) -> Record:
    question, history = forms.split_prompt(pair.prompt)
    chosen, rejected = pair.scores or (None, None)
    return {
        "prompt": question,
        "history": history,
        "chosen": messages.format_message_text(pair.chosen),
        "rejected": messages.format_message_text(pair.rejected),
        "chosen_ended": True,
        "rejected_ended": True,
        "chosen_message": ""
        if messages.is_plain_message(pair.chosen)
        else messages.dump_json_field(pair.chosen, "chosen"),
        "rejected_message": ""
        if messages.is_plain_message(pair.rejected)
        else messages.dump_json_field(pair.rejected, "rejected"),
        "chosen_score": chosen,
        "rejected_score": rejected,
        "strength": f"a {pair.level} better".replace("  ", " "),
    }


def _draw_held_out_prompts(prompts: list[Prompt], share: float, seed: int) -> set[Prompt]:
    return set(random.Random(seed).sample(prompts, min(max(1, round(share * len(prompts))), len(prompts) - 1)))
