"""What a person holds against each other: a pipeline run, a git revision, dvc.lock as it is, or a policy of one of
these.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.lineage import execution_record, history
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.history import EVALUATIONS, PipelineRun
from tasks.common import source_code

NOW = "now"
RUN = re.compile(rf"[0-9a-f]{{{history.SHORTEST},32}}")


@dataclass(frozen=True)
class Side:
    """One side. `policy` is set where one policy of the snapshot was named."""

    name: str  # as it was asked for
    about: str  # what it is, for a person
    records: Mapping[str, ExecutionRecord]
    pipeline: PipelineRun | None = None
    policy: str | None = None

    @property
    def evaluated(self) -> dict[str, str]:
        """Policy -> the stage that measured it: `evaluate@dpo`, offline `returns@bc-graph-60`, of agents
        `agent_returns@rooms-ppo`.
        """
        by_policy = {}
        for stage in self.records:
            kind, _, policy = stage.partition("@")
            if policy and kind in EVALUATIONS:
                by_policy[policy] = stage
        return by_policy


def resolve_sides(root: Path, a: str, b: str, snapshot_name: str = NOW) -> tuple[Side, Side]:
    """The two sides that these name; policies are those of the snapshot `snapshot_name`.

    PlanError of one line if one is not there.
    """
    whole = resolve_snapshot(root, snapshot_name)
    policies = whole.evaluated
    if a in policies and b in policies:
        return _make_policy_side(whole, a), _make_policy_side(whole, b)
    if snapshot_name != NOW:
        missing = b if a in policies else a
        raise PlanError(
            f"{missing}: {whole.about} has no evaluated policy of this "
            f"name{_format_name_suggestions(missing, policies)}"
        )
    for policy, other in ((a, b), (b, a)):
        if policy in policies:
            raise PlanError(
                f"{other}: {policy} is a policy, and can be compared with another "
                f"one{_format_name_suggestions(other, policies)}"
            )
    first, second = (whole if name == NOW else resolve_snapshot(root, name, policies) for name in (a, b))
    return first, second


def resolve_snapshot(root: Path, name: str, policies: Mapping[str, str] | None = None) -> Side:
    """A whole snapshot: `now`, a pipeline run by the first letters of its id, or a git revision."""
    if name == NOW:
        return Side(name, "dvc.lock as it is", execution_record.load_current_records(root))
    if RUN.fullmatch(name):
        pipeline = None
        try:
            pipeline = history.get_pipeline_run(root, name)
        except PlanError as error:
            if "more than one" in str(error):
                raise
        if pipeline is not None:
            about = f"run {pipeline.id[:8]} of {pipeline.started:%Y-%m-%d %H:%M}" + (
                f", {pipeline.name}" if pipeline.name else ""
            )
            return Side(name, about, execution_record.load_pipeline_records(root, pipeline), pipeline)
    try:
        return Side(name, f"git revision {name}", execution_record.load_records_at_revision(root, name))
    except PlanError:
        refused = source_code.find_git_fault(root)
    raise PlanError(
        f"{name}: no pipeline run (`posttrain runs` lists them), no git revision with a dvc.lock"
        f"{f' (git: {refused})' if refused else ''}, and no evaluated policy"
        + _format_name_suggestions(name, policies or {})
    )


def _make_policy_side(whole: Side, policy: str) -> Side:
    return Side(policy, f"{policy} of {whole.about}", whole.records, whole.pipeline, policy)


def _format_name_suggestions(name: str, policies: Mapping[str, str]) -> str:
    close = get_close_matches(name, {*policies, NOW} - {name}, n=3)
    return (
        f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(policies)}" if policies else ""
    )
