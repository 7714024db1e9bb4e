"""What a sweep prints: its graph before it runs, and at its end a table of what came out at each point, with what
sharing saved.
"""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from flows.console.conclusion import format_metric_value as shown
from flows.console.summary import format_duration, format_state_counts, print_failed_stage
from flows.engine.stage_types import StageResult
from flows.sweeps.outcome import HeadlineValue, SettingRow, SweepCost
from flows.sweeps.sweep import Sweep

MOST = 40  # rows that are printed; the page and MLflow have all


def print_sweep_plan(console: Console, sweep: Sweep) -> None:
    """Print how many points there are, and what they share."""
    late = sum(stage.reason is not None for stage in sweep.planned if stage.name in sweep.nodes)
    count = len(sweep.nodes)
    points = len(sweep.points)
    shared = f"; {sweep.stages} without sharing" if sweep.stages > count else ""
    console.print(f"{points} point{'s' * (points != 1)}: {late} of {count} stages to run{shared}", markup=False)
    for line in sweep.said:
        console.print(line, markup=False)


def print_sweep_stages(console: Console, sweep: Sweep) -> None:
    """Print each stage of the graph, with the number of points that share it and whether it would run."""
    width = max(len(stage.name) for stage in sweep.planned)
    for stage in sweep.planned:
        points = len(sweep.owner.part(stage.name)[0].points)
        about = "to run" if stage.reason else _format_node_state(sweep, stage.name)
        console.print(f"{stage.name:<{width}}  {points:>3} point{'s' * (points != 1):<1}  {about}", markup=False)


def _format_node_state(sweep: Sweep, name: str) -> str:
    if sweep.owner.describe(name).state == "behind":
        return "behind"
    return "in the cache" if name in sweep.nodes else "reached"


def print_failed_stages(console: Console, sweep: Sweep, results: Sequence[StageResult]) -> None:
    """Print the end of the log of each stage that failed, and how to go on."""
    failed = [result for result in results if result.state == "failed"]
    for result in failed:
        print_failed_stage(console, result, sweep.root)
    if failed:
        console.print("What succeeded is kept; mend the cause and sweep again to go on.")


def print_sweep_results(
    console: Console,
    rows: Sequence[SettingRow],
    names: Sequence[str],
    results: Sequence[StageResult],
    seconds: float,
    cost: SweepCost,
) -> None:
    """Print the table, best first, and what sharing and stopping early saved."""
    if names:
        console.print(build_sweep_table(rows[:MOST], names))
        if len(rows) > MOST:
            console.print(f"and {len(rows) - MOST} more; MLflow and the page have all")
        console.print(format_interval_legend(rows), markup=False)
    console.print(
        f"{format_state_counts(result.state for result in results)} in {format_duration(seconds)}", markup=False
    )
    if cost.alone > cost.ran + 1:
        message = (
            f"the stages that ran took {format_duration(cost.ran)}; without sharing it would have been "
            f"{format_duration(cost.alone)}"
        )
        console.print(message, markup=False)
    for line in cost.early:
        console.print(line, markup=False)


def build_sweep_table(rows: Sequence[SettingRow], names: Sequence[str]) -> Table:
    """A row for each setting: its parameters, each metric with its interval, its points.

    With seeds alone a row for each metric.
    """
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    if not any(row.settings for row in rows):
        for head in ("", "mean over seeds", "seeds"):
            made.add_column(head, no_wrap=True)
        for name in names:
            for row in rows:
                single = ", ".join(shown(name.rpartition("/")[2], value.mean) for _, value in row.single[name])
                made.add_row(
                    name,
                    format_value_with_interval(name, row.over_seeds[name]) if name in row.over_seeds else "",
                    single,
                )
        return made
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    for key in keys:
        made.add_column(key, no_wrap=True)
    for name in names:
        made.add_column(name, no_wrap=True)
    made.add_column("points", justify="right")
    if any(row.behind for row in rows):
        made.add_column("behind")
    for row in rows:
        cells = [
            format_value_with_interval(name, row.over_seeds[name]) if name in row.over_seeds else "" for name in names
        ]
        numbers = ",".join(str(ended.point.number) for ended in row.points)
        behind = [row.behind] if len(made.columns) > len(keys) + len(names) + 1 else []
        made.add_row(*(row.settings.get(key, "") for key in keys), *cells, numbers, *behind)
    return made


def format_value_with_interval(name: str, value: HeadlineValue) -> str:
    """`72.6 % [68.6, 76.4]`."""
    what = name.rpartition("/")[2]
    if value.low is None or value.high is None:
        return shown(what, value.mean)
    ends = [shown(what, end).removesuffix(" %") for end in (value.low, value.high)]
    return f"{shown(what, value.mean)} [{ends[0]}, {ends[1]}]"


def format_interval_legend(rows: Sequence[SettingRow]) -> str:
    """What the brackets are."""
    counts = {value.seeds for row in rows for value in row.over_seeds.values()}
    if counts <= {1}:
        return "[ ]: 95 % interval over problems or episodes; it says nothing of other seeds"
    if 1 in counts:
        return "[ ]: 95 % interval over seeds, where several have ended, else over problems or episodes"
    return f"[ ]: 95 % interval over {' or '.join(map(str, sorted(counts)))} seeds (Student's t)"


def compute_sweep_cost(
    sweep: Sweep, results: Mapping[str, StageResult], past_seconds: Mapping[str, float]
) -> SweepCost:
    """What the sweep cost, and would have if each point had run alone; `past_seconds` has the seconds of earlier
    runs.
    """
    ran = dict[str, float]()
    alone = 0.0
    for name, result in results.items():
        if result.state == "ran":
            node = sweep.owner.part(name)[0].id
            ran[node] = ran.get(node, 0.0) + result.seconds
    for nodes in sweep.of_points.values():
        for node in nodes.values():
            alone += ran[node] if node in ran else past_seconds.get(results[node].mlflow_run_id or "", 0.0)
    return SweepCost(sum(ran.values()), alone, sweep.owner.sentences(results))
