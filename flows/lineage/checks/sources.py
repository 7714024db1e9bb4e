"""The code that stages ran, against git: each module's hash of the record, and the file of the recorded commit with the
kept patch.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flows.engine import dvc_lock, stage_code
from flows.engine.dvc_repository import PlanError
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.md5_cache import Memory
from flows.lineage.checks.record_agreement import load_record_json_or_none
from flows.lineage.checks.subjects import Subject, Unfinished, format_unfinished_run
from flows.lineage.git_files import CLEAN, Tree, compute_tree_file_hashes, read_tree_files
from flows.params.files import PARAMS
from tasks.common import source_code

CHECK = "code"
NAMED = 4  # stages that a line names
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class CodeCheck:
    """One check of the code of many executions; git is asked once for every commit's files, and once for each patch."""

    def __init__(self, audit: Audit, root: Path, memory: Memory, unfinished: Unfinished) -> None:
        self.audit = audit
        self.root = root
        self.memory = memory
        self.unfinished = unfinished

    def check(self, subjects: Sequence[Subject]) -> None:
        """Compare the modules of the records with git's, and those of the current results with the working files."""
        codes = [(subject, dvc_lock.get_code_hashes(subject.entry)) for subject in subjects]
        self.audit.counts["code files"] += len({item for _, code in codes for item in code.items()})
        self._check_working_files(
            [(subject, dvc_lock.get_code_hashes(subject.made.recorded)) for subject in subjects if subject.current]
        )
        self._check_against_commits(codes)

    def _check_working_files(self, current: Sequence[tuple[Subject, Mapping[str, str]]]) -> None:
        """Name each file that was changed after stages ran with it, with the stages that are out of date now."""
        files = {path: self.root / path for _, code in current for path in code}
        digests = dict(self.memory.digests(files.values()))
        if any(path.startswith(stage_code.FOLDER) for path in files):
            now = self._compute_current_hashes()
            digests |= {self.root / path: now.get(path) for path in files if path.startswith(stage_code.FOLDER)}
        for path, file in files.items():
            readers = [subject for subject, code in current if code.get(path, digests[file]) != digests[file]]
            changed = self._list_modules() if path.startswith(stage_code.FOLDER) else [file]
            late = [subject for subject in readers if not self.unfinished.find_explaining_run(subject.made, *changed)]
            state = "is missing" if digests[file] is None else "was changed"
            for some, note in (
                (late, self.audit.fault),
                ([subject for subject in readers if subject not in late], self.audit.remark),
            ):
                if some:
                    run = "" if some is late else f", and {format_unfinished_run(self.unfinished.pipelines[0])}"
                    note(
                        CHECK,
                        path,
                        f"{state} after {_format_stage_names(some)} ran with it: {_format_out_of_date(some)}{run}",
                        None,
                        None,
                    )

    def _compute_current_hashes(self) -> Mapping[str, str]:
        """What the stage `code` would write; nothing while a module is no Python."""
        try:
            return stage_code.compute_stage_code_hashes(
                stage_code.read_working_files(self.root), stage_code.read_working_choices(self.root)
            )
        except PlanError:
            return {}

    def _list_modules(self) -> list[Path]:
        return [file for file in (self.root / stage_code.SOURCE).rglob("*.py") if file.is_file()]

    def _check_against_commits(self, codes: Sequence[tuple[Subject, Mapping[str, str]]]) -> None:
        """Compare with the commit of each run, or say why that cannot be done."""
        wanted: dict[Tree, set[str]] = {}
        by_tree: dict[Tree, list[tuple[Subject, Mapping[str, str]]]] = {}
        unknown: dict[str, list[Subject]] = {}
        for subject, code in codes:
            if not code or subject.run_id is None:
                continue
            if (why := self._check_patch_and_find_obstacle(subject)) is not None:
                unknown.setdefault(why, []).append(subject)
                continue
            tree = Tree(str(subject.made.commit), subject.made.patch if subject.made.dirty not in CLEAN else None)
            wanted.setdefault(tree, set()).update(code)
            by_tree.setdefault(tree, []).append((subject, code))
        refused = source_code.find_git_fault(self.root) if wanted else ""
        if refused:
            unknown.setdefault(f"git: {refused}", []).extend(
                subject for members in by_tree.values() for subject, _ in members
            )
            wanted = {}
            by_tree = {}
        hashes = compute_tree_file_hashes(self.root, wanted)
        for tree, members in by_tree.items():
            if tree not in hashes:
                gone = f"the commit {tree.commit[:12]} is not here (any more): rebased, or a shallow clone"
                gone = gone if tree.patch is None else f"{gone}; or the kept patch does not apply to it"
                unknown.setdefault(gone, []).extend(subject for subject, _ in members)
                continue
            files = (
                read_tree_files(self.root, tree, [stage_code.SOURCE, PARAMS])
                if _has_stage_code_path(wanted[tree])
                else {}
            )
            for subject, code in members:
                self._compare_code_with_tree(
                    subject,
                    code,
                    tree,
                    {
                        **hashes[tree],
                        **(self._compute_tree_code_hashes(files, subject) if _has_stage_code_path(code) else {}),
                    },
                )
        for why, some in unknown.items():
            self.audit.remark(CHECK, "git", f"the code of {_format_stage_names(some)} cannot be compared: {why}")

    def _compute_tree_code_hashes(self, tree: Mapping[str, bytes], subject: Subject) -> Mapping[str, str]:
        """What the stage `code` writes of a tree's files, with the code that the run's own params choose.

        Nothing where another version of `code` wrote the run's, whose hashes may be others.
        """
        files = {path: content for path, content in tree.items() if path != PARAMS}
        working = stage_code.read_working_files(self.root)
        writer_paths = {
            path for path in {*files, *working} if path.startswith(f"{stage_code.SOURCE}/{stage_code.STAGE}/")
        }
        if any(files.get(path) != working.get(path) for path in writer_paths):
            return {}
        try:
            recorded = subject.entry.get("params", {}).get(PARAMS, {})
            return stage_code.compute_stage_code_hashes(
                files, stage_code.collect_choices_of_recorded_params(tree.get(PARAMS), recorded)
            )
        except PlanError:
            return {}

    def _check_patch_and_find_obstacle(self, subject: Subject) -> str | None:
        """Why git cannot tell what this run ran, or None; a patch that is not the recorded one is a fault."""
        made = subject.made
        if not COMMIT.fullmatch(made.commit or ""):
            return f"no commit is on record{f' ({made.note})' if made.note else ''}"
        if made.dirty in CLEAN:
            return None
        content = load_record_json_or_none(self.root, str(subject.run_id)) or {}
        if made.patch is None:
            if made.elsewhere:
                return "it was not committed, and the patch stayed in the clone that ran it"
            if not content.get("patch"):
                return "it was not committed, and no patch was kept"
            self.audit.fault(
                CHECK, "uncommitted.patch", "is missing from the run's files", subject.stage, subject.run_id
            )
            return "its patch is gone"
        digest = hashlib.sha256(made.patch.read_bytes()).hexdigest()
        if content.get("patch") not in (None, digest):
            shown = made.patch.relative_to(self.root) if made.patch.is_relative_to(self.root) else made.patch
            what = f"its SHA-256 is {digest[:12]}, the run recorded {content['patch'][:12]}"
            self.audit.fault(CHECK, str(shown), what, subject.stage, subject.run_id)
            return "its patch was changed"
        return None

    def _compare_code_with_tree(
        self, subject: Subject, code: Mapping[str, str], tree: Tree, hashes: Mapping[str, str]
    ) -> None:
        where = f"commit {tree.commit[:12]}{' with the kept patch' if tree.patch else ''}"
        absent = [path for path in code if path not in hashes]
        for path, md5 in code.items():
            if path in hashes and hashes[path] != md5:
                what = f"{where} has {hashes[path][:12]}, the run read {md5[:12]}"
                if subject.made.note:  # the file may be one that was left out of the patch
                    self.audit.remark(CHECK, path, f"{what}; {subject.made.note}", subject.stage, subject.run_id)
                else:
                    self.audit.fault(CHECK, path, what, subject.stage, subject.run_id)
        if absent:
            more = f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
            why = "git ignores it, or the patch left it out (too large, or as secrets are)"
            if all(path.startswith(stage_code.FOLDER) for path in absent):
                why = "another version of the stage `code` made it"
            what = f"not in {where}, and so not to be compared: {why}"
            self.audit.remark(CHECK, ", ".join(absent[:NAMED]) + more, what, subject.stage, subject.run_id)


def _has_stage_code_path(paths: Iterable[str]) -> bool:
    return any(path.startswith(stage_code.FOLDER) for path in paths)


def _format_stage_names(subjects: Sequence[Subject]) -> str:
    names = list(dict.fromkeys(subject.stage for subject in subjects))
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _format_out_of_date(subjects: Sequence[Subject]) -> str:
    names = {subject.stage for subject in subjects}
    return f"{next(iter(names))} is out of date" if len(names) == 1 else "they are out of date"
