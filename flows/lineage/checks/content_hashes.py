"""The bytes of what stages read and made, in the workspace and in DVC's cache, against the hashes of the records."""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine.dvc_lock import Entry, get_data_hashes, get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects
from flows.lineage.checks import dvc_pipeline
from flows.lineage.checks.dvc_pipeline import Pipeline
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.md5_cache import Memory, OnProgress
from flows.lineage.checks.origins import Origins, list_swapped_paths
from flows.lineage.checks.subjects import Subject, Unfinished
from flows.lineage.cleaning import removal_log
from flows.machine.files import find_hashing_fault

NAMED = 3  # wrong files of one folder that are named each
CHECK = "bytes"


@dataclass(frozen=True)
class Claim:
    """Some record's word that a path has, or had, the bytes of this hash."""

    path: str
    md5: str
    entry: Entry
    stage: str
    run_id: str | None
    raw: bool = False  # no stage makes it: `stage` has read it

    @property
    def whose(self) -> str:
        """The stage and what it did."""
        return f"{self.stage} {'read' if self.raw else 'made'}"


@dataclass
class Listing:
    """The files of one hash: path within the folder -> MD5; None where the list of a folder is not in the cache, or is
    damaged.
    """

    files: Mapping[str, str] | None
    objects: Mapping[str, Path | None] = field(default_factory=dict)  # MD5 -> its file in the cache


