"""What stages would learn from and be asked: the user's files where they can be read, else what an earlier run has made.

A file is read anew, since a table that lies there may have been made from another one.
"""

from collections.abc import Mapping
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
    if own.source == "files" and readable(own.path):
        return demonstrations.split(own, demonstrations.read(own, Path(own.path)), own.path)[0]
    return _made(Demonstrations, Path("data/demonstrations/train.parquet"))


def of_pairs(configs: Configs) -> list[Record]:
    """Rows of Comparisons to learn from."""
    own = configs["preferences"]
    if own.source == "files" and readable(own.path):
        return given_pairs.read(read_files(Path(own.path)), own.test_share, own.seed, own.path).train
    return _made(Comparisons, Path("data/preferences/train.parquet"))


def of_prompts(configs: Configs) -> list[Record]:
    """Rows of Prompts that policies are trained on by reward; validation problems stand for those of training."""
    own, found = configs["mixture"], []
    if any(one.source == "hub" for one in own.datasets):
        return _made(Prompts, Path("data/mixture/prompts.parquet"))
    for one in own.datasets:
        file = Path(own.path) / one.location
        if one.source == "file" and file.exists() and small(file):
            found += [mixture.prompt(one, row) for row in mixture.available(own, one, Path(), Path(own.path))]
        elif one.source == "problems":
            found += mixture.of_problems(PROBLEMS) if (PROBLEMS / "validation.parquet").is_file() else []
    return found


def of_problems(configs: Configs) -> list[Record]:
    """Validation problems of the stage `problems`."""
    return _made(Problems, PROBLEMS / "validation.parquet")


def of_tests(configs: Configs) -> list[Record]:
    """The test problems (rows of Problems)."""
    own = configs["evaluate"]
    there = {"files": Path(own.path), "problems": PROBLEMS / "test.parquet"}.get(own.source)
    if there is None or not there.exists() or not small(there):
        return []
    return tables.records(evaluate.test_problems(own, PROBLEMS, Path(own.path)))


def _made(schema: type[Table], file: Path) -> list[Record]:
    return tables.records(tables.read(schema, file)) if file.is_file() else []
