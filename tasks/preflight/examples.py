"""What stages would learn from and be asked: the user's files where they can be read, else what an earlier run has made.

A file is read anew, since a table that lies there may have been made from another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.common import tables
from tasks.common.tables import Record, Table
from tasks.language import demonstrations, evaluate, mixture
from tasks.language.data import given_pairs
from tasks.language.data.rows import read_files
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.preflight.data import readable, small

Configs = Mapping[str, Any]  # section -> its Config
PROBLEMS = Path("data/problems")


def of_demonstrations(configs: Configs) -> list[Record]:
    """Rows of Demonstrations to learn from; none where nothing has made them yet. So in all functions here."""
    own = configs["demonstrations"]
    if own.source in ("files", "people") and readable(own.path):
        return demonstrations.split(own, demonstrations.read(own, Path(own.path))[0], own.path)[0]
    return _made(Demonstrations, Path("data/demonstrations/train.parquet"))


def of_pairs(configs: Configs) -> list[Record]:
    """Rows of Comparisons to learn from."""
    own = configs["preferences"]
    if own.source == "files" and readable(own.path):
        return given_pairs.read(read_files(Path(own.path)), own.test_share, own.seed, own.path).train
    return _made(Comparisons, Path("data/preferences/train.parquet"))


def of_prompts(configs: Configs) -> list[Record]:
    """Rows of Prompts that the mixture would draw, held-out ones too; without problems yet, those of its other data sets."""
    own = configs["mixture"]
    files = [str(Path(own.path) / one.location) for one in own.datasets if one.source == "file"]
    if any(one.source == "hub" for one in own.datasets) or not all(map(readable, files)):
        return [
            row for name in ("prompts", "validation") for row in _made(Prompts, Path(f"data/mixture/{name}.parquet"))
        ]
    known = (PROBLEMS / "train.parquet").is_file()
    there = [one for one in own.datasets if known or one.source == "file"]
    if not there:
        return []
    asked = mixture.held_out_prompts(PROBLEMS) if known else set()
    rows, validation, _ = mixture.draw(own.model_copy(update={"datasets": there}), asked, PROBLEMS, Path(own.path))
    return [*rows, *validation]


def of_problems() -> list[Record]:
    """Validation problems of the stage `problems`."""
    return _made(Problems, PROBLEMS / "validation.parquet")


def of_tests(configs: Configs) -> list[Record]:
    """The test problems (rows of Problems)."""
    own = configs["evaluate"]
    there = {"files": Path(own.path), "problems": PROBLEMS / "test.parquet"}.get(own.source)
    if there is None or not there.exists() or not small(there):
        return []
    return tables.records(evaluate.test_problems(own, PROBLEMS, Path(own.path)))


def leaks(
    shown: Sequence[Record], pairs: Sequence[Record], prompts: Sequence[Record], tests: Sequence[Record]
) -> Iterator[str]:
    """A line that says how many of the test prompts are trained on, by where; none where nothing is known of either."""
    asked = {row["question"].strip() for row in tests}
    learned = {
        "demonstrations": {question for row in shown for question in demonstrations.questions(row)},
        "preferences": {row["prompt"].strip() for row in pairs},
        "mixture": {row["question"].strip() for row in prompts},
    }
    counts = [f"{len(asked & questions):,} in {name}" for name, questions in learned.items() if questions]
    if asked and counts:
        yield f"leakage: of {len(asked):,} test prompts there are {', '.join(counts)}"


def _made(schema: type[Table], file: Path) -> list[Record]:
    return tables.records(tables.read(schema, file)) if file.is_file() else []