class Bytes:
    """One check of the bytes of many executions; each file is read once."""

    def __init__(
        self,
        audit: Audit,
        root: Path,
        memory: Memory,
        origins: Origins,
        pipeline: Pipeline,
        unfinished: Unfinished,
        on_progress: OnProgress,
    ) -> None:
        self.audit = audit
        self.root = root
        self.memory = memory
        self.origins = origins
        self.pipeline = pipeline
        self.unfinished = unfinished
        self.on_progress = on_progress
        self.ignored = dvc_pipeline.Ignored(root)
        self.removed = removal_log.load_removal_times(root)
        self._listings: dict[str, Listing] = {}

    def check(self, subjects: Sequence[Subject], outs: Collection[str]) -> None:
        """Compare every out, in the workspace where it is current, and every object of the cache.

        `outs` are the paths of all outs that dvc.lock records; other inputs are raw data.
        """
        in_workspace = [
            claim for claim in _list_workspace_claims(subjects, outs) if self._check_within_repository(claim)
        ]
        kept = _list_cache_claims(subjects, self.pipeline)
        self.audit.counts["outs"] += len({(claim.path, claim.md5) for claim in (*in_workspace, *kept)})
        self._load_listings({claim.md5 for claim in (*in_workspace, *kept)})
        locations = {claim.path: self._get_current_path(claim.path) for claim in in_workspace}
        walked = {path: _collect_files(location) for path, location in locations.items()}
        objects = {file for claim in kept for file in self._listings[claim.md5].objects.values() if file is not None}
        files = {file for below in walked.values() for file in below.values()}
        digests = self.memory.digests(sorted(files | objects), self.on_progress)
        self.audit.counts["files"] += len(files | objects)
        self._check_workspace(in_workspace, walked, digests)
        for claim in kept:
            self._check_cache_objects(claim, digests)

    def _load_listings(self, wanted: set[str]) -> None:
        """Read the lists of folders, once their own bytes are known to be right."""
        lists = {md5: cache_objects.find_cache_object(self.root, md5) for md5 in wanted if md5.endswith(".dir")}
        digests = self.memory.digests([file for file in lists.values() if file is not None])
        for md5 in wanted:
            files: Mapping[str, str] | None = {"": md5}
            objects: dict[str, Path | None] = {}
            if md5.endswith(".dir"):
                file = objects[md5] = lists[md5]
                try:
                    whole = file is not None and f"{digests[file]}.dir" == md5
                    files = cache_objects.read_cached_file_hashes(self.root, md5) if whole else None
                except PlanError:
                    files = None
            objects |= {
                object_md5: cache_objects.find_cache_object(self.root, object_md5)
                for object_md5 in set((files or {}).values())
            }
            self._listings[md5] = Listing(files, objects)

    def _check_within_repository(self, claim: Claim) -> bool:
        """Whether an out is in the repository; one elsewhere was never made here, and is not read.

        Raw data may be anywhere.
        """
        within = claim.raw or Path(os.path.normpath(self.root / claim.path)).is_relative_to(self.root)
        if not within:
            self._add_fault(claim, claim.path, "is outside of the repository; expected an out within it")
        return within

    def _get_current_path(self, path: str) -> Path:
        """Where an out's bytes are: in its place, or aside while its stage is at work or was killed."""
        return self.unfinished.aside.get(path, self.root / path)

    def _check_workspace(
        self, claims: Sequence[Claim], walked: Mapping[str, Mapping[str, Path]], digests: Mapping[Path, str | None]
    ) -> None:
        actual: dict[str, str] = {}
        files: dict[str, Mapping[str, str]] = {}
        for claim in claims:
            listed = self._listings[claim.md5].files
            below = self._drop_ignored_files(walked[claim.path], listed)
            if listed is None:
                below = self._report_and_drop_unhashable_files(claim, below)
            files[claim.path] = {name: digests[file] or "unreadable" for name, file in below.items()}
            if set(below) == {""}:
                actual[claim.path] = files[claim.path][""]
            elif below or self._get_current_path(claim.path).is_dir():
                actual[claim.path] = compute_folder_hash(files[claim.path])
        expected = {claim.path: claim.md5 for claim in claims}
        pairs = list_swapped_paths(actual, expected)
        for first, second in pairs:
            [claim] = [claim for claim in claims if claim.path == first][:1]
            self._add_fault(
                claim, first, f"has the bytes of {second}, and {second} has those of {first}: they were swapped"
            )
        done = {path for pair in pairs for path in pair}
        for claim in claims:
            if actual.get(claim.path) == claim.md5 or claim.path in done:
                continue
            if claim.path not in actual:
                self._report_missing_out(claim)
            else:
                self._report_wrong_out(claim, actual[claim.path], files[claim.path])

    def _report_missing_out(self, claim: Claim) -> None:
        listing = self._listings[claim.md5]
        if claim.stage in self.unfinished.stages or self.unfinished.at_work:
            self.audit.remark(CHECK, claim.path, "is being made, or its run was killed", claim.stage, claim.run_id)
        elif not claim.raw and listing.files is not None and all(listing.objects.values()):
            brings = "is in the cache, but not in the workspace; `dvc checkout` brings it back"
            self.audit.remark(CHECK, claim.path, brings, claim.stage, claim.run_id)
        else:
            self._add_fault(claim, claim.path, f"is missing; expected {claim.md5}, which {claim.whose}")

    def _report_wrong_out(self, claim: Claim, actual: str, files: Mapping[str, str]) -> None:
        """Say whose bytes an out has, or which of its files differ."""
        listed = self._listings[claim.md5].files
        whose = self.origins.of(actual, claim.path, claim.entry)
        if whose or listed is None or "" in listed or "" in files:
            why = f": {whose}" if whose else ""
            self._add_fault(
                claim, claim.path, f"its bytes are {actual}, expected {claim.md5}, which {claim.whose}{why}"
            )
            return
        pairs = list_swapped_paths(files, listed)
        for first, second in pairs:
            self._add_fault(
                claim, f"{claim.path}/{first}", f"has the bytes of {second}, and that has its: they were swapped"
            )
        done = {name for pair in pairs for name in pair}
        wrong = [name for name in sorted({*listed, *files} - done) if listed.get(name) != files.get(name)]
        for name in wrong[:NAMED]:
            self._add_fault(
                claim, f"{claim.path}/{name}", self._format_file_fault(claim, name, listed.get(name), files.get(name))
            )
        if len(wrong) > NAMED:
            self._add_fault(
                claim, claim.path, f"{len(wrong) - NAMED} more of its {len(listed)} files are not what {claim.whose}"
            )

    def _format_file_fault(self, claim: Claim, name: str, expected: str | None, actual: str | None) -> str:
        if actual is None:
            return f"is missing; expected {expected}, which {claim.whose}"
        if expected is None:
            return f"is not among the files that {claim.whose}"
        whose = self.origins.format_file_origin(actual, claim.path, name, claim.entry)
        return f"its bytes are {actual}, expected {expected}, which {claim.whose}{f': {whose}' if whose else ''}"

    def _drop_ignored_files(self, files: Mapping[str, Path], listed: Mapping[str, str] | None) -> Mapping[str, Path]:
        """The files without those that DVC ignores; it is asked only about files that are not expected."""
        extra = [file for name, file in files.items() if name and name not in (listed or {})]
        left_out = self.ignored.select_ignored_files(extra)
        return {name: file for name, file in files.items() if file not in left_out}

    def _report_and_drop_unhashable_files(self, claim: Claim, files: Mapping[str, Path]) -> dict[str, Path]:
        """The files without those that no run could have read as they are hashed, such as a pipe; each of them is a
        fault.
        """
        wrong = {name: find_hashing_fault(str(file), within=True) for name, file in files.items() if name}
        for name, what in wrong.items():
            if what:
                self._add_fault(claim, f"{claim.path}/{name}", what)
        return {name: file for name, file in files.items() if not wrong.get(name)}

    def _check_cache_objects(self, claim: Claim, digests: Mapping[Path, str | None]) -> None:
        """Compare the cache's objects of an out with their names."""
        listing = self._listings[claim.md5]
        names = {md5: name for name, md5 in (listing.files or {}).items()}
        gone = 0
        for md5, file in listing.objects.items():
            if file is None:
                gone += 1
                continue
            actual = digests[file]
            if f"{actual}{'.dir' if md5.endswith('.dir') else ''}" != md5:
                what = f"{claim.path}/{names[md5]}".rstrip("/") if md5 in names else f"the list of {claim.path}'s files"
                has = f"its bytes are {actual}, expected {md5} by its name" if actual else "cannot be read"
                self._add_fault(
                    claim, self._format_path(file), f"{has}: it is the cache's copy of {what}, which {claim.whose}"
                )
        if gone:
            amount = f"{gone} of its {len(listing.objects)} files are" if len(listing.objects) > 1 else "is"
            dates = [self.removed[md5] for md5, file in listing.objects.items() if file is None and md5 in self.removed]
            why = removal_log.format_removal_date(max(dates)) if dates else "collected, or never pulled"
            what = f"{amount} not in the cache (any more), {claim.md5[:8]}: {why}"
            self.audit.remark(CHECK, claim.path, what, claim.stage, claim.run_id)

    def _format_path(self, file: Path) -> str:
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)

    def _add_fault(self, claim: Claim, where: str, what: str) -> None:
        self.audit.fault(CHECK, where, what, claim.stage, claim.run_id)


