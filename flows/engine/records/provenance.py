"""The provenance of a result: the sealed record of the run that made it, as a file that travels with DVC's run cache.

`dvc push --run-cache` and `dvc pull --run-cache` carry every file below the run cache's folder. A record lies there in
a folder that is named after the entry of dvc.lock that it is about, as DVC names its own records. Its name has the
run's id and the SHA-256 of its content, so that an edit shows.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from flows.engine.dvc_lock import Entry
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_entry_hash, get_run_cache_folder
from flows.engine.records.reader import PREFIX

FOLDER = "provenance"
NAME = re.compile(r"([A-Za-z0-9][\w-]*)-([0-9a-f]{64})\.json")
USER = "mlflow.user"
LATEST = 10**14  # milliseconds, beyond which there is no date


@dataclass(frozen=True)
class Provenance:
    """What the run of a stage, or the acceptance of an edit, has on record, as it was when it ended."""

    run_id: str
    started: int  # milliseconds
    seal: str  # of the run in the MLflow that it was recorded in
    tags: Mapping[str, str]
    params: Mapping[str, str]
    record: Mapping[str, Any]  # the content of record.json

    @property
    def entry(self) -> Entry | None:
        """What an execution read and made, as in dvc.lock; None for an acceptance, which executes nothing."""
        return self.record.get("entry")


def save_provenance(root: Path, carried: Provenance) -> None:
    """Keep a record beside the run cache, once for each entry of dvc.lock that it is about; PlanError if it cannot be
    written.

    Where there is no DVC repository, nothing is kept: there is no run cache that could carry it.
    """
    if not (root / ".dvc").is_dir():
        return
    content = json.dumps(vars(carried), sort_keys=True).encode()
    name = f"{carried.run_id}-{hashlib.sha256(content).hexdigest()}.json"
    for entry in _list_record_entries(carried.record):
        file = _get_provenance_folder(root) / compute_entry_hash(entry) / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(".new")
            temporary.write_bytes(content)
            temporary.replace(file)
        except OSError as error:
            raise PlanError(f"{file}: the record of the run cannot be written: {error.strerror or error}") from error


def load_entry_provenance(root: Path, entry: Entry) -> list[Provenance]:
    """The records of this very entry of dvc.lock, the newest first; none that was changed after it was written."""
    files = (_get_provenance_folder(root) / compute_entry_hash(entry)).glob("*.json")
    return sorted(filter(None, map(_load_valid_record, files)), key=lambda carried: carried.started, reverse=True)


def list_altered_record_files(root: Path, entry: Entry) -> list[Path]:
    """The files among the records of an entry that were changed after they were written, or are about another entry."""
    return [
        file
        for file in sorted((_get_provenance_folder(root) / compute_entry_hash(entry)).glob("*.json"))
        if _load_valid_record(file) is None
    ]


def find_run_provenance(root: Path, run_id: str) -> Provenance | None:
    """The record of the run with this id."""
    return (
        next(iterate_provenance_by_prefix(root, f"{run_id}-"), None)
        if NAME.fullmatch(f"{run_id}-{'0' * 64}.json")
        else None
    )


def iterate_provenance_by_prefix(root: Path, text: str) -> Iterator[Provenance]:
    """The records of runs whose ids begin so, each once."""
    seen = set[str]()
    for file in _get_provenance_folder(root).glob("*/*.json"):
        if (
            file.name.startswith(text)
            and (carried := _load_valid_record(file)) is not None
            and carried.run_id not in seen
        ):
            seen.add(carried.run_id)
            yield carried


def list_execution_provenance(root: Path) -> list[Provenance]:
    """The records of all executions, the newest first."""
    return sorted(
        (carried for carried in iterate_provenance_by_prefix(root, "") if carried.entry),
        key=lambda carried: carried.started,
        reverse=True,
    )


def _get_provenance_folder(root: Path) -> Path:
    """Where the records lie; without a DVC repository a folder that does not exist."""
    return (get_run_cache_folder(root.absolute()) if (root / ".dvc").is_dir() else root / ".dvc") / FOLDER


def _list_record_entries(record: Mapping[str, Any]) -> list[Entry]:
    """The entries that a record.json is about: that of an execution, or those that came of an acceptance."""
    steps = record["accepted"]["stages"].values() if "accepted" in record else ()
    return [record["entry"]] if "entry" in record else [step["after"] for step in steps]


def _load_valid_record(file: Path) -> Provenance | None:
    """A record; None where its content is not the one that its name is the hash of, or it is about another entry than
    its folder.
    """
    with suppress(OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        content = file.read_bytes()
        name = NAME.fullmatch(file.name)
        if name is None or hashlib.sha256(content).hexdigest() != name[2]:
            return None
        carried = Provenance(**json.loads(content))
        if carried.run_id == name[1] and file.parent.name in map(
            compute_entry_hash, _list_record_entries(carried.record)
        ):
            return carried if _is_well_formed(carried) else None
    return None


def _is_well_formed(carried: Provenance) -> bool:
    """Whether tags, parameters and time have the types that readers rely on; anybody may have written the file."""
    texts = [*carried.tags.items(), *carried.params.items(), (carried.run_id, carried.seal)]
    is_of_stage = carried.entry is None or PREFIX + "stage" in carried.tags
    is_time = isinstance(carried.started, int) and 0 <= carried.started < LATEST
    return is_of_stage and is_time and all(isinstance(text, str) for text in chain.from_iterable(texts))
