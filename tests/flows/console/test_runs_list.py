"""The headline of a pipeline run in the list of runs."""

from datetime import UTC, datetime

import pytest

from flows.console.runs_list import _format_headline_metrics
from flows.lineage.history import PipelineRun

NONE: dict[str, str] = {}
MEASURED = {
    "language": {"sft/strict_greedy": 0.5, "sft/strict_greedy/low": 0.4, "sft/strict_greedy/high": 0.6},
    "offline": {"bc-graph-60/BC/return": 12.0, "bc-graph-60/BC/score": 33.1},
    "agents": {"rooms-ppo/t0.0/return": 0.771, "rooms-ppo/t1.0/return": 0.67},
    "nothing": {},
}
TOLD = {
    "language": ["strict_greedy: sft 50.0 %"],
    "offline": ["score: bc-graph-60/BC 33.1"],
    "agents": ["return: rooms-ppo/t0.0 0.771, rooms-ppo/t1.0 0.67"],
    "nothing": [],
}


@pytest.mark.parametrize("flow", MEASURED)
def test_each_flow_s_run_has_what_is_compared_first(flow: str) -> None:
    began = datetime(2026, 1, 2, tzinfo=UTC)
    run = PipelineRun("0", "", flow, "FINISHED", began, began, NONE, NONE, "", "", "no", MEASURED[flow], NONE, NONE)
    assert [line.plain for line in _format_headline_metrics(run)] == TOLD[flow]
