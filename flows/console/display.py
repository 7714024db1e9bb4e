"""What a person sees while stages run: a live table on a terminal, plain lines where output is piped.

Both are watchers: each is called with every Event, from any thread.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flows.console import time_left
from flows.console.summary import STOPPED, STYLES, WORDS, format_duration, format_relative_path, format_state_counts
from flows.console.time_left import Remaining, StepsLeft
from flows.engine.dvc_changes import NEVER
from flows.engine.stage_types import Event, PlannedStage
from flows.machine import resources

if TYPE_CHECKING:
    from flows.lineage.expected_durations import ExpectedDuration

LOGS = "mlruns/logs"  # where each stage has its log
FIRST_SECONDS = 10.0  # of a stage until its progress is first reported in a piped run
PROGRESS_SECONDS = 60.0  # without a line, after which one says how far the run is
LOOK_SECONDS = 1.0  # between two looks at that
FIXED = 29  # columns of the terminal for state and time, with the space around them
DETAIL = 22  # columns for `1200/7500, 12 min left`
BAR = 9  # columns for the bar before it, if there is room
MEASURED = 100  # columns of a terminal from which on there is room for a loss or reward


@dataclass
class StageProgress:
    """What is known of one stage, when it began, and the first step that it reported."""

    name: str
    last: Event
    began: float = 0.0
    first_step: tuple[int, float] | None = None
    first_total: int = 0

    def update(self, event: Event, now: float) -> None:
        """Take a new event; log and steps of an earlier event stay until a new one has them."""
        if event.state == "running" and self.last.state != "running":
            self.began = now
        if event.step is None and event.state == "running":
            event = replace(event, step=self.last.step, total=self.last.total, measure=self.last.measure)
        if event.step is not None and event.total:
            self.first_total = self.first_total or event.total
            # a stage of several parts counts each in its own steps
            event = replace(event, step=round(event.step * self.first_total / event.total), total=self.first_total)
        if event.step is not None and self.first_step is None:
            self.first_step = (event.step, now)
        reason = event.reason or (self.last.reason if event.state == "running" else "")
        self.last = replace(event, reason=reason, log=event.log or self.last.log)

    def seconds(self, now: float) -> float:
        """The seconds that the stage has run so far, or ran in all."""
        return now - self.began if self.last.state == "running" else self.last.seconds

    def left(self, now: float) -> StepsLeft | None:
        """What is left at the rate so far; None while the rate is unknown, and at the end."""
        step = self.last.step
        total = self.last.total
        if step is None or total is None or self.first_step is None or step >= total:
            return None
        count = step - self.first_step[0]
        elapsed = now - self.first_step[1]
        return StepsLeft(elapsed / count * (total - step), step / total) if count > 0 and elapsed >= 1 else None


class Lines:
    """One line for each change of state or of what a stage waits for, and one a minute for progress; no control
    characters.
    """

    def __init__(
        self,
        console: Console,
        planned: Sequence[PlannedStage],
        root: Path,
        expected: "Mapping[str, ExpectedDuration] | None" = None,
        jobs: int | None = None,
    ) -> None:
        """`expected` has what is known of how long stages take, `jobs` the cores that the run may use at a time."""
        self.console = console
        self.root = root
        self.planned = planned
        self.expected = expected or {}
        self.speed = time_left.SpeedCalibration()
        self.cores = jobs or resources.count_cores()
        self.rows = {
            stage.name: StageProgress(stage.name, Event(stage.name, "waiting", stage.reason or "")) for stage in planned
        }
        self.width = max((len(name) for name in self.rows), default=0)
        self.late = sum(stage.reason is not None for stage in planned)
        self.first_report: dict[str, float] = {}  # stage -> when its progress is reported; then it is each minute
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.last_line = time.monotonic()

    def __enter__(self) -> Self:
        begin = f"{self.late} of {len(self.rows)} stages to run"
        left = self.left(time.monotonic())
        self.console.print(f"{', '.join(filter(None, (begin, left)))}; logs: {LOGS}", markup=False, highlight=False)
        threading.Thread(target=self._report_each_minute, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()

    def _report_each_minute(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            self.report_if_silent(time.monotonic())

    def report_if_silent(self, now: float) -> None:
        """Print a line on all that runs, and how long the run still takes, if there was none for a minute."""
        with self.lock:
            if now - self.last_line < PROGRESS_SECONDS:
                return
            late = [self.rows[stage.name] for stage in self.planned if stage.reason is not None]
            ended = sum(row.last.state not in ("waiting", "running") for row in late)
            running = [row for row in late if row.last.state == "running"]
            doing = [
                f"{row.name} {format_step_progress(row, now) if row.last.total else ''}".rstrip() for row in running
            ]
            parts = [f"{ended} of {self.late} done", *doing, self.left(now)]
            self.print_line("; ".join(filter(None, parts)), now)

    def print_line(self, text: str, now: float) -> None:
        """Print a line that may hold anything."""
        self.last_line = now
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        now = time.monotonic()
        with self.lock:
            row = self.rows[event.stage]
            new_reason = event.state in ("waiting", "running") and event.reason not in ("", row.last.reason)
            changed = event.state != row.last.state
            self.take(event, now)
            progress = row.last.state == "running" and event.step is not None
            if event.state == "skipped":
                return  # the end counts them; the stage that they wait for has its line
            if changed:
                self.first_report[event.stage] = now + FIRST_SECONDS
                left = self.left(now) if row.last.state == "ran" else ""
                self.line(row, "  ".join(filter(None, (self.about(row), left))))
            elif new_reason:
                self.line(row, row.last.reason)
            elif progress and now >= self.first_report[event.stage]:
                self.first_report[event.stage] = inf
                self.line(row, format_step_progress(row, now))

    def take(self, event: Event, now: float) -> StageProgress:
        """Note an event in the stage's row, and learn from a stage that has ended how fast this machine is."""
        row = self.rows[event.stage]
        row.update(event, now)
        expected = self.expected.get(event.stage)
        if event.state == "ran" and expected and not expected.measured_here:
            self.speed.add(expected.seconds, event.seconds)
        return row

    def left(self, now: float) -> str:
        """The time that is left of the whole run, as far as it is known how long stages take."""
        low = []
        high = []
        unknown = 0
        for stage in self.planned:
            row = self.rows[stage.name]
            if row.last.state not in ("waiting", "running") or (row.last.state == "waiting" and stage.reason is None):
                continue
            elapsed = row.seconds(now) if row.last.state == "running" else 0.0
            estimate = time_left.estimate_stage_left(self.expected.get(stage.name), self.speed, elapsed, row.left(now))
            unknown += estimate is None
            seconds, spread = (estimate.seconds, estimate.spread) if estimate else (0.0, 1.0)
            low.append(Remaining(stage.name, seconds / spread, stage.cpu, stage.upstream))
            high.append(Remaining(stage.name, seconds * spread, stage.cpu, stage.upstream))
        least, most = (time_left.estimate_run_seconds_left(stages, self.cores) for stages in (low, high))
        return time_left.format_time_left(least, most, unknown)

    def line(self, row: StageProgress, about: str) -> None:
        """Print one line about a stage."""
        word = STOPPED if is_stopped(row.last) else WORDS[row.last.state]
        text = f"{row.name:<{self.width}}  {word:<10}  {about}".rstrip()
        self.print_line(text, time.monotonic())

    def about(self, row: StageProgress) -> str:
        """The details of a change of state that are printed after its name."""
        last = row.last
        if last.state == "failed":
            return format_duration(last.seconds)  # the end says why
        if last.state == "running":
            return "" if last.reason == NEVER else last.reason
        return format_duration(last.seconds) if last.state in ("ran", "restored") else last.reason


