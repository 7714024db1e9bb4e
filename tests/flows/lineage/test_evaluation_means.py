"""An evaluation's means are those of the values in its table, or the audit names them."""

import json
from pathlib import Path

import pandas as pd
import pytest

from flows.lineage.checks.evaluation_means import EvaluationCheck
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.subjects import Subject
from flows.lineage.execution_record import ExecutionRecord

FOLDER, METRICS = "data/evaluate/b", "data/metrics/evaluate@b.json"
SUBJECT = Subject(
    ExecutionRecord("evaluate@b", {"outs": [{"path": FOLDER}, {"path": METRICS}]}, "f" * 32), current=True
)
NUMBERS = {
    "best_temperature": 0.5,
    "asked": 4,
    "strict": {"mean": 0.75, "low": 0.3, "high": 0.9},
    "other": {"mean": 0.2},
}


def found(root: Path) -> list[str]:
    audit = Audit()
    EvaluationCheck(audit, root).check([SUBJECT])
    assert audit.remarks == []
    return [finding.line for finding in audit.faults]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three of four problems are right, and lengths whose sum depends on their order; `other` is in no table."""
    lengths = [0.1, 0.2, 0.3, 1e16]
    values = {"strict": [1.0, 1.0, 0.0, 1.0], "length": lengths}
    rows = [(f"p{at}", metric, value) for metric, of in values.items() for at, value in enumerate(of)]
    for folder in (FOLDER, "data/metrics"):
        (tmp_path / folder).mkdir(parents=True)
    pd.DataFrame(rows, columns=["problem_id", "metric", "value"]).to_parquet(tmp_path / FOLDER / "measures.parquet")
    numbers = NUMBERS | {"length": {"mean": sum(reversed(lengths)) / 4}}
    for file in (f"{FOLDER}/evaluation.json", METRICS):
        (tmp_path / file).write_text(json.dumps(numbers))
    return tmp_path


def test_what_the_stage_wrote_is_clean(root: Path) -> None:
    assert found(root) == []


@pytest.mark.parametrize("file", [f"{FOLDER}/evaluation.json", METRICS])
def test_a_mean_that_is_not_that_of_the_values(root: Path, file: str) -> None:
    numbers = json.loads((root / file).read_text())
    numbers["strict"]["mean"] = 0.816
    (root / file).write_text(json.dumps(numbers))
    [line] = found(root)
    expected = f"strict has the mean 0.816, the values in {FOLDER}/measures.parquet have 0.75"
    assert line == f"{file}: {expected} (evaluate@b, run ffffffff)"


def test_what_is_no_such_table_is_passed_over(root: Path) -> None:
    (root / METRICS).write_text("[1]")
    assert found(root) == []
    pd.DataFrame({"metric": ["strict"]}).to_parquet(root / FOLDER / "measures.parquet")
    assert found(root) == []
    (root / FOLDER / "measures.parquet").write_bytes(b"torn")
    assert found(root) == []
