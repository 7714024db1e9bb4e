"""The prompts that a run would train and test on, as far as they can be known before it, and what of the test they share."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.common import tables
from tasks.common.tables import Record, Table
from tasks.language import demonstrations, evaluate, mixture
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.preflight.data import readable

PROBLEMS = Path("data/problems")


def of_mixture(config: Any) -> list[Record]:
    """The rows of Prompts, held-out ones too, that the stage would draw; none where that needs what is not there yet."""
    sources = {one.source for one in config.datasets}
    known = (PROBLEMS / "train.parquet").is_file()
    files = (str(Path(config.path) / one.location) for one in config.datasets if one.source == "file")
    if "hub" in sources or not all(map(readable, files)):
        return [row for name in ("prompts", "validation") for row in made(Prompts, f"mixture/{name}")]
    if "problems" in sources and not known:
        return []
    held_out = mixture.held_out_prompts(PROBLEMS) if known else set()
    rows, validation, _ = mixture.draw(config, held_out, PROBLEMS, Path(config.path))
    return [*rows, *validation]


def of_test(config: Any) -> list[Record]:
    """The rows of Problems by which policies would be judged; none where they are not there yet."""
    if config.source == "problems":
        return made(Problems, "problems/test")[: config.problems]
    if config.source == "files" and readable(config.path):
        return tables.records(evaluate.test_problems(config, Path(), Path(config.path)))
    return []


def made(schema: type[Table], name: str) -> list[Record]:
    """The rows of a table that a stage made; none where it is not there."""
    path = Path(f"data/{name}.parquet")
    return tables.records(tables.read(schema, path)) if path.is_file() else []


def learned_from(kept: Mapping[str, list[Record]], mixed: Sequence[Record]) -> dict[str, set[str]]:
    """What the user asks in the data of each training stage; `kept` are the files that were just read."""
    shown = kept.get("demonstrations") or made(Demonstrations, "demonstrations/train")
    pairs = kept.get("preferences") or made(Comparisons, "preferences/train")
    return {
        "demonstrations": {question for row in shown for question in demonstrations.questions(row)},
        "preferences": {row["prompt"].strip() for row in pairs},
        "mixture": {row["question"].strip() for row in mixed},
    }


def leaks(test: Sequence[Record], learned: Mapping[str, set[str]]) -> Iterator[str]:
    """A line that says how many of the test prompts are trained on, by where."""
    asked = {row["question"].strip() for row in test}
    counts = [f"{len(asked & questions):,} in {name}" for name, questions in learned.items() if questions]
    if asked and counts:
        yield f"leakage: of {len(asked):,} test prompts there are {', '.join(counts)}"
