"""The prompts that policies are trained on by reward: drawn from one or more data sets, each with a weight and a
reward.
"""

import math
import random
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.configs.mixture import MixtureConfig, MixtureDataset
from tasks.language.data import problem_forms
from tasks.language.data.problem_forms import check_skip
from tasks.language.data.rows import fetch_hub_rows, read_training_files
from tasks.language.tables.problems import Problems, Prompts
from tasks.stage import Metrics, main

Prompt = tuple[str, ...]  # as problem_forms.asked tells them apart
ANSWERED = ("verifiable", "rubric")  # the rewards that need a reference answer
METRICS = {
    "drawn/DATASET": "The number of prompts drawn from the data set.",
    "available/DATASET": "The number of the data set's prompts that could be drawn: without repeats, and without "
    "questions of another set, validation or test.",
    "shortfall/DATASET": "How many prompts fewer were drawn than the data set's weight asks for; above 0 the "
    "mixture is not as asked for.",
    "repeated/DATASET": "The number of rows of a file or a hub set that were left out, since they repeat a prompt "
    "of their set.",
    "leaked/DATASET": "The number of prompts of a file or a hub set that were left out, since validation, test or "
    "a set before asks them.",
    "validation": "The number of held-out prompts, on which policies are judged while they are trained.",
}


def run(config: MixtureConfig, problems: Path, raw: Path, out: Path) -> Metrics:
    """Write prompts.parquet, shuffled, and validation.parquet (schema Prompts both), which share no prompt."""
    rows, validation, counts = draw_prompt_mixture(config, read_held_out_prompt_keys(problems), problems, raw)
    for name, part in (("prompts", rows), ("validation", validation)):
        tables.write_table(Prompts, build_prompt_frame(part), out / f"{name}.parquet")
    tracking.record_table(build_prompt_frame(rows).head(20), "prompts.json")
    return {**{name: count for name, count in counts.items() if count}, "validation": len(validation)}


def read_held_out_prompt_keys(problems: Path) -> set[Prompt]:
    """The validation and test problems, which are never trained on."""
    held_out = (tables.read_table(Problems, problems / f"{name}.parquet") for name in ("validation", "test"))
    return {problem_forms.build_problem_key(row) for table in held_out for row in tables.list_records(table)}


def draw_prompt_mixture(
    config: MixtureConfig, seen: set[Prompt], problems: Path, raw: Path
) -> tuple[list[Record], list[Record], dict[str, dict[str, float]]]:
    """Rows of Prompts to train on, none of which is among `seen` or there twice; held-out ones; and counts (METRICS).

    A shortfall is a warning on standard error: the mixture is then not as asked for.
    """
    seen = {*seen}
    rng = random.Random(config.seed)
    ends = list(accumulate((dataset.weight for dataset in config.datasets), initial=0.0))
    shares = [
        round(config.prompts * end / ends[-1]) for end in ends
    ]  # rounded bounds, so that the parts add up to all prompts
    rows: list[Record] = []
    validation = (
        read_validation_prompts(problems)
        if any(dataset_config.source == "problems" for dataset_config in config.datasets)
        else []
    )
    counts: dict[str, dict[str, float]] = {"drawn": {}, "available": {}, "shortfall": {}, "repeated": {}, "leaked": {}}
    for dataset, (start, end) in zip(config.datasets, pairwise(shares), strict=True):
        candidates = read_or_fetch_dataset_problems(config, dataset, problems, raw)
        unique = {problem_forms.build_problem_key(row): row for row in candidates}
        pool = [row for key, row in unique.items() if key not in seen]
        if dataset.source != "problems":
            counts["repeated"][dataset.name] = len(candidates) - len(unique)
            counts["leaked"][dataset.name] = len(unique) - len(pool)
            count = min(math.ceil(config.validation_share * len(pool)), max(len(pool) - 1, 0))
            kept = random.Random(config.seed).sample(pool, count)
            validation += [make_dataset_prompt(dataset, row) for row in kept]
            seen.update(map(problem_forms.build_problem_key, kept))
            pool = [row for row in pool if problem_forms.build_problem_key(row) not in seen]
        drawn = rng.sample(pool, min(len(pool), end - start))
        seen.update(map(problem_forms.build_problem_key, drawn))
        rows += [make_dataset_prompt(dataset, row) for row in drawn]
        counts["drawn"][dataset.name], counts["available"][dataset.name] = len(drawn), len(pool)
        counts["shortfall"][dataset.name] = missing = end - start - len(drawn)
        if missing:
            print(
                f"mixture: {dataset.name}: {len(drawn)} prompts, not the {end - start} that its weight asks for: "
                "it has no more",
                file=sys.stderr,
                flush=True,
            )
    if not rows:
        raise DataError(
            "mixture: no prompt is left of "
            f"{', '.join(dataset_config.name for dataset_config in config.datasets)}: validation or "
            "test asks each of them"
        )
    rng.shuffle(rows)
    if {dataset.source for dataset in config.datasets} != {"problems"}:
        rng.shuffle(validation)
    return rows, validation, counts


def read_or_fetch_dataset_problems(
    config: MixtureConfig, dataset: MixtureDataset, problems: Path, raw: Path
) -> list[Record]:
    """All rows of one data set, in the form of Problems; DataError naming the file where there are none."""
    if dataset.source == "problems":
        train = tables.read_table(Problems, problems / "train.parquet")
        check_skip("mixture", config.skip, len(train))
        return tables.list_records(train.iloc[config.skip :])
    if dataset.source == "file":
        where = str(raw / dataset.location)
        rows = read_training_files(raw / dataset.location)
    else:
        revision = str(dataset.hub_revision)
        split = str(dataset.hub_split)
        where = dataset.location
        rows = fetch_hub_rows(dataset.location, dataset.hub_config, revision, split)
    needed_by = f"the reward {dataset.reward} of {dataset.name}" if dataset.reward in ANSWERED else ""
    if not (records := problem_forms.parse_problems(rows, needed_by)):
        raise DataError(f"{where}: there are no prompts; expected rows, of which none is held out by its file's name")
    return records


def read_validation_prompts(problems: Path) -> list[Record]:
    """The validation problems as prompts, judged as each stage itself says."""
    held_out = tables.list_records(tables.read_table(Problems, problems / "validation.parquet"))
    return [_build_prompt_row(row, row["problem_id"], "", "policy") for row in held_out]


def make_dataset_prompt(dataset: MixtureDataset, row: Record) -> Record:
    """A row of a data set as a row of Prompts; DataError where the data set's reward needs an answer that it lacks."""
    if dataset.reward in ANSWERED and not row["answer"]:
        raise DataError(
            f"mixture: {dataset.name}: {row['problem_id']} has no answer, which its reward {dataset.reward} needs; "
            "expected a "
            "column answer"
        )
    return _build_prompt_row(row, f"{dataset.name}/{row['problem_id']}", dataset.name, dataset.reward)


def _build_prompt_row(row: Record, prompt_id: str, dataset: str, reward: str) -> Record:
    fields = {name: row[name] for name in ("question", "solution", "answer")}
    more = {name: row.get(name, "") for name in ("history", "columns")}
    return {"prompt_id": prompt_id, "dataset": dataset, **fields, "reward": reward, **more}


def build_prompt_frame(rows: list[Record]) -> pd.DataFrame:
    """Rows of Prompts as a table, with the columns that all tables of prompts have."""
    columns = [name for name, column in Prompts.to_schema().columns.items() if column.required]
    return pd.DataFrame(problem_forms.drop_empty_columns(rows)) if rows else pd.DataFrame(columns=columns, dtype=str)


if __name__ == "__main__":
    main(run)
