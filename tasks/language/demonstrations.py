"""What supervised fine-tuning imitates: worked solutions of the training problems, conversations from files or a hub,
or the answers that people wrote where they judged.
"""

import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.configs.demonstrations import DemonstrationsConfig
from tasks.language.data import forms
from tasks.language.data.columns import Omissions
from tasks.language.data.rows import Row, fetch_hub_rows, is_held_out, iterate_learnable_rows, read_files
from tasks.language.judgements import judged_pairs, judgement_log
from tasks.language.judgements.lines import EditValue
from tasks.language.tables.problems import Demonstrations, Problems
from tasks.stage import Metrics, main

METRICS = {
    "train": "The number of conversations or texts to learn from.",
    "validation": "The number of conversations or texts that are held out, by which the held-out loss is measured.",
    "duplicates": "The number of rows that were left out, since they repeat another one word for word.",
    "leaked": "The number of rows that were left out, since they ask a validation or test problem, or open as a "
    "held-out row does.",
    "left_out": "The number of rows that were left out since nothing can be learned from them: without an answer, "
    "or with one that is labelled as bad or as not learned.",
}


def run(config: DemonstrationsConfig, problems: Path, raw: Path, out: Path) -> Metrics:
    """Write train.parquet and validation.parquet (schema Demonstrations), which share no prompt."""
    duplicates = leaked = left_out = 0
    if config.source == "problems":
        train, validation = load_problem_demonstrations(problems)
    else:
        rows, omissions = read_or_fetch_demonstrations(config, raw)
        for line in omissions.lines("demonstrations"):
            print(line, file=sys.stderr, flush=True)
        unique = list({(row["messages"], row["text"]): row for row in rows}.values())
        held_out_prompts = load_held_out_question_keys(problems)
        kept = [
            row for row in unique if not held_out_prompts & set(map(forms.build_prompt_key, list_user_questions(row)))
        ]
        train, validation = split_demonstrations(config, kept, config.hub_id if config.source == "hub" else config.path)
        duplicates = len(rows) - len(unique)
        leaked = len(unique) - len(train) - len(validation)
        left_out = omissions.left_out.total()
    for name, part in (("train", train), ("validation", validation)):
        tables.write_table(Demonstrations, pd.DataFrame(part), out / f"{name}.parquet")
    tracking.record_table(pd.DataFrame(train[:20]), "demonstrations.json")
    return {
        "train": len(train),
        "validation": len(validation),
        "duplicates": duplicates,
        "leaked": leaked,
        "left_out": left_out,
    }


def load_problem_demonstrations(problems: Path) -> tuple[list[Record], list[Record]]:
    """The stage `problems` made the demonstrations of its training and validation problems."""
    train, validation = (
        tables.list_records(tables.read_table(Demonstrations, problems / f"{name}_demonstrations.parquet"))
        for name in ("train", "validation")
    )
    if not train or not validation:
        part = "validation" if train else "training"
        raise DataError(f"{problems}: the {part} problems have no solutions to imitate; set demonstrations.source")
    return train, validation


def read_or_fetch_demonstrations(config: DemonstrationsConfig, raw: Path) -> tuple[list[Record], Omissions]:
    """The rows of the files, the hub's data set or people's record, and what is not taken of them.

    DataError names a row that is in none of the forms.
    """
    omissions = Omissions()
    if config.source == "people":
        return load_people_demonstrations(raw), omissions
    if config.source == "files":
        rows: Iterable[Row] = read_files(raw)
    else:
        rows = fetch_hub_rows(config.hub_id, config.hub_config, config.hub_revision, config.hub_split)
    demonstrations = []
    for row, talk in iterate_learnable_rows(rows, forms.parse_demonstration, omissions):
        messages = forms.dump_messages_json(talk.messages) if talk.messages else ""
        demonstrations.append({"demonstration_id": row.name, "messages": messages, "text": talk.text})
    return demonstrations, omissions


def load_people_demonstrations(path: Path) -> list[Record]:
    """The better answers that people wrote, each behind its prompt."""
    judgement_record = judgement_log.read_judgement_record(path)
    rows = []
    for judgement in judged_pairs.select_counted_judgements(judgement_record):
        if isinstance(judgement.value, EditValue):
            item = judgement_record.items[judgement.item]
            problem = {
                "problem_id": f"{judgement.item}/{judgement.person}",
                "question": item.prompt,
                "history": item.history,
            }
            rows.append(forms.build_demonstration_row(problem, judgement.value.text))
    return rows


def list_user_questions(row: Record) -> list[str]:
    """What the user says in a conversation, turn by turn."""
    return [turn["content"].strip() for turn in forms.parse_messages_json(row["messages"]) if turn["role"] == "user"]


def load_held_out_question_keys(problems: Path) -> set[tuple[str, ...]]:
    """The questions of the validation and test problems, as forms.prompt_key tells them apart."""
    parts = [tables.read_table(Problems, problems / f"{name}.parquet")["question"] for name in ("validation", "test")]
    return {forms.build_prompt_key(question) for part in parts for question in part}


def build_opening_key(row: Record) -> tuple[str, ...]:
    """What tells the prompts of rows apart: the turns before the first answer, or the whole of a plain text."""
    turns = forms.parse_messages_json(row["messages"])
    answers = [position for position, turn in enumerate(turns) if turn["role"] == "assistant"]
    return forms.build_prompt_key(row["text"], turns[: answers[0]] if answers else turns)


def build_context_key(row: Record) -> tuple[str, ...]:
    """All that the assistant does not say in a conversation, or the whole of a plain text."""
    return forms.build_prompt_key(
        row["text"], [turn for turn in forms.parse_messages_json(row["messages"]) if turn["role"] != "assistant"]
    )


def _group_rows_by_key(rows: Iterable[Record], key: Callable[[Record], tuple[str, ...]]) -> list[list[Record]]:
    """The rows by what tells them apart, in order."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def split_demonstrations(
    config: DemonstrationsConfig, rows: list[Record], source: str
) -> tuple[list[Record], list[Record]]:
    """Training and validation rows in random order; rows with the same turns before their first answer are on one side.

    Where all rows open alike, what the assistant does not say tells them apart. Rows of files whose names say so
    (rows.HELD_OUT) are validation; where there are none, a share of the opening turns is drawn.
    """
    rng = random.Random(config.seed)
    groups = _group_rows_by_key(rows, build_opening_key)
    groups = groups if len(groups) > 1 else _group_rows_by_key(rows, build_context_key)
    rng.shuffle(groups)
    if len(groups) < 2:
        raise DataError(
            f"{source}: {len(groups)} different prompts; expected at least 2, one to learn from and one to hold out"
        )
    named = [any(is_held_out(row["demonstration_id"]) for row in group) for group in groups]
    if 0 < sum(named) < len(groups):
        validation = [row for group in groups for row in group if is_held_out(row["demonstration_id"])]
    else:
        count = min(max(1, round(config.validation_share * len(groups))), len(groups) - 1)
        named = [number < count for number in range(len(groups))]
        validation = [row for group, held in zip(groups, named, strict=True) if held for row in group]
    return [row for group, held in zip(groups, named, strict=True) if not held for row in group], validation


if __name__ == "__main__":
    main(run)
