"""What is printed before and after a run: the plan with its reasons, the outcome, and how to go on after a failure."""

import json
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from flows.engine.stage_types import PlannedStage, StageResult, State
from tasks.common.terminal import escape_control_characters

GOOD: tuple[State, ...] = ("ran", "restored", "up-to-date")  # whose outs are those of this run
REPORTS = ("report", "offline_report", "agents_report")  # the stages that write pages, one in each flow
MOST = 0.5  # share of answers that are cut off above which a stage is named
FAULTY = 0.1  # the same of episodes that end otherwise than they should
EPISODES = {  # a metric of stages that play -> the share above which such a stage is named, and what is said
    "faults": (FAULTY, "faults of the environment ended {} of the episodes; its log names the first ones"),
    "turns_cut": (FAULTY, "{} of the episodes were cut off after the environment's max_turns"),
    "context_cut": (MOST, "{} of the episodes ended since the model's context had no room for another turn"),
    "left_out": (
        FAULTY,
        "{} of the episodes were left out, for an action that is said in fewer than agent_episodes.least turns",
    ),
    "unlimited": (
        FAULTY,
        "{} of the episodes were cut off after 1,000 steps, since the environment has no limit of its own",
    ),
}
PLAYING = ("expert_episodes", "agents", "agent_returns", "agent_episodes", "returns")  # their stages
WORDS: dict[State, str] = {
    "waiting": "waiting",
    "running": "running",
    "up-to-date": "up to date",
    "restored": "restored",
    "ran": "ran",
    "failed": "failed",
    "skipped": "skipped",
    "paused": "paused",
    "behind": "behind",
}
STYLES: dict[State, str] = {
    "waiting": "dim",
    "running": "bold cyan",
    "up-to-date": "green",
    "restored": "blue",
    "ran": "bold green",
    "failed": "bold red",
    "skipped": "yellow",
    "paused": "bold yellow",
    "behind": "yellow",
}
# lines of a failed stage's log that are shown at the end, and characters of each
LOG_LINES = 12
STOPPED = "stopped"  # the reason of a stage that Ctrl-C or a signal ended
LINE = 500


class PlainConsole(Console):
    """A console for plain text, which no text of others has power over.

    If the reader of the pipe leaves, as `head` does, the run goes on without output.
    """

    def __init__(self, file: TextIO | None = None, soft_wrap: bool = True) -> None:
        piped = not (file or sys.stdout).isatty()
        super().__init__(file=file, soft_wrap=soft_wrap, highlight=False, width=200 if piped else None)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """What is written: the texts without control characters, and rich's own orders."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_control_characters(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Stop printing."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def format_duration(seconds: float) -> str:
    """Seconds as a person reads them: 0.4 s, 12 s, 3 min 05 s, 1 h 02 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def format_state_counts(states: Iterable[State]) -> str:
    """How many stages are in which state: `2 ran, 1 restored, 11 up to date`."""
    counts = Counter(states)
    order: tuple[State, ...] = (
        *("failed", "skipped", "paused", "behind"),
        *("ran", "restored", "up-to-date", "running", "waiting"),
    )
    return ", ".join(f"{counts[state]} {WORDS[state]}" for state in order if counts[state])


