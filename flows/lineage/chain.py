"""From an output, or the hash of any earlier one, back to raw data: output -> run -> the run's inputs -> their runs.

A stage that was restored or is up to date is found by its run-cache key and the hashes of its outs, so the chain does
not depend on the times of runs. Where it breaks, the link's note says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from flows.engine import dvc_lock, mlflow_client, mlflow_run_lookup
from flows.engine.dvc_lock import Entry, read_lock_entries
from flows.engine.dvc_repository import convert_dvc_errors_to_plan_error
from flows.engine.mlflow_run_lookup import Index, Run
from flows.lineage import execution_record, folders, history
from flows.lineage.acceptance import acceptance_runs as acceptance
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.target import LineageTarget, resolve_lineage_target


@dataclass(frozen=True)
class Link:
    """One output and what it was made from. `note` is set where there is no run: for raw data, or where the chain
    breaks.

    A folder that a stage read as one input, and in which others put their outputs, has neither stage nor run; its
    inputs are these outputs.
    """

    path: str
    hash: str
    stage: str | None = None
    run_id: str | None = None
    made_at: datetime | None = None
    commit: str | None = None
    dirty: str | None = None
    source_note: str = ""  # what of commit and files is not on record, and why
    params: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)  # path -> hash of each module that the stage imports
    code_hash: str = ""  # one hash for all of them
    environment: Mapping[str, str] = field(default_factory=dict)  # versions of packages, the machine
    inputs: tuple["Link", ...] = ()
    note: str = ""
    elsewhere: str = ""  # who made it, where the run is not in MLflow here and its record came with the result
    accepted: tuple[str, ...] = ()  # what was accepted of the run's code since, in words


def trace_lineage(root: Path, what: str) -> Link:
    """The lineage of a stage's output, of a path in dvc.lock, of a run, a model version, a metric, or of an md5 that
    some run made.
    """
    root = root.absolute()
    return trace_target_lineage(root, resolve_lineage_target(root, what))


def trace_target_lineage(root: Path, target: LineageTarget) -> Link:
    """The lineage of what was asked for."""
    root = root.absolute()
    with convert_dvc_errors_to_plan_error():
        entries = read_lock_entries(root)
    return _Walk(root, entries).link(target.path, target.hash, target.run_id)


class _Walk:
    """One walk over the records, which looks up each output and each run once."""

    def __init__(self, root: Path, entries: Mapping[str, Entry]) -> None:
        self.root = root
        self.entries = entries
        self.index = Index(root)
        self.seen: dict[tuple[str, str], Link] = {}
        self.accepted: dict[str, tuple[str, ...]] = {}
        self.records: dict[str, tuple[Run, ExecutionRecord]] = {}
        self.made_now = {
            path: (name, md5)
            for name, entry in entries.items()
            for path, md5 in dvc_lock.get_entry_hashes(entry, "outs").items()
        }
        adopted = [
            mlflow_client.find_or_adopt_maker_run(root, name, entry, self.index) for name, entry in entries.items()
        ]
        self.found_now = dict(zip(entries, adopted, strict=True))  # plain `dvc repro` may have run some
        if not all(run_id is None or self.index.has(run_id) for run_id in adopted):
            self.index = Index(root)
        for name, run_id in self.found_now.items():
            self.found_now[name] = run_id or execution_record.find_or_adopt_producing_run_id(
                root, name, entries[name], self.index
            )

    def link(self, path: str, md5: str, run_id: str | None = None, reader: Run | None = None) -> Link:
        """The output with this path and hash; made by this run, where several made the same bytes.

        `reader` is the run that read it.
        """
        if (path, md5) not in self.seen:
            self.seen[path, md5] = self._build_link(path, md5, run_id, reader)
        return self.seen[path, md5]

    def _build_link(self, path: str, md5: str, run_id: str | None, reader: Run | None) -> Link:
        if run_id is not None:
            return self._build_link_of_run(path, md5, run_id)
        stage, made = self.made_now.get(path, (None, None))
        if stage is not None and made == md5:  # several runs may have made these bytes: take the recorded one
            run_id = self.found_now[stage]
            if run_id is None:
                note = f"the chain breaks here: dvc.lock says that {stage} made it, but no MLflow run is on record"
                return self._build_link_from_entry(path, md5, stage, self.entries[stage], note=note)
            return replace(self._build_link_of_run(path, md5, run_id), accepted=self._list_acceptance_lines(stage))
        for run_id in self.index.makers(md5):
            if (
                mlflow_client.extract_tagged_path_hashes(self._load_run(run_id)[0].tags, "out").get(
                    _format_path_as_tag(path)
                )
                == md5
            ):
                return self._build_link_of_run(path, md5, run_id)
        if stage is not None:
            return Link(path, md5, stage, note=f"the chain breaks here: no finished run of {stage} made this version")
        outs, note = (
            folders.find_folder_outputs(self.root, path, md5, self._iterate_known_outputs(reader))
            if md5.endswith(".dir")
            else ({}, "")
        )
        if outs or note:
            return Link(path, md5, inputs=tuple(self.link(*out) for out in sorted(outs.items())), note=note)
        return Link(path, md5, note="raw: no stage makes it")

    def _list_acceptance_lines(self, stage: str) -> tuple[str, ...]:
        """By what steps dvc.lock's entry of a stage came from that of its run, the first one first."""
        if stage not in self.accepted:
            steps = acceptance.list_acceptance_steps(self.root, stage, self.entries[stage], self.index)
            self.accepted[stage] = tuple(step.line for step in reversed(steps))
        return self.accepted[stage]

    def _iterate_known_outputs(self, reader: Run | None) -> Iterator[dict[str, str]]:
        """What the stages have made by now, and what they had made in the pipeline run of the run `reader`."""
        yield {path: md5 for path, (_, md5) in self.made_now.items()}
        beside = history.get_stage_run_ids(self.root, reader.tags.get("mlflow.parentRunId", "")) if reader else {}
        yield {
            path: md5
            for run_id in beside.values()
            for path, md5 in dvc_lock.get_entry_hashes(self._load_run(run_id)[1].entry, "outs").items()
        }

    def _load_run(self, run_id: str) -> tuple[Run, ExecutionRecord]:
        if run_id not in self.records:
            self.records[run_id] = (
                mlflow_run_lookup.get_finished_run(self.root, run_id),
                execution_record.load_run_record(self.root, run_id),
            )
        return self.records[run_id]

    def _build_link_of_run(self, path: str, md5: str, run_id: str) -> Link:
        run, of_run = self._load_run(run_id)
        return self._build_link_from_entry(path, md5, of_run.stage, of_run.entry, run, of_run)

    def _build_link_from_entry(
        self,
        path: str,
        md5: str,
        stage: str,
        entry: Entry,
        run: Run | None = None,
        made: ExecutionRecord | None = None,
        note: str = "",
    ) -> Link:
        code = dvc_lock.get_code_hashes(entry)
        return Link(
            path,
            md5,
            stage,
            run_id=run.id if run else None,
            made_at=run.started if run else None,
            commit=made.commit if made else None,
            dirty=made.dirty if made else None,
            source_note=made.note if made else "",
            params=run.params if run else {},
            code=code,
            code_hash=dvc_lock.compute_code_hash(code) if code else "",
            environment=made.environment if made else {},
            elsewhere=made.elsewhere if made else "",
            inputs=tuple(
                self.link(dep, value, reader=run) for dep, value in sorted(dvc_lock.get_data_hashes(entry).items())
            ),
            note=note,
        )


def _format_path_as_tag(path: str) -> str:
    return mlflow_client.format_tag_name("", path).removeprefix(".")
