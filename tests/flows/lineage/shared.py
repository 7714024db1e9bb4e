"""Two clones whose runs are in one MLflow elsewhere: a database beside both, opened by MLflow's client."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.lineage.audited import Audited


@dataclass(frozen=True)
class Shared:
    """The database, and two clones that make almost the same: the stage b has another parameter in the second."""

    database: Path
    first: Audited
    second: Audited

    @classmethod
    def build(cls, home: Path, template: Path, empty_mlflow: Path) -> "Shared":
        """Both clones, with all stages run in each, one after the other."""
        shutil.copyfile(empty_mlflow, home / "mlflow.db")
        clones = []
        for name in ("first", "second"):
            shutil.copytree(template, home / name)
            clones.append(Audited.build(home / name, empty_mlflow))
        clones[1].change("b", beta=0.3)
        clones[1].commit()
        shared = cls(home / "mlflow.db", *clones)
        with pytest.MonkeyPatch.context() as patch:
            shared.use(patch)
            for clone in clones:
                assert {result.state for result in clone.pipeline().values()} == {"ran"}
        return shared

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have MLFLOW_TRACKING_URI name the database."""
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{self.database}")

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.database)) as records, records:
            return records.execute(statement, values).fetchall()
