"""The pipeline runs as a list in the terminal: what changed, what ran, the headline."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from flows.console.summary import STYLES, WORDS, format_duration
from flows.lineage.cleaning.cache_presence import Kept
from flows.lineage.history import PipelineRun

SHOWN = 8  # headline numbers of a run
FIRST = (
    "strict_greedy",
    "reference_loss",
    "score",
    "return",
)  # a run's headline has the first of these that it measured


def print_pipeline_runs(console: Console, runs: Sequence[PipelineRun], left: Mapping[str, Kept]) -> None:
    """Print each run in a few lines, the newest first; `left` says whether what it made is still there."""
    if not runs:
        console.print("no pipeline run is on record; `posttrain run` makes the first")
    for run in runs:
        took = f", {format_duration((run.ended - run.started).total_seconds())}" if run.ended and not run.point else ""
        waits = "paused" in run.states.values()
        state = "" if run.status == "FINISHED" else "  waits for people" if waits else f"  {run.status.lower()}"
        console.print(
            Text.assemble(
                (run.id[:8], "bold"),
                f"  {run.started:%Y-%m-%d %H:%M}  {run.flow}{took}",
                (state, STYLES["paused"] if waits else "red"),
                _format_cache_status(left.get(run.id)),
            ),
            Text("  ") + Text(run.changes or run.name, overflow="fold"),
            *([Text("  ") + _format_stage_states(run)] if run.states or not run.sweep else []),
            *(Text("  ") + line for line in _format_headline_metrics(run)),
            sep="\n",
        )


def _format_cache_status(kept: Kept | None) -> Text:
    """Whether what a run made is still in the cache."""
    if kept is None:
        return Text()
    if kept.state == "kept":
        return Text("  kept", "green")
    names = ", ".join(kept.stages) if len(kept.stages) <= 6 else f"{len(kept.stages)} stages"
    if kept.when is not None:
        return Text(f"  cleaned on {kept.when:%Y-%m-%d}: {names}", "yellow")
    return Text(f"  not all in the cache: {names}", "yellow")


def _format_stage_states(run: PipelineRun) -> Text:
    """Which stages ran, were restored or failed, and how many were up to date."""
    counts = Counter(run.states.values())
    parts = list[Text]()
    for state in ("failed", "skipped", "paused", "behind", "ran", "restored", "up-to-date"):
        if counts[state]:
            names = [stage for stage, stage_state in run.states.items() if stage_state == state]
            few = ", ".join(names) if state != "up-to-date" and len(names) <= 6 else str(len(names))
            parts.append(Text.assemble(f"{few} ", (WORDS[state], STYLES[state])))
    return Text(", ").join(parts) if parts else Text("it did not get to an end", "dim")


def _format_headline_metrics(run: PipelineRun) -> Iterator[Text]:
    for metric in FIRST:
        measured = {key.rpartition("/")[0]: value for key, value in run.metrics.items() if key.endswith(f"/{metric}")}
        if measured:
            shown = [f"{name} {_format_metric_number(metric, value)}" for name, value in [*measured.items()][:SHOWN]]
            rest = f" and {len(measured) - SHOWN} more" if len(measured) > SHOWN else ""
            yield Text(f"{metric}: {', '.join(shown)}{rest}", "dim", overflow="fold")
            return


def _format_metric_number(metric: str, value: float) -> str:
    return f"{100 * value:.1f} %" if metric == "strict_greedy" else f"{value:.3g}"
