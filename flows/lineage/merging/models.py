"""The registered models of another repository: each version with its tags, under a number that is free here.

A version is known by its model's name, its run and the hash of the out that it stands for. What is here stays: numbers, tags, aliases.
"""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_seal
from flows.engine.mlflow_runs import PREFIX
from flows.lineage.merging.other_database import OtherDatabase, RefusedError, Row, insert, select, shown

DVC = "dvc://"  # begins the source that the engine gives a version; MLflow loads nothing from it
Versions = dict[tuple[object, object], object]  # run and out -> number


@dataclass
class Models:
    """Takes models from `other` into the repository at `root`, whose database is `ours`."""

    other: OtherDatabase
    ours: sqlite3.Connection
    root: Path
    taken: list[tuple[str, int, int]] = field(default_factory=list)  # name, number there, number here
    refused: dict[str, str] = field(default_factory=dict)  # "NAME version NUMBER" -> why

    def take(self, runs: Collection[object]) -> None:
        """Take the versions made by the runs with these ids, which are in both databases."""
        for model in self.other.rows("registered_models", {"workspace": "default"}):
            there = [
                version
                for version in self.other.rows("model_versions", {"workspace": "default", "name": model["name"]})
                if version["run_id"] in runs
            ]
            known = self._known(model["name"])
            for version in there:
                self.ours.execute("SAVEPOINT model")
                try:
                    self._take(model, version, known)
                except (RefusedError, sqlite3.IntegrityError) as error:
                    self.ours.execute("ROLLBACK TO model")
                    self.refused[shown(f"{model['name']} version {version['version']}")] = shown(error)
                self.ours.execute("RELEASE model")

    def _here(self, table: str, matching: Row) -> list[Row]:
        return self.other.named(table, select(self.ours, self.other.columns[table], table, matching))

    def _known(self, name: object) -> Versions:
        if not isinstance(name, str):
            return {}
        here = self._here("model_versions", {"workspace": "default", "name": name})
        return {
            _identity(version, self._here("model_version_tags", _key(version))): version["version"] for version in here
        }

    def _take(self, model: Row, version: Row, known: Versions) -> None:
        [model] = self.other.checked("registered_models", [model])
        [version] = self.other.checked("model_versions", [version])
        tags = self.other.checked("model_version_tags", self.other.rows("model_version_tags", _key(version)))
        if (identity := _identity(version, tags)) in known:
            return
        name, number = model["name"], version["version"]
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or {"/", ":"} & {*name}:
            raise RefusedError("the name is not one that MLflow allows")
        if not isinstance(number, int) or number < 1:
            raise RefusedError("its number is not positive")
        self._model(model)
        [(free, highest)] = self.ours.execute(
            "SELECT sum(version = ?) IS NOT 1, ifnull(max(version), 0) FROM model_versions WHERE name = ?",
            [number, name],
        )
        here = number if free else highest + 1
        insert(self.ours, "model_versions", [self._placed(version) | {"version": here}])
        insert(self.ours, "model_version_tags", [tag | {"version": here} for tag in tags])
        self._aliases(name, number, here)
        known[identity] = here
        self.taken.append((name, number, here))

    def _model(self, model: Row) -> None:
        """The model itself, with its tags, where there is none of this name here."""
        found: Row = {"workspace": "default", "name": model["name"]}
        if not self._here("registered_models", found):
            insert(self.ours, "registered_models", [model])
            tags = self.other.rows("registered_model_tags", found)
            insert(self.ours, "registered_model_tags", self.other.checked("registered_model_tags", tags))

    def _aliases(self, name: str, there: int, here: int) -> None:
        """The aliases of a version, unless they name another version here."""
        found: Row = {"workspace": "default", "name": name}
        taken = {row["alias"] for row in self._here("registered_model_aliases", found)}
        theirs = self.other.rows("registered_model_aliases", {**found, "version": there})
        for alias in self.other.checked("registered_model_aliases", theirs):
            if alias["alias"] not in taken:
                insert(self.ours, "registered_model_aliases", [alias | {"version": here}])

    def _placed(self, version: Row) -> Row:
        """The version with its place: MLflow loads a model from there, and a stranger must not say from where.

        The name of an out in DVC's cache stays; anything else becomes the folder of the run's files here.
        """
        source = str(version["source"])
        place = source if source.startswith(DVC) else str(mlflow_seal.artifacts(self.root, str(version["run_id"])))
        return version | {"source": place, "storage_location": place, "run_link": None}


def _key(version: Row) -> dict[str, object]:
    return {"workspace": "default", "name": version["name"], "version": version["version"]}


def _identity(version: Row, tags: list[Row]) -> tuple[object, object]:
    """What tells a version from others of its model: its run and the hash of its out; without one, when it was made."""
    out = next((tag["value"] for tag in tags if tag["key"] == PREFIX + "hash"), version["creation_time"])
    return version["run_id"], out
