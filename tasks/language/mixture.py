"""The prompts that policies are trained on by reward: drawn from one or more data sets, each with a weight and a reward."""

import random
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.errors import ConfigError
from tasks.common.tables import Record
from tasks.language.configs.mixture import Dataset, MixtureConfig
from tasks.language.data import gsm8k
from tasks.language.tables.problems import Problems, Prompts
from tasks.stage import Metrics, main

METRICS = {
    "drawn/DATASET": "The number of prompts drawn from the data set.",
    "available/DATASET": "The number of the data set's prompts that could be drawn: without repeats, and without questions of another set, validation or test.",
    "shortfall/DATASET": "How many prompts fewer were drawn than the data set's weight asks for; above 0 the mixture is not as asked for.",
}


def run(config: MixtureConfig, problems: Path, raw: Path, out: Path) -> Metrics:
    """Write prompts.parquet (schema Prompts), shuffled.

    A shortfall (METRICS) is a warning on standard error: the mixture is then not as asked for.
    """
    rng = random.Random(config.seed)
    ends = list(accumulate((dataset.weight for dataset in config.datasets), initial=0.0))
    shares = [
        round(config.prompts * end / ends[-1]) for end in ends
    ]  # rounded bounds, so that the parts add up to all prompts
    rows: list[Record] = []
    asked: set[str] = set()  # questions of validation and test are never trained on, and none is twice
    for held_out in ("validation", "test"):
        asked |= set(tables.read(Problems, problems / f"{held_out}.parquet")["question"])
    metrics: dict[str, dict[str, float]] = {"drawn": {}, "available": {}, "shortfall": {}}
    for dataset, (start, end) in zip(config.datasets, pairwise(shares), strict=True):
        found = {row["question"]: row for row in available(config, dataset, problems, raw)}
        pool = [row for question, row in found.items() if question not in asked]
        drawn = rng.sample(pool, min(len(pool), end - start))
        asked.update(row["question"] for row in drawn)
        rows += [
            {
                "prompt_id": f"{dataset.name}/{row['problem_id']}",
                "dataset": dataset.name,
                **{name: row[name] for name in ("question", "solution", "answer")},
                "reward": dataset.reward,
            }
            for row in drawn
        ]
        metrics["drawn"][dataset.name], metrics["available"][dataset.name] = len(drawn), len(pool)
        metrics["shortfall"][dataset.name] = missing = end - start - len(drawn)
        if missing:
            print(
                f"mixture: {dataset.name}: {len(drawn)} prompts, not the {end - start} that its weight asks for: it has no more",
                file=sys.stderr,
                flush=True,
            )
    if not rows:
        raise ConfigError("params.yaml: mixture: the data sets and mixture.skip leave no prompt")
    rng.shuffle(rows)
    table = pd.DataFrame(rows)
    tables.write(Prompts, table, out / "prompts.parquet")
    tracking.log_table(table.head(20), "prompts.json")
    return metrics


def available(config: MixtureConfig, dataset: Dataset, problems: Path, raw: Path) -> list[Record]:
    """All rows of one data set, in the form of Problems."""
    if dataset.source == "problems":
        return tables.records(tables.read(Problems, problems / "train.parquet").iloc[config.skip :])
    if dataset.source == "file":
        return gsm8k.read_jsonl(raw / dataset.location)
    return gsm8k.read_hub(dataset.location, dataset.hub_config, str(dataset.hub_revision), str(dataset.hub_split))


if __name__ == "__main__":
    main(run)
