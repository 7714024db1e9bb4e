"""The MLflow run of each execution: that it is there, its seal, and each tag, parameter and metric against the files
that have it too.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.engine import mlflow_client, mlflow_seal
from flows.engine.dvc_lock import Entry, get_data_hashes, get_entry_hashes
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.mlflow_seal import RECORD
from flows.engine.records.reader import RecordsReader
from flows.lineage import cache_objects
from flows.lineage.checks import database
from flows.lineage.checks.database import RunRow
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.lock_differences import format_entry_value
from flows.lineage.checks.md5_cache import Memory
from flows.lineage.checks.record_agreement import load_record_json_or_none
from flows.lineage.checks.subjects import Subject
from tasks.common import mlflow_database, run_environment

CHECK = "run"
NOT_IN_NAMES = re.compile(r"[^\w./ :-]")  # what a metric's name may not have in MLflow
OF_RECORD = {
    "git_commit": "commit",
    "git_dirty": "dirty",
    "git_note": "note",
    "patch": "patch",
}  # tag -> its key in record.json
ENVIRONMENT = "env."
UNRECORDED = (
    "`dvc commit` after a change by hand did, a command that records nothing under plain `dvc repro`, or another "
    "machine whose "
    "records did not come along; `dvc pull --run-cache` brings such records, `posttrain run --force STAGE` makes "
    "the result again"
)


class RunsCheck:
    """One check of the runs of many executions."""

    def __init__(self, audit: Audit, root: Path, records: RecordsReader | None, memory: Memory) -> None:
        self.audit = audit
        self.root = root
        self.records = records
        self.memory = memory
        self._own = mlflow_database.make_clone_tags(root)
        self.unsealed: list[Subject] = []
        self.merged: list[Subject] = []

    def check(self, subjects: Sequence[Subject]) -> None:
        """Check each run that is known, and say which results have none."""
        self._add_unrecorded_fault(
            [subject for subject in subjects if subject.run_id is None and subject.entry.get("outs")]
        )
        for subject in subjects:
            run_id = subject.run_id
            if run_id is None:
                continue
            row = database.find_run_row(self.records, run_id)
            if row is None and subject.made.elsewhere:
                self.audit.counts["runs"] += 1
                self.merged.append(subject)
            elif row is None:
                self._add_fault(subject, "the run that made it was deleted from MLflow's database")
            else:
                self.audit.counts["runs"] += 1
                self._check_run(subject, row)
        self._add_foreign_code_remarks(subjects)
        for some, what in (
            (self.unsealed, "were made before runs had seals"),
            (self.merged, "were made in another clone"),
        ):
            if some:
                self.audit.remark(
                    CHECK, _format_stage_list([member.stage for member in some]), f"{len(some)} runs {what}"
                )

    def _add_foreign_code_remarks(self, subjects: Sequence[Subject]) -> None:
        """Name the code that came into the current results' processes from outside of what is on record."""
        stages: dict[tuple[str, str], list[str]] = {}
        for subject in subjects:
            for item in run_environment.filter_foreign_injections(subject.made.environment).items():
                stages.setdefault(item, []).append(subject.stage)
        for (name, text), names in stages.items():
            path, _, digest = text.rpartition(" ")
            what = (
                f"{path} (SHA-256 {digest[:12]}) could change what {_format_stage_list(names)} did; `posttrain verify` "
                "runs without it"
            )
            self.audit.remark(CHECK, name, what)

    def _add_unrecorded_fault(self, subjects: Sequence[Subject]) -> None:
        """One fault for all results of which nobody has a record."""
        if subjects:
            what = f"no run on record made {'this' if len(subjects) == 1 else 'these'}: {UNRECORDED}"
            self.audit.fault(CHECK, ", ".join(dict.fromkeys(subject.stage for subject in subjects)), what)

    def _check_run(self, subject: Subject, row: RunRow) -> None:
        if row.deleted:
            self._add_fault(subject, "the run was deleted in MLflow; its pages can restore it")
        if row.status != "FINISHED":
            self.audit.remark(CHECK, subject.stage, f"its run is {row.status}: it did not finish", None, row.id)
            if row.tag("seal") is None:  # with a seal it had come to its end, whatever its status says now
                return
        elsewhere = any(row.tags.get(key, expected) != expected for key, expected in self._own.items())
        if elsewhere or any(key.startswith(f"{PREFIX}merged") for key in row.tags):
            self.merged.append(subject)
        before = len(self.audit.faults)
        sealed = row.tag("seal") == mlflow_seal.compute_run_seal(self.root, row.id)
        content = load_record_json_or_none(self.root, row.id)
        if content is not None:
            self._check_tags(subject, row, content)
            self._check_params(subject, row, content["entry"])
        else:
            self._check_tags(subject, row, {"entry": subject.entry})
        self._check_metrics(subject, row, content["entry"] if content else subject.entry, sealed)
        if not sealed:
            self._check_seal(subject, row, content is not None, named=len(self.audit.faults) > before)

    def _check_seal(self, subject: Subject, row: RunRow, recorded: bool, named: bool) -> None:
        """Say what a seal that does not fit means; where only it tells of a change, say that."""
        if row.tag("seal") is None:
            if recorded or row.tag("code") is not None:
                self._add_fault(subject, "its seal is gone: the tag posttrain.seal was removed")
            else:
                self.unsealed.append(subject)
        elif not recorded:
            self._add_fault(subject, f"{RECORD} is missing from its files, or is torn; its seal covers it")
        elif not named:
            self._add_fault(subject, f"a tag, a parameter, a metric or {RECORD} of the run was changed after it ended")

    def _check_tags(self, subject: Subject, row: RunRow, content: Mapping[str, Any]) -> None:
        """Compare the run's tags and data sets with its record."""
        entry: Entry = content["entry"]
        expected: dict[str, object] = {
            **mlflow_client.build_input_tags(row.tag("stage") or subject.stage, entry),
            **mlflow_client.build_out_tags(entry),
        }
        source = f"its {RECORD}"
        if "stage" in content:
            expected[f"{PREFIX}stage"] = content["stage"]
            expected |= {PREFIX + tag: content.get(key) for tag, key in OF_RECORD.items()}
            environment = content.get("environment") or {}
            expected |= {f"{PREFIX}{ENVIRONMENT}{key}": value for key, value in environment.items()}
            expected["mlflow.source.name"] = str(entry["cmd"])
        else:
            source = "dvc.lock" if subject.current else "DVC's run cache"
            if row.tag("code") is None:  # an earlier version had a tag for each module
                expected = {key: value for key, value in expected.items() if key != f"{PREFIX}code"}
        for key, value in expected.items():
            if row.tags.get(key) != value:
                self._add_fault(
                    subject,
                    f"tag {key} is {format_entry_value(row.tags.get(key))}, {source} has {format_entry_value(value)}",
                )
        digests = {path: md5[:36] for path, md5 in get_data_hashes(entry).items()}
        for path, digest in row.inputs.items():
            if digests.get(path) != digest:
                recorded = digests.get(path, "no such dep")
                self._add_fault(subject, f"its data set {path} has the digest {digest}, {source} has {recorded}")
        for path in digests.keys() - row.inputs.keys() if "stage" in content else ():
            self._add_fault(subject, f"its data set {path} is missing, {source} has {digests[path]}")

    def _check_params(self, subject: Subject, row: RunRow, entry: Entry) -> None:
        """Compare MLflow's parameters, SECTION.KEY with values as texts, with those of the record."""
        recorded: dict[str, object] = {}
        for values in (entry.get("params") or {}).values():
            for section, content in values.items():
                inner = content.items() if isinstance(content, Mapping) else [("", content)]
                recorded |= {f"{section}.{key}".rstrip("."): value for key, value in inner}
        for key, text in row.params.items():
            if key in recorded and _parse_logged_value(text) != _parse_logged_value(str(recorded[key])):
                self._add_fault(
                    subject,
                    f"parameter {key} is {format_entry_value(text)}, its {RECORD} has "
                    f"{format_entry_value(recorded[key])}",
                )

    def _check_metrics(self, subject: Subject, row: RunRow, entry: Entry, sealed: bool) -> None:
        """Compare the metrics at step 0 with the stage's metrics file, and the latest values with all values."""
        path = f"data/metrics/{subject.stage}.json"
        md5 = get_entry_hashes(entry, "outs").get(path)
        file = self._read_metrics_file(path, md5) if md5 else None
        named = set[str]()
        if file is not None:
            for name, value in database.iterate_metric_numbers(database.parse_metrics_json(file)):
                self.audit.counts["numbers"] += 1
                key = NOT_IN_NAMES.sub("_", name)
                logged = [number for step, _, number in row.metrics.get(key, ()) if step == 0]
                if logged and not any(database.is_same_metric_number(number, value) for number in logged):
                    self._add_fault(subject, f"metric {key} is {logged[-1]!r}, {path} has {value!r}")
                    named.add(key)
                elif not logged and sealed:
                    self.audit.remark(
                        CHECK, f"MLflow's run of {subject.stage}", f"it never had the metric {key}", None, row.id
                    )
                elif not logged and row.tag("seal") is not None:
                    self._add_fault(subject, f"metric {key} is missing, {path} has {value!r}")
                    named.add(key)
        for key in sorted(row.latest.keys() - row.metrics.keys() - named):
            what = f"MLflow's pages show metric {key} as {row.latest[key]!r}, its history has no value"
            self._add_fault(subject, what)
        for key in sorted(row.metrics.keys() - row.latest.keys() - named):
            self._add_fault(subject, f"MLflow's pages do not show metric {key}, which its history has")
        for key, values in row.metrics.items():
            number = max(values, key=lambda value: (value[0], value[1]))[2]
            same = [value for step, moment, value in values if (step, moment) == max((v[0], v[1]) for v in values)]
            if key in row.latest.keys() - named and not any(
                database.is_same_metric_number(row.latest[key], value) for value in same
            ):
                self._add_fault(
                    subject,
                    f"MLflow's pages show metric {key} as {row.latest[key]!r}, its history ends with {number!r}",
                )

    def _read_metrics_file(self, path: str, md5: str) -> bytes | None:
        """The metrics file with this hash, from the cache or the workspace."""
        for file in (cache_objects.find_cache_object(self.root, md5), self.root / path):
            if file is not None and self.memory.digests([file])[file] == md5:
                return file.read_bytes()
        return None

    def _add_fault(self, subject: Subject, what: str) -> None:
        self.audit.fault(CHECK, f"MLflow's run of {subject.stage}", what, subject.stage, subject.run_id)


def _format_stage_list(stages: Sequence[str]) -> str:
    """The first three stages by name, and how many more there are."""
    names = list(dict.fromkeys(stages))
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _parse_logged_value(text: str) -> object:
    """A logged value as data, so that 1 equals 1.0 and a tuple equals a list."""
    try:
        return json.loads(json.dumps(ast.literal_eval(text)))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
