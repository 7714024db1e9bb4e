"""The records in an MLflow elsewhere, asked by MLflow's client: a tracking server, or a database that others write to
as well.

Each question is one that the server answers from its indices, page by page, so that the runs of others cost nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from flows.engine.records.reader import PREFIX, MetricValue, RegisteredModel, RunHead

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PAGE = 500  # runs in one answer
NEWEST = 50
AT_ONCE = 8  # questions for the values of metrics, which MLflow answers one metric at a time
ABSENT = "RESOURCE_DOES_NOT_EXIST"
# MLflow's ViewType
ACTIVE = 1
ALL = 3
RUN_ID = re.compile(r"[A-Za-z0-9][\w-]{0,255}")  # what MLflow takes for one
HEXADECIMAL = frozenset("0123456789abcdef")


class SharedReader:
    """A `Reader` of an MLflow that several clones may share; `clone` is the tag that this clone's runs have, and its
    value.

    What it has read of a run it does not read again.
    """

    def __init__(self, client: "MlflowClient", clone: Mapping[str, str]) -> None:
        self.client = client
        self._clone = " and ".join(f"tags.`{key}` = '{value}'" for key, value in clone.items())
        self._runs: dict[str, Run | None] = {}
        self._experiments: dict[int, dict[str, bool]] = {}  # by view: id -> whether it was deleted

    def head(self, run_id: str) -> RunHead | None:
        """A run, deleted ones too."""
        run = self._fetch_run(run_id)
        return self._build_run_head(run) if run else None

    def tags(self, run_id: str) -> dict[str, str]:
        """All tags of a run."""
        run = self._fetch_run(run_id)
        return dict(run.data.tags) if run else {}

    def params(self, run_id: str) -> dict[str, str]:
        """All parameters of a run."""
        run = self._fetch_run(run_id)
        return dict(run.data.params) if run else {}

    def latest(self, run_id: str) -> dict[str, float]:
        """The value of each metric that MLflow's pages show, NaN included."""
        run = self._fetch_run(run_id)
        return dict(sorted(run.data.metrics.items())) if run else {}

    def values(self, run_id: str) -> list[MetricValue]:
        """Every value of every metric."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(AT_ONCE) as pool:
            histories = pool.map(lambda key: self.client.get_metric_history(run_id, key), self.latest(run_id))
            return [
                MetricValue(metric.key, metric.step, metric.timestamp, 0.0 if nan else metric.value, nan)
                for history in histories
                for metric in history
                for nan in [metric.value != metric.value]
            ]

    def inputs(self, run_id: str) -> dict[str, str]:
        """Name and digest of each data set that a run read."""
        run = self._fetch_run(run_id)
        read = run.inputs.dataset_inputs if run and run.inputs else ()
        return {dataset_input.dataset.name: dataset_input.dataset.digest for dataset_input in read}

    def beginning(self, text: str) -> list[str]:
        """At most two runs whose ids begin so."""
        return (
            [run.info.run_id for run in self._search_runs(_build_id_prefix_condition(text), 2, ALL)]
            if _is_run_id_prefix(text)
            else []
        )

    def finished(self, tags: Mapping[str, str]) -> list[tuple[str, int]]:
        """Id and time of at most 50 finished runs that have these tags, named in full."""
        condition = " and ".join(
            ["attributes.status = 'FINISHED'", *(_build_tag_condition(key, value) for key, value in tags.items())]
        )
        return [(run.info.run_id, run.info.start_time) for run in self._search_runs(condition, NEWEST)]

    def maker(self, key: str, outs: str) -> str | None:
        """The newest finished run with this run-cache key and these hashes; one of this clone where there is one."""
        made = (
            f"attributes.status = 'FINISHED' and {_build_tag_condition(PREFIX + 'key', key)} and "
            f"{_build_tag_condition(PREFIX + 'outs', outs)}"
        )
        return next((run.info.run_id for run in self._search_own_runs_first(made, 1)), None)

    def makers(self, md5: str) -> list[str]:
        """The finished runs that made an out with this hash; those of this clone first."""
        made = f"attributes.status = 'FINISHED' and tags.`{PREFIX}outs` LIKE {_quote_search_value(f'%{md5}%')}"
        runs = self._search_own_runs_first(made, NEWEST)
        return [run.info.run_id for run in runs if md5 in run.data.tags[PREFIX + "outs"].split()]

    def versions(self, tag: str, limit: int) -> list[tuple[str, str]]:
        """Id and value of the newest finished runs that have a tag."""
        runs = self._search_runs(f"attributes.status = 'FINISHED' and {_build_has_tag_condition(tag)}", limit)
        return [(run.info.run_id, run.data.tags[tag]) for run in runs]

    def list_stage_runs_with_tag(self, stage: str, tag: str, value: str) -> list[str]:
        """At most five runs of a stage that have this tag; this clone's first, active and finished ones first."""
        runs = list(
            self._search_own_runs_first(
                f"{_build_tag_condition(PREFIX + 'stage', stage)} and {_build_tag_condition(tag, value)}", NEWEST, ALL
            )
        )
        runs.sort(key=lambda run: (run.info.lifecycle_stage != "active", run.info.status != "FINISHED"))
        return [run.info.run_id for run in runs[:5]]

    def stage_runs(self) -> list[str]:
        """Every run of a stage that this clone made."""
        return [
            run.info.run_id
            for run in self._search_runs(f"{_build_has_tag_condition(PREFIX + 'stage')} and {self._clone}", view=ALL)
        ]

    def has_running_run(self) -> bool:
        """Whether a run of this clone's engine has not ended."""
        running = (
            f"attributes.status = 'RUNNING' and {_build_tag_condition(PREFIX + 'engine', 'true')} and {self._clone}"
        )
        return any(True for _ in self._search_runs(running, 1))

    def pipelines(self, limit: int | None, flow: str | None, clone_only: bool) -> list[RunHead]:
        """The runs of pipelines that were not deleted."""
        conditions = [
            _build_has_tag_condition(PREFIX + "flow") if flow is None else _build_tag_condition(PREFIX + "flow", flow),
            *([self._clone] if clone_only else []),
        ]
        return [self._build_run_head(run) for run in self._search_runs(" and ".join(conditions), limit)]

    def list_pipelines_by_id_prefix(self, text: str) -> list[RunHead]:
        """At most two of them whose ids begin so."""
        condition = f"{_build_has_tag_condition(PREFIX + 'flow')} and {_build_id_prefix_condition(text)}"
        return [self._build_run_head(run) for run in self._search_runs(condition, 2)] if _is_run_id_prefix(text) else []

    def find_previous_sealed_pipeline(self, run_id: str, seal: str) -> tuple[str, str] | None:
        """The newest pipeline run of this clone but this one that has the tag `seal`, and its value."""
        condition = (
            f"{_build_has_tag_condition(PREFIX + 'flow')} and {_build_has_tag_condition(seal)} and {self._clone} and "
            f"attributes.run_id != '{run_id}'"
        )
        return next(((run.info.run_id, run.data.tags[seal]) for run in self._search_runs(condition, 1)), None)

    def model(self, name: str) -> RegisteredModel | None:
        """A registered model."""
        from mlflow.entities.model_registry import ModelVersion
        from mlflow.exceptions import MlflowException

        try:
            model = self.client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code != ABSENT:
                raise
            return None
        versions = list[ModelVersion]()
        token = None
        while True:
            page = self.client.search_model_versions(
                f"name={_quote_search_value(name)}", max_results=PAGE, page_token=token
            )
            versions += page
            token = page.token
            if not token:
                break
        tags = {str(model_version.version): dict(model_version.tags) for model_version in versions}
        aliases = {alias: str(version) for alias, version in (model.aliases or {}).items()}
        return RegisteredModel(
            tags, {str(model_version.version): model_version.run_id or "" for model_version in versions}, aliases
        )

    def models(self) -> list[str]:
        """The names of all registered models."""
        names = list[str]()
        token = None
        while True:
            page = self.client.search_registered_models(max_results=PAGE, page_token=token)
            names += [model.name for model in page]
            token = page.token
            if not token:
                return names

    def artifacts(self, run_id: str) -> str | None:
        """Where a run's files are, None where there is no such run."""
        run = self._fetch_run(run_id)
        return run.info.artifact_uri if run else None

    def _fetch_run(self, run_id: str) -> "Run | None":
        from mlflow.exceptions import MlflowException

        if not RUN_ID.fullmatch(run_id):
            return None
        if run_id not in self._runs:
            try:
                self._runs[run_id] = self.client.get_run(run_id)
            except MlflowException as error:
                if error.error_code != ABSENT:
                    raise
                self._runs[run_id] = None
        return self._runs[run_id]

    def _build_run_head(self, run: "Run") -> RunHead:
        info = run.info
        deleted = info.lifecycle_stage != "active" or self._fetch_experiments(ALL).get(info.experiment_id, True)
        return RunHead(info.run_id, info.run_name or "", info.status, info.start_time, info.end_time or None, deleted)

    def _fetch_experiments(self, view: int) -> dict[str, bool]:
        """The experiments."""
        if view not in self._experiments:
            deleted = dict[str, bool]()
            token = None
            while True:
                page = self.client.search_experiments(view, max_results=PAGE, page_token=token)
                deleted |= {experiment.experiment_id: experiment.lifecycle_stage != "active" for experiment in page}
                token = page.token
                if not token:
                    break
            self._experiments[view] = deleted
        return self._experiments[view]

    def _search_own_runs_first(self, condition: str, limit: int, view: int = ACTIVE) -> "Iterator[Run]":
        """What this clone has, then what others have."""
        seen = set[str]()
        for query in (f"{condition} and {self._clone}", condition):
            for run in self._search_runs(query, limit, view):
                if len(seen) < limit and run.info.run_id not in seen:
                    seen.add(run.info.run_id)
                    yield run

    def _search_runs(self, condition: str, limit: int | None = None, view: int = ACTIVE) -> "Iterator[Run]":
        """The runs that fulfil a condition in MLflow's language, the newest first."""
        experiments = list(self._fetch_experiments(view))
        token = None
        left = limit
        while experiments and (left is None or left > 0):
            page = self.client.search_runs(
                experiments, condition, view, min(PAGE, left or PAGE), ["attributes.start_time DESC"], token
            )
            for run in page:
                self._runs[run.info.run_id] = run
                yield run
            left = None if left is None else left - len(page)
            token = page.token
            if not token:
                return


def _is_run_id_prefix(text: str) -> bool:
    return bool(text) and set(text) <= HEXADECIMAL


def _build_id_prefix_condition(text: str) -> str:
    return f"attributes.run_id LIKE '{text}%'"


def _build_tag_condition(tag: str, value: str) -> str:
    return f"tags.`{tag}` = {_quote_search_value(value)}"


def _build_has_tag_condition(tag: str) -> str:
    return f"tags.`{tag}` LIKE '%'"


def _quote_search_value(value: str) -> str:
    """A text as MLflow's language has it, which knows no escapes; PlanError where it cannot have it."""
    for mark in "'\"":
        if mark not in value:
            return f"{mark}{value}{mark}"
    raise ValueError(f"{value}: a name with both kinds of quotes cannot be looked up in a shared MLflow")
