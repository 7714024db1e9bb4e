"""The prompts that policies are trained on by reward: drawn from one or more data sets, each with a weight and a reward."""

import math
import random
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.language.configs.mixture import Dataset, MixtureConfig
from tasks.language.data import problem_forms
from tasks.language.data.rows import read_hub, read_training_files
from tasks.language.tables.problems import Problems, Prompts
from tasks.stage import Metrics, main

METRICS = {
    "drawn/DATASET": "The number of prompts drawn from the data set.",
    "available/DATASET": "The number of the data set's prompts that could be drawn: without repeats, and without questions of another set, validation or test.",
    "shortfall/DATASET": "How many prompts fewer were drawn than the data set's weight asks for; above 0 the mixture is not as asked for.",
    "validation": "The number of held-out prompts, on which policies are judged while they are trained.",
}


def run(config: MixtureConfig, problems: Path, raw: Path, out: Path) -> Metrics:
    """Write prompts.parquet, shuffled, and validation.parquet (schema Prompts both), which share no question.

    A shortfall (METRICS) is a warning on standard error: the mixture is then not as asked for.
    """
    rng = random.Random(config.seed)
    ends = list(accumulate((dataset.weight for dataset in config.datasets), initial=0.0))
    shares = [
        round(config.prompts * end / ends[-1]) for end in ends
    ]  # rounded bounds, so that the parts add up to all prompts
    rows: list[Record] = []
    validation = of_problems(problems) if any(one.source == "problems" for one in config.datasets) else []
    asked: set[str] = set()  # questions of validation and test are never trained on, and none is twice
    for held_out in ("validation", "test"):
        asked |= set(tables.read(Problems, problems / f"{held_out}.parquet")["question"])
    counts: dict[str, dict[str, float]] = {"drawn": {}, "available": {}, "shortfall": {}}
    for dataset, (start, end) in zip(config.datasets, pairwise(shares), strict=True):
        found = {row["question"]: row for row in available(config, dataset, problems, raw)}
        pool = [row for question, row in found.items() if question not in asked]
        if dataset.source != "problems":
            count = min(math.ceil(config.validation_share * len(pool)), max(len(pool) - 1, 0))
            kept = random.Random(config.seed).sample(pool, count)
            validation += [prompt(dataset, row) for row in kept]
            asked.update(row["question"] for row in kept)
            pool = [row for row in pool if row["question"] not in asked]
        drawn = rng.sample(pool, min(len(pool), end - start))
        asked.update(row["question"] for row in drawn)
        rows += [prompt(dataset, row) for row in drawn]
        counts["drawn"][dataset.name], counts["available"][dataset.name] = len(drawn), len(pool)
        counts["shortfall"][dataset.name] = missing = end - start - len(drawn)
        if missing:
            print(
                f"mixture: {dataset.name}: {len(drawn)} prompts, not the {end - start} that its weight asks for: it has no more",
                file=sys.stderr,
                flush=True,
            )
    if not rows:
        raise ConfigError("params.yaml: mixture: the data sets and mixture.skip leave no prompt")
    rng.shuffle(rows)
    if {dataset.source for dataset in config.datasets} != {"problems"}:
        rng.shuffle(validation)
    for name, part in (("prompts", rows), ("validation", validation)):
        tables.write(Prompts, frame(part), out / f"{name}.parquet")
    tracking.log_table(frame(rows).head(20), "prompts.json")
    return {**counts, "validation": len(validation)}


def available(config: MixtureConfig, dataset: Dataset, problems: Path, raw: Path) -> list[Record]:
    """All rows of one data set, in the form of Problems."""
    if dataset.source == "problems":
        return tables.records(tables.read(Problems, problems / "train.parquet").iloc[config.skip :])
    if dataset.source == "file":
        return problem_forms.read(read_training_files(raw / dataset.location))
    revision, split = str(dataset.hub_revision), str(dataset.hub_split)
    return problem_forms.read(read_hub(dataset.location, dataset.hub_config, revision, split))


def of_problems(problems: Path) -> list[Record]:
    """The validation problems as prompts, judged as each stage itself says."""
    held_out = tables.records(tables.read(Problems, problems / "validation.parquet"))
    return [_prompt(row, row["problem_id"], "", "policy") for row in held_out]


def prompt(dataset: Dataset, row: Record) -> Record:
    """A row of a data set as a row of Prompts; DataError where the data set's reward needs an answer that it lacks."""
    if dataset.reward in ("verifiable", "rubric") and not row["answer"]:
        raise DataError(
            f"mixture: {dataset.name}: {row['problem_id']} has no answer, which its reward {dataset.reward} needs; expected a "
            "column answer"
        )
    return _prompt(row, f"{dataset.name}/{row['problem_id']}", dataset.name, dataset.reward)


def _prompt(row: Record, prompt_id: str, dataset: str, reward: str) -> Record:
    own = {name: row[name] for name in ("question", "solution", "answer")}
    more = {name: row.get(name, "") for name in ("history", "columns")}
    return {"prompt_id": prompt_id, "dataset": dataset, **own, "reward": reward, **more}


def frame(rows: list[Record]) -> pd.DataFrame:
    """Rows of Prompts as a table, with the columns that all tables of prompts have."""
    columns = [name for name, column in Prompts.to_schema().columns.items() if column.required]
    return pd.DataFrame(problem_forms.without_empty(rows)) if rows else pd.DataFrame(columns=columns, dtype=str)


if __name__ == "__main__":
    main(run)
