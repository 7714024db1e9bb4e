"""What policies are evaluated on: test problems, validation problems and held-out pairs, the user's own or made."""

import sys
from pathlib import Path

import pandas as pd

from tasks.common import tables
from tasks.common.errors import DataError
from tasks.language.configs.evaluate import EvaluateConfig
from tasks.language.data import imported_pairs, problem_forms
from tasks.language.data.columns import Omissions
from tasks.language.data.rows import SUFFIXES, fetch_hub_rows, read_files, read_test_files
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Problems


def read_or_fetch_test_problems(config: EvaluateConfig, problems: Path, test_files: Path) -> pd.DataFrame:
    """The first test problems of the stage `problems`, or of the user's own files or hub data set (schema Problems)."""
    if config.source == "problems":
        return tables.read_table(Problems, problems / "test.parquet").head(config.problems)
    rows = (
        read_test_files(test_files)
        if config.source == "files"
        else fetch_hub_rows(config.hub_id, config.hub_config, config.hub_revision, config.hub_split)
    )
    unique_rows = list(
        {(row["question"], row["history"]): row for row in reversed(problem_forms.parse_problems(rows))}.values()
    )[::-1]
    if not unique_rows:
        raise DataError(f"{config.path if config.source == 'files' else config.hub_id}: there are no test problems")
    return pd.DataFrame(problem_forms.drop_empty_columns(unique_rows[: config.problems]))


def read_validation_problems(config: EvaluateConfig, problems: Path) -> pd.DataFrame | None:
    """The first validation problems, by which the best temperature is chosen; None where they have no answers or are
    not there.
    """
    if not (problems / "validation.parquet").is_file():
        return None
    table = tables.read_table(Problems, problems / "validation.parquet").head(config.validation_problems)
    return table if (table["answer"] != "").all() else None


def read_held_out_pairs(pairs: Path) -> pd.DataFrame | None:
    """The test part of the stage `preferences`, or a file or folder of the user's own pairs; None where there are
    none.
    """
    if (pairs / "train.parquet").is_file() and (pairs / "test.parquet").is_file():
        return tables.read_table(Comparisons, pairs / "test.parquet")
    if not pairs.exists() or (pairs.is_dir() and not any(file.suffix in SUFFIXES for file in pairs.iterdir())):
        return None
    omissions = Omissions()
    rows = imported_pairs.parse_unsplit_pairs(read_files(pairs), omissions)
    if not rows and omissions.left_out:
        raise DataError(f"{pairs}: expected pairs, found none{omissions.format_clause()}")
    for line in omissions.lines(str(pairs)):
        print(line, file=sys.stderr, flush=True)
    return pd.DataFrame(rows)
