from pathlib import Path

import pandas as pd
import pytest

from tasks.common import tables
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Problems


@pytest.fixture(scope="session")
def preferences(made: Path) -> Path:
    """The solution is preferred to one with ten times its number (better), and to the bare answer (slightly better)."""
    problems = tables.read(Problems, made / "problems" / "train.parquet")
    rows = []
    for row in problems.head(40).itertuples():
        wrong = str(row.solution).replace(str(row.answer), f"{row.answer}0")
        for number, (rejected, strength) in enumerate(
            ((wrong, "a better"), (f"#### {row.answer}", "b slightly better"))
        ):
            rows.append(
                {
                    "comparison_id": f"{row.problem_id}/{number}",
                    "prompt_id": row.problem_id,
                    "prompt": row.question,
                    "chosen": row.solution,
                    "rejected": rejected,
                    "chosen_ended": True,
                    "rejected_ended": True,
                    "chosen_score": 10.0,
                    "rejected_score": 4.0,
                    "strength": strength,
                }
            )
    table = pd.DataFrame(rows)
    tables.write(Comparisons, table.head(60), made / "preferences" / "train.parquet")
    tables.write(Comparisons, table.tail(20), made / "preferences" / "test.parquet")
    return made / "preferences"
