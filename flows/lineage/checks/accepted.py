"""What was accepted between an execution and dvc.lock: edits without effect are proven anew, what a person vouches for is told as that."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_seal
from flows.engine.dvc_lock import code, hashes, joined
from flows.engine.dvc_stage import run_cache_key
from flows.engine.edits.command import is_code, runs_module
from flows.engine.edits.comparing import Code, same_but_for_words
from flows.engine.mlflow_runs import PREFIX
from flows.engine.records import mlflow_files, provenance
from flows.engine.records.reader import Reader
from flows.lineage import git_files
from flows.lineage.acceptance import kept, versions
from flows.lineage.acceptance.kept import Step
from flows.lineage.acceptance.versions import md5_of
from flows.lineage.checks import database
from flows.lineage.checks.entries import differences
from flows.lineage.checks.findings import SHORT, Audit
from flows.lineage.checks.subjects import Subject
from flows.lineage.git_files import CLEAN, Tree
from tasks.common.source_code import NO_COMMIT, PATCH

CHECK = "accepted"
SAID = re.compile(r"\(([0-9a-f]{8})\)(?:; |$)")  # how a run's tag names an acceptance


@dataclass
class Accepted:
    """One check of the acceptances that stages came through; what several have in common is looked at once."""

    audit: Audit
    root: Path
    records: Reader | None
    _sound: dict[str, bool] = field(default_factory=dict)  # acceptance -> whether its run is as it ended
    _versions: dict[str, bytes | None] = field(default_factory=dict)  # hash -> code
    _trees: dict[str, dict[str, bytes]] = field(default_factory=dict)  # acceptance -> the code at its commit

    def check(self, subjects: Sequence[Subject], everything: bool = False) -> None:
        """Check each step of these; with `everything` also the acceptances that no current result comes from."""
        steps = [step for subject in subjects for step in subject.made.accepted]
        if everything:
            known = {(step.run_id, step.stage) for step in steps}
            runs = [run_id for run_id, _ in self.records.versions(kept.HOW, 10**6)] if self.records else []
            others = (step for run_id in runs for step in kept.of_run(self.root, run_id).values())
            steps += [step for step in others if (step.run_id, step.stage) not in known]
        for step in steps:
            self.audit.counts["accepted changes"] += 1
            if self._is_sound(step):
                self._step(step)
        for subject in subjects:
            if subject.current and not subject.made.accepted:
                self._taken_away(subject)

    def _taken_away(self, subject: Subject) -> None:
        """The run that made the same outs says what was accepted since; nothing of that is gone, where the result has no run now."""
        made = self.records.like(subject.stage, PREFIX + "outs", joined(subject.entry)) if self.records else []
        exact = self.records.maker(run_cache_key(subject.entry), joined(subject.entry)) if self.records else None
        for run_id in made if exact is None else ():
            row = database.row(self.records, run_id)
            for short in SAID.findall(row.tags.get(mlflow_seal.LATER, "") if row else ""):
                there = (
                    [database.row(self.records, one) for one in self.records.beginning(short)] if self.records else []
                )
                if not any(one is not None and not one.deleted for one in there):
                    what = f"what was accepted after run {run_id[:SHORT]} had made it, acceptance {short}, was deleted from MLflow"
                    self.audit.fault(CHECK, f"dvc.lock: {subject.stage}", what, subject.stage, run_id)

    def _is_sound(self, step: Step) -> bool:
        """Whether the acceptance's run is there and as it ended."""
        if step.run_id not in self._sound:
            row = database.row(self.records, step.run_id)
            carried = provenance.of_run(self.root, step.run_id) if row is None else None
            sealed = row is not None and row.tag("seal") == mlflow_seal.compute(self.root, step.run_id)
            if not sealed and carried is None:
                what = "a tag or record.json of this acceptance was changed after it was written"
                self._fault(step, what, named=False)
            how = row.tag("accepted.how") if row else carried.tags.get(kept.HOW) if carried else None
            if (sealed or carried) and how != step.how:
                self._fault(step, f"its tag says {how}, its record {step.how}", named=False)
            self._sound[step.run_id] = (sealed or carried is not None) and how == step.how
        return self._sound[step.run_id]

    def _step(self, step: Step) -> None:
        if joined(step.before) != joined(step.after):
            self._fault(step, "its record has other outs after than before, and nothing was executed")
        elif step.how == kept.PERSON:
            self._vouched(step)
        elif step.how == kept.EDIT:
            self._proven(step)
        else:
            self._fault(step, f"its record says neither {kept.EDIT} nor {kept.PERSON}")

    def _vouched(self, step: Step) -> None:
        found = [one for one in differences(step.before, step.after) if "size" not in one.kind]
        changed = ", ".join(one.label.removeprefix("dep ") for one in found) or "nothing"
        when = f" on {step.when:%Y-%m-%d}" if step.when else ""
        what = f"{step.by} accepted a change of {changed}{when}: {step.why}. It is vouched for, not proven"
        self.audit.remark(CHECK, step.stage, what, None, step.run_id)

    def _proven(self, step: Step) -> None:
        """Compare the syntax trees again, by the code as it was after the edit."""
        found = differences(step.before, step.after)
        cmd = step.after.get("cmd", "")
        if not runs_module(cmd, hashes(step.after, "deps")) or any(
            one.kind != "dep" or not is_code(one.name, cmd) or None in (one.first, one.second)
            for one in found
            if "size" not in one.kind
        ):
            return self._fault(step, "more than edits of code was recorded as an edit without effect")
        before, after = code(step.before), code(step.after)
        modules = {path: self._version(step, path, md5) for path, md5 in after.items() if is_code(path, cmd)}
        lacking = [path for path, content in modules.items() if content is None]
        changed = [path for path in after if before.get(path) != after[path]]
        older = {path: self._version(step, path, before[path]) for path in changed}
        lacking += [path for path, content in older.items() if content is None]
        if lacking:
            what = f"whether its edit has no effect cannot be proven again: {', '.join(sorted(set(lacking))[:3])} cannot be had"
            self.audit.remark(CHECK, step.stage, what, None, step.run_id)
            return None
        try:
            whole = Code({path: content for path, content in modules.items() if content is not None})
            wrong = [path for path in changed if whole.effectless(path, older[path] or b"") is None]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            wrong = changed
        read = [path for path in wrong if same_but_for_words(older[path] or b"", modules[path] or b"")]
        wrong = [path for path in wrong if path not in read]
        if read:
            what = f"what was accepted in {', '.join(read)} may have an effect by the rules of this version: some code may read it"
            self.audit.remark(CHECK, step.stage, what, None, step.run_id)
        if wrong:
            verb = "differ" if len(wrong) > 1 else "differs"
            self._fault(
                step, f"{', '.join(wrong)} {verb} in more than comments, docstrings and annotations from what ran"
            )
        return None

    def _version(self, step: Step, path: str, md5: str) -> bytes | None:
        """The module with this hash: as the acceptance kept it, as it is in the working tree, or at the acceptance's commit."""
        if md5 not in self._versions:
            self._versions[md5] = next(
                (content for content in self._candidates(step, path, md5) if content and md5_of(content) == md5), None
            )
        return self._versions[md5]

    def _candidates(self, step: Step, path: str, md5: str) -> Sequence[bytes | None]:
        places = (mlflow_files.read(self.root, step.run_id, kept.file_name(md5)), self.root / path)
        found: list[bytes | None] = [place.read_bytes() for place in places if place.is_file()]
        if not any(content is not None and md5_of(content) == md5 for content in found):
            known = self._tree(step).get(path)
            found += (
                [known]
                if known and md5_of(known) == md5
                else versions.recorded(self.root, lambda: step.before, {path: md5}).values()
            )
        return found

    def _tree(self, step: Step) -> dict[str, bytes]:
        """All code of the stages of an acceptance, at its commit with its patch."""
        if step.run_id not in self._trees:
            row = database.row(self.records, step.run_id)
            commit, dirty = (row.tag("git_commit"), row.tag("git_dirty")) if row else (None, None)
            patch = mlflow_files.read(self.root, step.run_id, PATCH)
            paths = {path for one in kept.of_run(self.root, step.run_id).values() for path in hashes(one.after, "deps")}
            tree = Tree(commit or "none", patch if dirty not in CLEAN and patch.is_file() else None)
            wanted = [path for path in paths if path.endswith(".py")]
            known = commit not in NO_COMMIT
            self._trees[step.run_id] = git_files.contents(self.root, tree, wanted) if known else {}
        return self._trees[step.run_id]

    def _fault(self, step: Step, what: str, named: bool = True) -> None:
        where = f"acceptance {step.run_id[:SHORT]}"
        self.audit.fault(CHECK, where, what, step.stage if named else None, step.run_id if named else None)