def compute_folder_hash(files: Mapping[str, str]) -> str:
    """DVC's hash of a folder: the MD5 of its list of files in JSON."""
    listed = [{"md5": md5, "relpath": name} for name, md5 in sorted(files.items())]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def _list_workspace_claims(subjects: Sequence[Subject], outs: Collection[str]) -> list[Claim]:
    """What the workspace is to hold: the current outs, and the raw data that current stages have read."""
    current = [subject for subject in subjects if subject.current]
    made = {
        path: Claim(path, md5, execution.entry, execution.stage, execution.run_id)
        for execution in current
        for path, md5 in get_entry_hashes(execution.entry, "outs").items()
    }
    raw: dict[tuple[str, str], Claim] = {}
    for execution in current:
        for path, md5 in get_data_hashes(execution.entry).items():
            beside = any(path == out or path.startswith(f"{out}/") or out.startswith(f"{path}/") for out in outs)
            if not beside:
                raw.setdefault(
                    (path, md5), Claim(path, md5, execution.entry, execution.stage, execution.run_id, raw=True)
                )
    return [*made.values(), *raw.values()]


def _list_cache_claims(subjects: Sequence[Subject], pipeline: Pipeline) -> list[Claim]:
    """What the cache is to hold: every out of every execution, once for each hash."""
    claims: dict[str, Claim] = {}
    for execution in sorted(subjects, key=lambda subject: not subject.current):
        for path, md5 in get_entry_hashes(execution.entry, "outs").items():
            if md5 and path not in pipeline.uncached:
                claims.setdefault(md5, Claim(path, md5, execution.entry, execution.stage, execution.run_id))
    return list(claims.values())


def _collect_files(path: Path) -> dict[str, Path]:
    """Every file of a folder by its path within; a file by the empty path; nothing where there is nothing."""

    def below(folder: Path) -> Iterator[tuple[str, Path]]:
        for parent, folders, names in os.walk(folder):
            links = [name for name in folders if Path(parent, name).is_symlink()]  # DVC does not go into them either
            for name in (*names, *links):
                file = Path(parent, name)
                yield file.relative_to(folder).as_posix(), file

    return dict(below(path)) if path.is_dir() else {"": path} if path.is_file() else {}
