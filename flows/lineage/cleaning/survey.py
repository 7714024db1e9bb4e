"""What takes space in the repository: each object of DVC's cache with its stage, its age and what keeps it, and the
other files.

What keeps an object: the workspace ("now"), git's tags, branches, older commits and experiments, a registered model,
one of the last pipeline runs. A folder's list keeps the files that it lists.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects
from flows.lineage.cleaning import dvc_cache, git_history, named_runs
from flows.lineage.cleaning.dvc_cache import Cache, Stored
from flows.lineage.cleaning.git_history import HASH
from flows.lineage.cleaning.named_runs import CloneRuns
from tasks.common import mlflow_address, mlflow_database

KEEPERS = ("now", "tag", "branch", "commit", "index", "experiment", "model", "run")
CHECKPOINTS = Path("mlruns/checkpoints")
ARTIFACTS = mlflow_database.ARTIFACTS
# Of a run: by them an audit proves, `posttrain verify` makes again, and `apply` knows parameters; versions of accepted
# modules are *.py.
PROOF = ("record.json", "uncommitted.patch", "params.yaml", "accepted.diff")
SKIPPED = {".git", ".dvc", ".venv", "mlruns", "node_modules", "__pycache__"}
NOBODY = ""  # the stage of an object that no record names


@dataclass(frozen=True)
class File:
    """A file that is no object of the cache: a checkpoint, or one that MLflow keeps with a run."""

    path: str  # from the root
    size: int
    made: float
    stage: str
    kept: bool = False

    @property
    def age(self) -> float:
        """Seconds since it was written."""
        return time.time() - self.made


@dataclass
class Survey:
    """All that was found."""

    cache: Cache
    objects: Mapping[str, Stored]
    keepers: Mapping[str, set[str]]
    stages: Mapping[str, set[str]]
    listed: Mapping[str, frozenset[str]]  # a folder's hash -> those of its files
    used: Mapping[str, float]  # hash -> when it was made, or last used by a pipeline run
    runs: CloneRuns
    checkpoints: list[File] = field(default_factory=list)
    artifacts: list[File] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)  # what else takes space, in bytes

    def age(self, md5: str) -> float:
        """Seconds since the object was made or last used."""
        return time.time() - self.used[md5]

    def names(self) -> set[str]:
        """The stages that something belongs to."""
        return {stage for stages in self.stages.values() for stage in stages} | {
            checkpoint.stage for checkpoint in self.checkpoints
        }


def survey_disk_usage(root: Path, keep_runs: int, old_models: bool = False) -> Survey:
    """Look at everything; PlanError where git, DVC or MLflow cannot say what they name."""
    cache = dvc_cache.locate_dvc_cache(root)
    runs = named_runs.load_clone_runs(root, keep_runs, old_models)
    objects = dvc_cache.list_cache_objects(cache)
    keepers: dict[str, set[str]] = {}
    stages: dict[str, set[str]] = {}

    def keep(md5: str, kind: str) -> None:
        keepers.setdefault(md5, set()).add(kind)

    history = git_history.collect_hashes_in_git_history(root) if cache.git else git_history.NamedHashes()
    for md5, kinds in history.kinds.items():
        keepers.setdefault(md5, set()).update(kinds)
    for md5, names in history.stages.items():
        stages.setdefault(md5, set()).update(names)
    for text in _iterate_texts_and_keep_links(root, cache, keep):
        for md5 in HASH.findall(text):
            keep(md5, "now")
        for stage, md5 in git_history.parse_out_hashes(text):
            stages.setdefault(md5, set()).add(stage)
    used = {md5: stored.made for md5, stored in objects.items()}
    for md5, run_id, run in runs.makers():
        stages.setdefault(md5, set()).add(run.stage)
        if run_id in runs.kept:
            keep(md5, "run")
        if md5 in used:
            used[md5] = max(used[md5], runs.used.get(run_id, 0))
    for md5 in runs.models:
        keep(md5, "model")
    listed = dict(_iterate_folder_listings(root, objects))
    for folder, files in listed.items():
        for md5 in files & objects.keys():
            keepers.setdefault(md5, set()).update(keepers.get(folder, ()))
            stages.setdefault(md5, set()).update(stages.get(folder, ()))
            used[md5] = max(used[md5], used[folder])
    surveyed = Survey(cache, objects, keepers, stages, listed, used, runs)
    surveyed.checkpoints = [
        _build_file_record(root, file, file.stem.partition("-")[0]) for file in _list_files(root / CHECKPOINTS)
    ]
    surveyed.artifacts = list(_iterate_artifact_files(root, surveyed))
    surveyed.others = _measure_other_space(root, cache)
    return surveyed


def _iterate_texts_and_keep_links(root: Path, cache: Cache, keep: Callable[[str, str], None]) -> Iterator[str]:
    """The texts of dvc.lock and of every .dvc file as they are now. What a link leads to in the cache is kept too."""
    objects = cache.objects.resolve()
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in (*names, *folders):
            file = Path(parent, name)
            if name == "dvc.lock" or (name.endswith(".dvc") and file.is_file()):
                try:
                    yield file.read_text(errors="replace")
                except OSError as error:
                    raise PlanError(f"{file}: {error.strerror}; it may name results that must stay") from None
            elif file.is_symlink() and (target := file.resolve()).is_relative_to(objects):
                keep("".join(target.relative_to(objects).parts), "now")
    yield from (file.read_text(errors="replace") for file in (root / ".dvc/tmp/posttrain/previous").glob("*/note.json"))


def _iterate_folder_listings(root: Path, objects: Mapping[str, Stored]) -> Iterator[tuple[str, frozenset[str]]]:
    """The files of each folder; those of a list that is damaged are unknown."""
    for md5 in objects:
        if md5.endswith(".dir"):
            try:
                yield md5, frozenset(cache_objects.read_cached_file_hashes(root, md5).values())
            except PlanError:
                yield md5, frozenset(HASH.findall(objects[md5].file.read_text(errors="replace")))


def _iterate_artifact_files(root: Path, surveyed: Survey) -> Iterator[File]:
    """The files that MLflow keeps here with runs.

    A run is kept by the last pipeline runs, or where all that it made or used is kept.
    """
    if mlflow_address.find_shared_address(root) is not None:
        return
    stages = surveyed.runs.stages
    whole = {
        candidate_id
        for candidate_id, run in stages.items()
        if run.outs and all(surveyed.keepers.get(md5) for md5 in run.outs)
    }
    kept = (
        surveyed.runs.kept
        | whole
        | {candidate_id for candidate_id, named in surveyed.runs.pipelines.items() if named and named <= whole}
    )
    for folder in sorted((root / ARTIFACTS).glob("*/artifacts")):
        run_id = folder.parent.name
        stage = stages[run_id].stage if run_id in stages else NOBODY
        for file in _list_files(folder):
            yield _build_file_record(root, file, stage, run_id in kept or file.name in PROOF or file.suffix == ".py")


def _measure_other_space(root: Path, cache: Cache) -> dict[str, int]:
    """What else takes space; none of it is ever removed."""
    counted = (root / CHECKPOINTS, root / ARTIFACTS, root / "mlruns/logs", root / mlflow_database.DATABASE)
    pages = sum(
        _get_file_size(file)
        for file in _list_files(root / "mlruns")
        if not any(file.is_relative_to(path) for path in counted)
    )
    return {
        "DVC's run cache": sum(_get_file_size(file) for file in _list_files(cache.run_cache)),
        "MLflow's database": _get_file_size(root / mlflow_database.DATABASE),
        "logs of stages": sum(_get_file_size(file) for file in _list_files(root / "mlruns/logs")),
        "verdicts, pages": pages,
        ".dvc/tmp": sum(_get_file_size(file) for file in _list_files(root / ".dvc/tmp")),
    }


def _list_files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]


def _build_file_record(root: Path, file: Path, stage: str, kept: bool = False) -> File:
    facts = file.stat()
    return File(file.relative_to(root).as_posix(), facts.st_size, facts.st_mtime, stage, kept)


def _get_file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # it was removed meanwhile
        return 0
