"""What `posttrain clean` removes: what is asked for, and nothing that something keeps.

The order makes a kill harmless: what will go is written down, then folders' lists go before their files. What was not
reached is named by nothing, so that the next call finds it again. All is looked at once more under the locks of
posttrain and DVC, and what goes then was shown before.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.coordinator import Coordinator
from flows.lineage import cache_objects
from flows.lineage.cleaning import dvc_cache, removal_log
from flows.lineage.cleaning.dvc_cache import Stored
from flows.lineage.cleaning.named_runs import TAG
from flows.lineage.cleaning.survey import File, Survey, survey_disk_usage
from tasks.common import mlflow_address


@dataclass(frozen=True)
class CleaningRequest:
    """What a person asks for. `older` is in seconds; without `stages` those of all stages."""

    keep_runs: int = 10
    older: float = 0.0
    stages: frozenset[str] = frozenset()
    old_models: bool = False
    artifacts: bool = False
    checkpoints: bool = False
    shared_cache: bool = False


@dataclass
class Chosen:
    """What goes."""

    objects: list[Stored] = field(default_factory=list)
    files: list[File] = field(default_factory=list)

    @property
    def frees(self) -> int:
        """The bytes that are free then."""
        return sum(removable.frees for removable in self.objects) + sum(removable.size for removable in self.files)

    def __len__(self) -> int:
        return len(self.objects) + len(self.files)


def select_removable(surveyed: Survey, request: CleaningRequest) -> Chosen:
    """What nothing keeps, and what was asked for, of the stages and the age that were asked for."""

    def wanted(stages: Iterable[str]) -> bool:
        names = {*stages}
        return not request.stages or (bool(names) and all(_is_requested_stage(name, request.stages) for name in names))

    goes = {
        md5
        for md5 in surveyed.objects
        if not surveyed.keepers.get(md5) and wanted(surveyed.stages.get(md5, ())) and surveyed.age(md5) >= request.older
    }
    # a folder that stays, if only for its age, keeps its files
    stays = {md5 for folder, files in surveyed.listed.items() if folder not in goes for md5 in files}
    chosen = Chosen([surveyed.objects[md5] for md5 in sorted(goes - stays, key=lambda md5: (len(md5) == 32, md5))])
    if surveyed.cache.shared and not request.shared_cache:
        chosen.objects = []
    files = (surveyed.checkpoints if request.checkpoints else []) + (surveyed.artifacts if request.artifacts else [])
    chosen.files = [
        file
        for file in files
        if not file.kept and wanted([file.stage] if file.stage else []) and file.age >= request.older
    ]
    return chosen


def remove_selected(root: Path, request: CleaningRequest, shown: Chosen) -> Chosen:
    """Remove what was shown, as far as nothing keeps it by now; what was removed.

    PlanError while anything is at work here.
    """
    with Coordinator(root), dvc_cache.hold_dvc_lock_if_idle(root):
        surveyed = survey_disk_usage(root, request.keep_runs, request.old_models)
        now = select_removable(surveyed, request)
        objects = {removable.md5 for removable in shown.objects}
        files = {removable.path for removable in shown.files}
        goes = Chosen(
            [removable for removable in now.objects if removable.md5 in objects],
            [removable for removable in now.files if removable.path in files],
        )
        if goes:
            removal_log.append_removal(
                root, (removable.md5 for removable in goes.objects), (removable.path for removable in goes.files)
            )
            for file in _iterate_removal_paths(root, goes):
                with suppress(FileNotFoundError):
                    file.unlink()
        _tag_cleaned_runs(root, surveyed)
    return goes


def _iterate_removal_paths(root: Path, goes: Chosen) -> Iterator[Path]:
    yield from (removable.file for removable in goes.objects)
    yield from (root / removable.path for removable in goes.files)


def _tag_cleaned_runs(root: Path, surveyed: Survey) -> None:
    """Say so in the runs that made what went, after an earlier kill too; in a shared MLflow not, since other clones may
    have the bytes.
    """
    when = {
        md5: date
        for md5, date in removal_log.load_removal_times(root).items()
        if cache_objects.find_cache_object(root, md5) is None
    }
    late = [
        (run_id, max(when[md5] for md5 in gone))
        for run_id, run in surveyed.runs.stages.items()
        if not run.cleaned and (gone := run.outs & when.keys())
    ]
    if not late or mlflow_address.find_shared_address(root) is not None:
        return
    client = mlflow_client.open_mlflow_client_after_recording(root)
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        for run_id, date in late:
            mlflow_client.set_run_tags(client, run_id, {TAG: f"{date:%Y-%m-%d %H:%M:%S}"})


def _is_requested_stage(name: str, stages: frozenset[str]) -> bool:
    """Whether a stage was asked for, by itself or by the stage that it is a branch of."""
    return name in stages or name.partition("@")[0] in stages
