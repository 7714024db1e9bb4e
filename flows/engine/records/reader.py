"""What is asked of MLflow's records, whatever they are in: this repository's own database (`sqlite_reader`), or
elsewhere (`mlflow_remote_reader`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

PREFIX = "posttrain."  # every tag that the engine writes begins with it


@dataclass(frozen=True)
class RunHead:
    """What a run is called, how it ended and when, in milliseconds."""

    id: str
    name: str
    status: str
    started: int
    ended: int | None
    deleted: bool = False  # or its experiment was

    @property
    def finished(self) -> bool:
        """Whether it ended well, and is still there."""
        return self.status == "FINISHED" and not self.deleted


@dataclass(frozen=True)
class MetricValue:
    """One value of a metric; for one that is no number `value` is 0 and `nan` is true."""

    key: str
    step: int
    time: int
    value: float
    nan: bool


class RecordsReader(Protocol):
    """One look at the records. Runs of a stage are those with the tag `posttrain.stage`, of a pipeline with
    `posttrain.flow`.

    Lists of runs are the newest first. In a shared MLflow `clone_only` runs are those of this clone; in the
    repository's own database all are.
    """

    def head(self, run_id: str) -> RunHead | None:
        """A run, deleted ones too."""

    def tags(self, run_id: str) -> dict[str, str]:
        """All tags of a run."""

    def params(self, run_id: str) -> dict[str, str]:
        """All parameters of a run."""

    def latest(self, run_id: str) -> dict[str, float]:
        """The value of each metric that MLflow's pages show, NaN included."""

    def values(self, run_id: str) -> list[MetricValue]:
        """Every value of every metric."""

    def inputs(self, run_id: str) -> dict[str, str]:
        """Name and digest of each data set that a run read."""

    def beginning(self, text: str) -> list[str]:
        """At most two runs whose ids begin so."""

    def finished(self, tags: Mapping[str, str]) -> list[tuple[str, int]]:
        """Id and time of at most 50 finished runs that have these tags, named in full."""

    def maker(self, key: str, outs: str) -> str | None:
        """The newest finished run with this run-cache key and these hashes; one of this clone where there is one."""

    def versions(self, tag: str, limit: int) -> list[tuple[str, str]]:
        """Id and value of the newest finished runs that have a tag."""

    def list_stage_runs_with_tag(self, stage: str, tag: str, value: str) -> list[str]:
        """At most five runs of a stage that have this tag; active and finished ones first."""

    def stage_runs(self) -> list[str]:
        """Every own run of a stage."""

    def has_running_run(self) -> bool:
        """Whether an own run of the engine has not ended."""

    def pipelines(self, limit: int | None, flow: str | None, clone_only: bool) -> list[RunHead]:
        """The runs of pipelines that were not deleted."""

    def list_pipelines_by_id_prefix(self, text: str) -> list[RunHead]:
        """At most two of them whose ids begin so."""

    def find_previous_sealed_pipeline(self, run_id: str, seal: str) -> tuple[str, str] | None:
        """The newest own pipeline run but this one that has the tag `seal`, and its value."""

    def model(self, name: str) -> "RegisteredModel | None":
        """A registered model."""

    def models(self) -> list[str]:
        """The names of all registered models."""


@dataclass(frozen=True)
class RegisteredModel:
    """A registered model: the tags and the run of each version, and which version each alias is at.

    Versions are texts of numbers.
    """

    tags: Mapping[str, Mapping[str, str]]
    runs: Mapping[str, str]
    aliases: Mapping[str, str]

    def list_versions_with_tag(self, tag: str, value: str) -> Sequence[str]:
        """The versions with this tag, the first one first."""
        return sorted((version for version, tags in self.tags.items() if tags.get(tag) == value), key=int)
