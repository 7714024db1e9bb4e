"""The prompts that policies are trained on by reward: drawn from one or more data sets, each with a weight and a reward."""

import random
import sys
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from tasks.common import tables, tracking
from tasks.language.data import gsm8k
from tasks.language.tables.problems import Problems, Prompts
from tasks.stage import Config, Idle, Metrics, Seed, main

HUB = ("hub_config", "hub_revision", "hub_split")


def _of(sources: list[str], rules: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {"source": {"enum": sources}}, "required": ["source"]}, "then": {"properties": rules}}


RULES: list[Any] = [  # that the command line knows before anything runs
    _of(["hub"], {name: {"type": "string", "$comment": "with source hub"} for name in HUB[1:]}),
    _of(["problems", "file"], {name: {"const": None, "$comment": "where source is not hub"} for name in HUB}),
]


class Dataset(Config):
    """One data set of the mixture."""

    model_config = ConfigDict(json_schema_extra={"allOf": RULES})
    idle = (Idle(("location",), {"source": ("problems",)}, neutral=""),)

    name: str = Field(min_length=1)
    source: Literal["problems", "file", "hub"]  # problems: the training problems of the stage `problems`
    location: str  # file: a .jsonl below mixture.path, rows {"question": .., "answer": ".. #### N"}; hub: an id
    hub_config: str | None  # of a hub set; null: the only one that it has
    hub_revision: str | None  # of a hub set: a branch, a tag or a commit
    hub_split: str | None  # of a hub set
    weight: float = Field(gt=0)  # its share of the prompts is this over the sum of all
    reward: Literal["policy", "verifiable", "rubric", "reward_model"]  # policy: as the stage that trains says

    @field_validator(*HUB)
    @classmethod
    def _of_the_hub(cls, value: str | None, info: ValidationInfo) -> str | None:
        hub = info.data.get("source") == "hub"
        if hub and value is None and info.field_name != "hub_config":
            raise ValueError("expected text with source hub")
        if not hub and value is not None:
            raise ValueError("expected null where source is not hub")
        return value


class MixtureConfig(Config):
    """How many prompts are drawn, and from where."""

    idle = (
        Idle(("skip",), {"datasets.*.source": ("file", "hub")}),
        Idle(("path",), {"datasets.*.source": ("problems", "hub")}),
        Idle(("hub_config", "hub_revision"), {"datasets.*.source": ("problems", "file")}),
    )

    seed: Seed
    prompts: int = Field(ge=1, le=10**7)  # at most
    skip: int = Field(ge=0, le=10**7)  # of `problems` passed over: those that SFT has seen
    path: str
    datasets: list[Dataset] = Field(min_length=1)


def run(config: MixtureConfig, problems: Path, raw: Path, out: Path) -> Metrics:
    """Write prompts.parquet (schema Prompts), shuffled.

    The metrics by data set: how many prompts were `drawn`, how many were `available`, and the `shortfall` of those drawn
    against its weight's share, of which a line on standard error warns: the mixture is then not as asked for.
    """
    names = [dataset.name for dataset in config.datasets]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SystemExit(f"params.yaml: mixture.datasets: two are called {min(twice)!r}; expected different names")
    rng = random.Random(config.seed)
    ends = list(accumulate((dataset.weight for dataset in config.datasets), initial=0.0))
    shares = [
        round(config.prompts * end / ends[-1]) for end in ends
    ]  # rounded where they meet, they add up to all prompts
    rows: list[dict[str, Any]] = []
    asked: set[str] = set()  # what validation and test ask is never trained on, and nothing twice
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
        raise SystemExit("params.yaml: mixture: the data sets and mixture.skip leave no prompt")
    rng.shuffle(rows)
    table = pd.DataFrame(rows)
    tables.write(Prompts, table, out / "prompts.parquet")
    tracking.log_table(table.head(20), "prompts.json")
    return metrics


def available(config: MixtureConfig, dataset: Dataset, problems: Path, raw: Path) -> list[dict[Any, Any]]:
    """All rows of one data set, in the form of Problems."""
    if dataset.source == "problems":
        return tables.read(Problems, problems / "train.parquet").iloc[config.skip :].to_dict("records")
    if dataset.source == "file":
        if Path(dataset.location).is_absolute() or ".." in Path(dataset.location).parts:
            raise SystemExit(
                f"params.yaml: mixture.datasets: {dataset.name}.location: expected a file below mixture.path, whose changes "
                f"DVC sees, got {dataset.location!r}"
            )
        return gsm8k.read_jsonl(raw / dataset.location)
    return gsm8k.read_hub(dataset.location, dataset.hub_config, str(dataset.hub_revision), str(dataset.hub_split))


if __name__ == "__main__":
    main(run)
