"""Word problems with worked solutions: generated, or read from files or a hub in GSM8K's form (arXiv:2110.14168)."""

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from tasks import artifacts, tracking
from tasks.algorithms import word_problems
from tasks.schemas import Problems
from tasks.stage import Config, Metrics, main

SPLITS = ("train", "validation", "test")


class ProblemsConfig(Config):
    """Where problems come from, and at most how many there are in each split."""

    seed: int
    source: Literal["generated", "files", "hub"]
    path: str  # files: a directory with train.jsonl and test.jsonl, rows {"question": .., "answer": "steps #### N"}
    hub_id: str
    hub_config: str
    hub_revision: str
    train: int = Field(ge=1)
    validation: int = Field(ge=1)
    test: int = Field(ge=1)
    one_step: float = Field(ge=0)  # weights of generated problems by their number of steps
    two_steps: float = Field(ge=0)
    three_steps: float = Field(ge=0)
    largest: int = Field(ge=30)  # no number in a generated problem exceeds this


def run(config: ProblemsConfig, raw: Path, out: Path) -> Metrics:
    """Write train, validation and test tables (schema Problems) that share no problem."""
    if config.source == "generated":
        splits = generated(config)
    elif config.source == "files":
        splits = split(config, read_jsonl(raw / "train.jsonl"), read_jsonl(raw / "test.jsonl"))
    else:
        splits = split(config, *from_hub(config))
    for name, rows in splits.items():
        artifacts.write(Problems, pd.DataFrame(rows), out / f"{name}.parquet")
    tracking.log_table(pd.DataFrame(splits["train"][:20]), "problems.json")
    return {name: len(rows) for name, rows in splits.items()}


def generated(config: ProblemsConfig) -> dict[str, list[dict[str, Any]]]:
    """Draw problems; a chain of arithmetic belongs to one split, so no split holds another's problem in new words."""
    rng = random.Random(config.seed)
    wanted = {name: getattr(config, name) for name in SPLITS}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SPLITS}
    home: dict[tuple[str, ...], str] = {}
    questions: set[str] = set()
    fruitless = 0
    while any(len(rows[name]) < wanted[name] for name in SPLITS):
        steps = rng.choices((1, 2, 3), (config.one_step, config.two_steps, config.three_steps))[0]
        problem = word_problems.generate(rng, steps, config.largest)
        name = home.setdefault(problem.chain, rng.choices(SPLITS, list(wanted.values()))[0])
        fruitless += 1
        if fruitless > 100_000:
            raise SystemExit(
                "params.yaml: problems: too few different problems exist; raise problems.largest or lower the counts"
            )
        if len(rows[name]) == wanted[name] or problem.question in questions:
            continue
        fruitless = 0
        questions.add(problem.question)
        rows[name].append(
            {
                "problem_id": f"{name}-{len(rows[name])}",
                "question": problem.question,
                "solution": problem.solution,
                "answer": str(problem.answer),
                "steps": steps,
            }
        )
    return rows


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Rows of one GSM8K file; SystemExit with one line naming file, line and field."""
    if not path.is_file():
        raise SystemExit(
            f"{path}: no such file; problems.source 'files' reads train.jsonl and test.jsonl below problems.path"
        )
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            rows.append(from_gsm8k(json.loads(line), f"{path.stem}-{number - 1}"))
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(
                f"{path}: line {number}: {error}; expected {{question, answer ending in '#### N'}}"
            ) from None
    return rows


def from_gsm8k(row: dict[str, str], problem_id: str) -> dict[str, Any]:
    """One row of GSM8K as a row of Problems; ValueError or KeyError where it is not one."""
    steps, mark, answer = row["answer"].rpartition("#### ")
    if not mark:
        raise ValueError("field 'answer' has no '#### N'")
    answer = answer.strip().replace(",", "").lstrip("$")
    steps = steps.strip()
    solution = f"{steps}\n#### {answer}" if steps else f"#### {answer}"
    return {
        "problem_id": problem_id,
        "question": row["question"].strip(),
        "solution": solution,
        "answer": answer,
        "steps": len(steps.splitlines()),
    }


def from_hub(config: ProblemsConfig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Train and test rows of a hub data set in GSM8K's form, at the revision that params.yaml names."""
    from datasets import load_dataset

    hub = load_dataset(config.hub_id, config.hub_config, revision=config.hub_revision)
    train, test = ([from_gsm8k(row, f"{name}-{n}") for n, row in enumerate(hub[name])] for name in ("train", "test"))
    return train, test


def split(
    config: ProblemsConfig, train: Iterable[dict[str, Any]], test: Iterable[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Take validation from the training rows at random; drop repeated questions, and those that the test rows ask."""
    rng = random.Random(config.seed)
    kept_test = _unique(test, set())
    pool = _unique(train, {row["question"] for row in kept_test})
    rng.shuffle(pool)
    if len(pool) <= config.validation:
        raise SystemExit(
            f"{config.path}: {len(pool)} training problems leave none beside problems.validation = {config.validation}"
        )
    validation, rest = pool[: config.validation], pool[config.validation :]
    return {"train": rest[: config.train], "validation": validation, "test": kept_test[: config.test]}


def _unique(rows: Iterable[dict[str, Any]], seen: set[str]) -> list[dict[str, Any]]:
    counts = Counter(seen)
    kept = []
    for row in rows:
        counts[row["question"]] += 1
        if counts[row["question"]] == 1:
            kept.append(row)
    return kept


if __name__ == "__main__":
    main(run)
