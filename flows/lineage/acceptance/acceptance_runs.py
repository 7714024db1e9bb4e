"""What was accepted, as MLflow keeps it: a run for each acceptance, which executes nothing.

Its record.json has for each stage the entries of dvc.lock before and after, and the run that made the outs; beside it
lie both versions of the code that changed, each named by its hash, and the difference. Tags lead to it from an entry
(`posttrain.accepted.key.` and the run-cache key) and from a version of a file (`posttrain.accepted.file.` and the
hash). It is sealed as all runs are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_lock import Entry, get_entry_hashes, join_out_hashes
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.mlflow_run_lookup import ACCEPTED, PREFIX
from flows.engine.mlflow_seal import RECORD
from flows.engine.records import mlflow_artifacts, provenance

HOW = ACCEPTED + "how"
KEY = ACCEPTED + "key."
FILE = ACCEPTED + "file."
# how: found to have no effect by an older version, or vouched for
EDIT = "edit"
PERSON = "person"
DIFF = "accepted.diff"
LONGEST = 100  # steps of one stage that are followed


@dataclass(frozen=True)
class AcceptanceStep:
    """That a stage's entry `before` became `after` without an execution."""

    run_id: str  # of the acceptance
    stage: str
    how: str
    why: str  # of a person
    by: str
    when: datetime | None
    before: Entry
    after: Entry
    maker: str | None  # the run that made the outs
    files: Mapping[str, str]  # path -> in what alone it differs; "" where a person vouches for it

    @property
    def line(self) -> str:
        """What was accepted, for a person."""
        if self.how == EDIT:
            return f"accepted: {format_file_differences(self.files)}"
        return f"accepted by {self.by}, {', '.join(self.files) or 'no code'}: {self.why}"


def format_file_differences(files: Mapping[str, str]) -> str:
    """`comments or layout in a.py and b.py; docstrings in c.py`."""
    by_kind: dict[str, list[str]] = {}
    for path, what in files.items():
        by_kind.setdefault(what, []).append(path)
    return "; ".join(f"{what} in {' and '.join(paths)}" for what, paths in by_kind.items())


def format_version_file_name(md5: str) -> str:
    """The name under which a version of a module is kept."""
    return f"{md5}.py"


def list_acceptance_steps(
    root: Path, stage: str, entry: Entry, index: mlflow_run_lookup.Index | None = None
) -> tuple[AcceptanceStep, ...]:
    """How this entry came from that of an execution, the last step first; none where an execution made it, or none is
    on record.
    """
    chain = list[AcceptanceStep]()
    seen = set[str]()
    for _ in range(LONGEST):
        key = compute_run_cache_key(entry)
        outs = join_out_hashes(entry)
        exact = index.find(key, outs) if index is not None else mlflow_run_lookup.find_maker_run(root, key, outs)
        if exact is not None or key in seen:
            break
        seen.add(key)
        records = mlflow_run_lookup.filter_records_not_in_mlflow(root, provenance.load_entry_provenance(root, entry))
        if any(carried.entry for carried in records):
            break
        runs = [*(run_id for run_id, _ in _list_acceptances(root, key)), *(carried.run_id for carried in records)]
        step = next(filter(None, (_find_step_to_entry(root, run_id, stage, entry) for run_id in runs)), None)
        if step is None:
            break
        chain.append(step)
        entry = step.before
    return tuple(chain)


def _list_acceptances(root: Path, key: str) -> list[tuple[str, str]]:
    return mlflow_run_lookup.list_acceptances(root, key)


def _find_step_to_entry(root: Path, run_id: str, stage: str, entry: Entry) -> AcceptanceStep | None:
    """The step to this very entry."""
    step = load_acceptance_steps(root, run_id).get(stage)
    same = (
        step is not None
        and compute_run_cache_key(step.after) == compute_run_cache_key(entry)
        and join_out_hashes(step.after) == join_out_hashes(entry)
    )
    return step if same else None


def load_acceptance_steps(root: Path, run_id: str) -> dict[str, AcceptanceStep]:
    """Stage -> what this acceptance says of it; nothing where its record is missing, torn or of another form."""
    try:
        content = load_record_json(root, run_id)["accepted"]
        when = datetime.fromisoformat(content["when"])
        return {
            str(stage): AcceptanceStep(
                run_id,
                str(stage),
                str(content["how"]),
                str(content["why"]),
                str(content["by"]),
                when,
                _parse_lock_entry(stage_fields["before"]),
                _parse_lock_entry(stage_fields["after"]),
                stage_fields["maker"],
                {str(path): str(what) for path, what in stage_fields["files"].items()},
            )
            for stage, stage_fields in content["stages"].items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def load_record_json(root: Path, run_id: str) -> Any:
    """The content of a run's record.json, as MLflow keeps it or as it came with a result; None if there is none or it
    is torn.
    """
    try:
        return json.loads(mlflow_artifacts.get_or_fetch_artifact_path(root, run_id, RECORD).read_text())
    except FileNotFoundError:
        with mlflow_run_lookup.open_records_reader(root) as records:
            is_in_mlflow = records is not None and records.head(run_id) is not None
        carried = None if is_in_mlflow else provenance.find_run_provenance(root, run_id)
        return carried.record if carried else None
    except (OSError, ValueError, RecursionError):
        return None


def _parse_lock_entry(content: Any) -> Entry:
    """An entry of dvc.lock; TypeError or LookupError where it is none."""
    for kind in ("deps", "outs"):
        for dep_or_out in content.get(kind) or ():
            if not isinstance(dep_or_out["path"], str) or not isinstance(dep_or_out.get("md5"), str | None):
                raise TypeError(f"{kind}: expected paths and hashes")
    if not isinstance(content.get("params") or {}, dict):
        raise TypeError("params: expected values by their file")
    compute_run_cache_key(content)
    get_entry_hashes(content, "deps")
    entry: Entry = content
    return entry


def encode_acceptance_record(
    how: str, why: str, by: str, when: datetime, accepted_steps: Sequence[AcceptanceStep]
) -> bytes:
    """The content of record.json."""
    stages = {
        step.stage: {"before": step.before, "after": step.after, "maker": step.maker, "files": step.files}
        for step in accepted_steps
    }
    content = {"how": how, "why": why, "by": by, "when": when.isoformat(timespec="seconds"), "stages": stages}
    return (json.dumps({"accepted": content}, indent=1) + "\n").encode()


def build_acceptance_tags(
    how: str, why: str, accepted_steps: Sequence[AcceptanceStep], files: Mapping[str, str]
) -> dict[str, str]:
    """The tags of the run; `files` has the paths of the versions that are kept, by their hashes."""
    keys = {KEY + compute_run_cache_key(step.after): step.maker or "none" for step in accepted_steps}
    return {
        HOW: how,
        **({PREFIX + "accepted.why": why} if why else {}),
        **keys,
        **{FILE + md5: path for md5, path in files.items()},
    }


def load_accepted_code(root: Path, md5: str) -> bytes | None:
    """The code with this hash, where an acceptance has kept it."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        runs = [run_id for run_id, _ in records.versions(FILE + md5, 1)] if records else []
    for run_id in runs:
        file = mlflow_artifacts.get_or_fetch_artifact_path(root, run_id, format_version_file_name(md5))
        if file.is_file():
            return file.read_bytes()
    return None
