"""The means of an evaluation against the table that they are means of, with one value for each problem and metric."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flows.engine.dvc_lock import get_entry_hashes
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.subjects import Subject

CHECK = "measured"
# in the folder that an evaluation makes
TABLE = "measures.parquet"
MEANS = "evaluation.json"
RELATIVE = 1e-9  # sums of the same values in another order differ by less


@dataclass(frozen=True)
class EvaluationCheck:
    """One check of the current evaluations that have such a table."""

    audit: Audit
    root: Path

    def check(self, subjects: Sequence[Subject]) -> None:
        """Name each metric whose mean is another in a file of the evaluation than in its table."""
        for subject in subjects:
            for folder in get_entry_hashes(subject.entry, "outs"):
                if (self.root / folder / TABLE).is_file():
                    self._check_evaluation(subject, folder)

    def _check_evaluation(self, subject: Subject, folder: str) -> None:
        means = _compute_table_means(self.root / folder / TABLE)
        for path in (f"{folder}/{MEANS}", f"data/metrics/{subject.stage}.json"):
            for metric, number in _load_written_means(self.root / path).items():
                mean = means.get(metric, number)
                self.audit.counts["numbers"] += metric in means
                if not math.isclose(mean, number, rel_tol=RELATIVE, abs_tol=RELATIVE):
                    what = f"{metric} has the mean {number!r}, the values in {folder}/{TABLE} have {mean!r}"
                    self.audit.fault(CHECK, path, what, subject.stage, subject.run_id)


def _compute_table_means(table: Path) -> Mapping[str, float]:
    """Metric -> mean of its values over problems; nothing where the file is no such table."""
    import pyarrow
    import pyarrow.parquet as pq

    with suppress(OSError, pyarrow.ArrowException, KeyError):
        rows = pq.read_table(table, columns=["metric", "value"])
        grouped = rows.group_by("metric").aggregate([("value", "mean")]).to_pydict()
        pairs = zip(grouped["metric"], grouped["value_mean"], strict=True)
        return {metric: mean for metric, mean in pairs if mean is not None and not math.isnan(mean)}
    return {}


def _load_written_means(file: Path) -> Mapping[str, float]:
    """Metric -> the mean that a file of an evaluation has."""
    with suppress(OSError, ValueError, AttributeError):
        content = json.loads(file.read_text())
        estimates = {metric: value for metric, value in content.items() if isinstance(value, dict)}
        return {metric: value["mean"] for metric, value in estimates.items() if isinstance(value.get("mean"), float)}
    return {}
