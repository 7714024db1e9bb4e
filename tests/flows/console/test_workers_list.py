"""The list of live workers: what each runs, and why pools hand out no runs."""

import io

from rich.console import Console

from flows.console import workers_list
from flows.workers.live_workers import Listed, RunningStage

SINCE = "2026-11-30T08:00:00Z"


def test_why_pools_hand_out_no_runs_stands_below_what_runs() -> None:
    out = io.StringIO()
    running = [RunningStage("grpo", ["0", "1"], SINCE, "training"), RunningStage("code", [], SINCE)]
    workers = [Listed("one", "gpus", "host-a", ["0", "1"], since=SINCE, running=running), Listed("two", "gpus")]
    workers_list.print_live_workers(
        Console(file=out, width=120), workers, ["pool gpus is paused", "pool cpus has no worker"]
    )
    lines = [line.split("  for ")[0].split("  up ")[0].strip() for line in out.getvalue().splitlines()]
    assert lines == [
        "one  pool gpus  host-a  GPU 0, 1",
        "grpo on GPU 0, 1: training",
        "code",
        "two  pool gpus  host unknown",
        "idle",
        "pool gpus is paused",
        "pool cpus has no worker",
    ]