def is_stopped(event: Event) -> bool:
    """Whether a stage ended because the run was stopped."""
    return event.state == "failed" and event.reason == STOPPED


def format_step_progress(row: StageProgress, now: float, measured: bool = True) -> str:
    """`120/400, loss 1.2, 35 s left`, the loss or reward only if `measured`; from one minute on in whole minutes, since
    it is an estimate.
    """
    if row.last.step is None:
        return ""
    left = row.left(now)
    rough = "" if left is None else f"{time_left.format_rough_duration(left.seconds)} left"
    return ", ".join(filter(None, (f"{row.last.step}/{row.last.total}", row.last.measure if measured else "", rough)))


class LiveTable(Lines):
    """A table of all stages that redraws itself; each running or failed stage shows where its log is."""

    def __init__(
        self,
        console: Console,
        planned: Sequence[PlannedStage],
        root: Path,
        expected: "Mapping[str, ExpectedDuration] | None" = None,
        jobs: int | None = None,
    ) -> None:
        super().__init__(console, planned, root, expected, jobs)
        self.began = time.monotonic()
        self.over = False
        self.live = Live(console=console, get_renderable=self.table, refresh_per_second=4)

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over = True  # the last table on the screen is whole
        self.live.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        """Take an event; the next redraw shows it."""
        with self.lock:
            self.take(event, time.monotonic())

    def table(self) -> RenderableType:
        """The current table, cut to the height of the screen, with the logs of running and failed stages below it."""
        now = time.monotonic()
        with self.lock:
            logs = [
                row.last.log for row in self.rows.values() if row.last.log and row.last.state in ("running", "failed")
            ]
            entries = self.select_rows_that_fit(self.console.height - 2 - len(logs))
            table = self.grid(entries, now)
            if self.over:
                return table
            more = len(self.rows) - sum(map(len, entries))
            hidden = f"{more} more · " if more else ""
            states = [row.last.state for row in self.rows.values()]
            doing = "starting" if set(states) == {"waiting"} else format_state_counts(states)
            notes = [f"log: {format_relative_path(log, self.root)}" for log in logs]
            times = " · ".join(filter(None, (format_duration(now - self.began), self.left(now))))
            return Group(table, *(Text(note, "dim") for note in (*notes, f"{hidden}{doing} · {times}")))

    def grid(self, entries: Sequence[Sequence[StageProgress]], now: float) -> Table:
        """A line for each entry: a stage, or several branches of a stage with the number in each state."""
        labels = [
            rows[0].name if len(rows) == 1 else f"{_get_base_stage_name(rows[0])} ({len(rows)})" for rows in entries
        ]
        room = self.console.width - FIXED - (0 if self.over else DETAIL)
        width = min(max(map(len, labels), default=0), max(room, 24))
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(width=width, no_wrap=True)
        table.add_column(width=10, no_wrap=True)
        table.add_column(width=11, no_wrap=True, justify="right")
        table.add_column(ratio=1, no_wrap=True)
        for label, rows in zip(labels, entries, strict=True):
            states = [row.last.state for row in rows]
            same = states[0] if len(set(states)) == 1 else None
            seconds = [row.seconds(now) for row in rows if row.last.state in ("running", "ran", "restored", "failed")]
            detail = (
                self.render_stage_detail(rows[0], now, room - width)
                if len(rows) == 1
                else Text("" if same else format_state_counts(states), "dim")
            )
            state = Text(WORDS[same], STYLES[same]) if same else Text()
            table.add_row(
                truncate_name_middle(label, width), state, format_duration(sum(seconds)) if seconds else "", detail
            )
        return table

    def select_rows_that_fit(self, space: int) -> list[list[StageProgress]]:
        """All rows if there is space; else waiting and ended branches share an entry, and the most urgent entries are
        kept.
        """
        rows = list(self.rows.values())
        if self.over or len(rows) <= space:
            return [[row] for row in rows]
        groups: dict[str, list[StageProgress]] = {}
        for row in rows:
            alone = row.last.state in ("running", "failed")
            groups.setdefault(row.name if alone else _get_base_stage_name(row), []).append(row)
        urgency = {"failed": 0, "running": 0, "waiting": 2, "up-to-date": 3}

        def rank(entry: list[StageProgress]) -> tuple[int, float]:
            return min(urgency.get(row.last.state, 1) for row in entry), -max(row.began for row in entry)

        chosen = sorted(groups.values(), key=rank)[: max(space, 1)]
        return [entry for entry in groups.values() if entry in chosen]

    def render_stage_detail(self, row: StageProgress, now: float, spare: int) -> RenderableType:
        """The progress of a running stage, else the reason for its state."""
        if row.last.state == "running" and row.last.step is not None and row.last.total:
            counted = Text(format_step_progress(row, now, measured=self.console.width >= MEASURED))
            if spare < BAR:
                return counted
            grid = Table.grid(padding=(0, 1))
            grid.add_row(ProgressBar(total=row.last.total, completed=row.last.step, width=BAR - 1), counted)
            return grid
        return Text(row.last.reason, "red" if row.last.state == "failed" else "dim", overflow="ellipsis")


def _get_base_stage_name(row: StageProgress) -> str:
    return row.name.partition("@")[0]


def truncate_name_middle(name: str, width: int) -> str:
    """A name within a width: stages differ in their first letters, branches in their last."""
    head = (width - 1) // 2
    return name if len(name) <= width else f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


def create_progress_display(
    console: Console,
    planned: Sequence[PlannedStage],
    root: Path,
    expected: "Mapping[str, ExpectedDuration]",
    jobs: int | None,
) -> Lines:
    """The live table on a terminal, plain lines elsewhere; `expected` and `jobs` as `Lines` has them."""
    live = console.file.isatty() and console.is_interactive
    return (LiveTable if live else Lines)(console, planned, root, expected, jobs)