def format_relative_path(path: Path, root: Path) -> str:
    """A path as it is typed from the repository's root."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def print_stage_plan(console: Console, planned: Sequence[PlannedStage]) -> None:
    """Print each stage with the reason why it would run, and the number of those that would."""
    width = max((len(stage.name) for stage in planned), default=0)
    for stage in planned:
        state = Text(stage.reason) if stage.reason else Text("up to date", STYLES["up-to-date"])
        console.print(Text(f"{stage.name:<{width}}  ").append_text(state))
    late = sum(stage.reason is not None for stage in planned)
    console.print(f"{late} of {len(planned)} stages would run" if late else f"all {len(planned)} stages are up to date")


def print_run_results(console: Console, results: Sequence[StageResult], root: Path, seconds: float) -> None:
    """Print one line on the outcome, and for each failed stage the end of its log and how to go on."""
    for result in results:
        if result.state == "failed" and result.reason != STOPPED:
            print_failed_stage(console, result, root)
    unrecorded = next((result.unrecorded for result in results if result.unrecorded), "")
    if unrecorded:
        console.print(Text(f"what MLflow has of this run is incomplete: {unrecorded}", STYLES["skipped"]))
    elsewhere = [result.stage for result in results if result.state == "restored" and not result.mlflow_run_id]
    if elsewhere and any(result.mlflow_run_id for result in results):  # without any run id nothing was recorded at all
        console.print(
            f"restored from a shared cache, with no run here that made it: {', '.join(elsewhere)}", markup=False
        )
    names = [result.stage for result in results]
    for line in (
        *iterate_dropped_pair_warnings(root, names),
        *iterate_truncation_warnings(root, names),
        *iterate_episode_warnings(root, names),
    ):
        console.print(Text(line, STYLES["skipped"]))
    failed = any(result.state == "failed" and result.reason != STOPPED for result in results)
    console.print(f"{format_state_counts(result.state for result in results)} in {format_duration(seconds)}")
    if failed:
        console.print("What succeeded is kept; mend the cause and run it again to go on.")
    for line in iterate_plain_dvc_hints(root, results):
        console.print(line, markup=False)


def iterate_plain_dvc_hints(root: Path, results: Sequence[StageResult]) -> Iterator[str]:
    """A line with the commands of DVC that fit the report of this run, where other flows never ran.

    Without arguments DVC names every out of those as missing.
    """
    lacking = [report for report in REPORTS if not (root / "data" / report).is_dir()]
    for result in results:
        if lacking and result.state == "ran" and result.stage in REPORTS:
            report = result.stage
            yield f"in plain DVC: dvc status --with-deps {report}; dvc metrics show data/{report}/metrics"


def print_failed_stage(console: Console, result: StageResult, root: Path) -> None:
    """Print why a stage failed, once, with the end of its log where that says more."""
    console.print(Text(f"\n{result.stage} failed: {result.reason or 'see its log'}", STYLES["failed"]))
    tail = read_log_tail(result.log)
    for line in tail[:-1] if tail and result.reason.startswith(tail[-1]) else tail:
        console.print(Text(f"  {line}"))
    if result.log:
        console.print(Text(f"log: {format_relative_path(result.log, root)}"))


def load_report_headlines(root: Path, stages: Collection[str]) -> list[str]:
    """The sentence of each report among `stages`: what came out, in numbers."""
    files = (root / f"data/{report}/headline.txt" for report in REPORTS if report in stages)
    return [file.read_text().strip() for file in files if file.is_file()]


def format_waiting_stages(results: Sequence[StageResult]) -> list[str]:
    """What waits for people, and last what they are to do; nothing where nothing waits."""
    waiting = [result for result in results if result.awaits and result.state == "paused"]
    others = [result.stage for result in results if result.state == "paused" and result not in waiting]
    if not waiting:
        return []
    names = ", ".join(result.stage for result in waiting)
    verb = "wait" if len(waiting) > 1 else "waits"
    after = f"; {', '.join(others)} {'wait' if len(others) > 1 else 'waits'} for it" if others else ""
    return [f"{names} {verb} for people{after}", *dict.fromkeys(result.reason for result in waiting)]


def iterate_truncation_warnings(root: Path, stages: Sequence[str]) -> Iterator[str]:
    """One line that names each stage most of whose answers its length limit cut off, by its own metrics.

    A pretrained model has not learned to end an answer, and is no news.
    """
    named: dict[str, list[str]] = {}
    for stage in stages:
        if stage == "evaluate@pretrained":
            continue
        try:
            metrics = json.loads((root / f"data/metrics/{stage}.json").read_text())
            share = metrics.get("completions/clipped_ratio", 1 - metrics.get("ended_greedy", {}).get("mean", 1))
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(share, float) and share > MOST:
            named.setdefault(f"{100 * share:.0f} %", []).append(stage)
    if named:
        shares = "; ".join(f"{share} of {', '.join(stages)}" for share, stages in named.items())
        yield f"answers that were cut off at their section's max_new_tokens: {shares}"


def iterate_dropped_pair_warnings(root: Path, stages: Sequence[str]) -> Iterator[str]:
    """A line for each stage that learned from less than half of the pairs, since the others are longer than its
    max_length.
    """
    for stage in stages:
        if stage not in ("reward_model", "dpo"):
            continue
        with suppress(OSError, ValueError, LookupError, TypeError):
            pair_count = json.loads((root / "data/metrics/preferences.json").read_text())["pairs"]["train"]
            dropped = json.loads((root / f"data/metrics/{stage}.json").read_text())["dropped"]
            if dropped > MOST * pair_count:
                yield (
                    f"{stage}: {dropped:,} of the {pair_count:,} pairs were left out: they are longer than "
                    f"{stage}.max_length"
                )


def iterate_episode_warnings(root: Path, stages: Sequence[str]) -> Iterator[str]:
    """A line for each stage too many of whose episodes ended otherwise than they should, by its own metrics."""
    for stage in stages:
        if stage.partition("@")[0] not in PLAYING:
            continue
        with suppress(OSError, ValueError, AttributeError):
            metrics = json.loads((root / f"data/metrics/{stage}.json").read_text())
            for name, (most, line) in EPISODES.items():
                if (share := _find_largest_metric(metrics, name)) > most:
                    yield f"{stage}: {line.format(f'{100 * share:.0f} %')}"


def _find_largest_metric(metrics: Mapping[str, Any], name: str) -> float:
    """The largest of a stage's metrics of that name, of whatever part of its episodes; 0 where there is none."""
    parts = [metrics, *(part for part in metrics.values() if isinstance(part, Mapping))]
    values = [part.get(key) for part in parts for key in (name, f"counted/{name}")]
    return max((value for value in values if isinstance(value, float | int)), default=0.0)


def read_log_tail(log: Path | None, lines: int = LOG_LINES) -> list[str]:
    """The last lines of a log that are not empty, without terminal control characters."""
    if log is None or not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - 20_000, 0))
        text = file.read().decode(errors="replace")
    visible = [line.rstrip().split("\r")[-1] for line in text.split("\n")]
    plain = ["".join(char for char in line if char.isprintable() or char == "\t") for line in visible if line]
    return [line if len(line) <= LINE else line[: LINE - 4] + " ..." for line in plain if line][-lines:]
