"""What a person sees: plain lines where output is piped, a table that fits the screen on a terminal."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from flows.console import display
from flows.console.display import Lines, LiveTable
from flows.console.summary import (
    PlainConsole,
    format_duration,
    format_state_counts,
    load_report_headlines,
    print_run_results,
    print_stage_plan,
    read_log_tail,
)
from flows.engine.stage_types import Event, PlannedStage, StageResult, State
from flows.lineage.expected_durations import ExpectedDuration


def planned(*names: str) -> list[PlannedStage]:
    return [PlannedStage(name, "never run", (), 1, 0) for name in names]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(display, "time", clock)
    return clock


def test_piped_output_has_a_line_for_each_change_and_now_and_then_for_progress(clock: Clock, tmp_path: Path) -> None:
    out, log = io.StringIO(), tmp_path / "mlruns/logs/sft.log"
    with Lines(PlainConsole(out), planned("sft", "reward_model"), tmp_path) as lines:
        lines(Event("sft", "running", "param sft.epochs changed 1 -> 2", log=log))
        for step in range(1, 151):
            clock.now += 1
            lines(Event("sft", "running", step=step, total=150, seconds=float(step)))
            lines.report_if_silent(clock.now)
        lines(Event("sft", "ran", seconds=31.2))
        lines(Event("reward_model", "failed", "exit status 1", seconds=2.0, log=log))
    assert out.getvalue().splitlines() == [
        "2 of 2 stages to run; logs: mlruns/logs",
        "sft           running     param sft.epochs changed 1 -> 2",
        "sft           running     10/150, 2 min left",
        "0 of 2 done; sft 70/150, 1 min left; at least 1 min left",
        "0 of 2 done; sft 130/150, 20 s left; at least 17 s left",
        "sft           ran         31 s",
        "reward_model  failed      2.0 s",
    ]


def test_the_time_left_of_the_run_and_the_loss_of_what_trains_are_told(clock: Clock, tmp_path: Path) -> None:
    out, expected = io.StringIO(), {"sft": ExpectedDuration(30.0, True), "dpo": ExpectedDuration(100.0, True)}
    stages = [PlannedStage("sft", "never run", (), 1, 0), PlannedStage("dpo", "never run", ("sft",), 1, 0)]
    with Lines(PlainConsole(out), stages, tmp_path, expected, jobs=1) as lines:
        lines(Event("sft", "running"))
        for step, seconds in ((1, 10), (11, 60)):
            clock.now += seconds
            lines(Event("sft", "running", step=step, total=40, measure="loss 1.5"))
            lines.report_if_silent(clock.now)
        lines(Event("sft", "ran", seconds=20.0))
        lines(Event("dpo", "running"))
    assert out.getvalue().splitlines() == [
        "2 of 2 stages to run, about 2 min left; logs: mlruns/logs",
        "sft  running",
        "sft  running     1/40, loss 1.5",
        "0 of 2 done; sft 11/40, loss 1.5, 3 min left; about 3 to 5 min left",
        "sft  ran         20 s  about 1 to 2 min left",
        "dpo  running",
    ]


def test_piped_output_says_what_a_stage_waits_for(tmp_path: Path) -> None:
    out = io.StringIO()
    held = "waits for device 0, held by sft of /home/ann (pid 7 on host)"
    with Lines(PlainConsole(out), planned("grpo"), tmp_path) as lines:
        lines(Event("grpo", "waiting", "never run"))  # as planned
        for text in (held, held, held.replace("sft", "dpo")):
            lines(Event("grpo", "waiting", text))
        lines(Event("grpo", "running", "never run"))
    assert out.getvalue().splitlines() == [
        "1 of 1 stages to run; logs: mlruns/logs",
        f"grpo  waiting     {held}",
        f"grpo  waiting     {held.replace('sft', 'dpo')}",
        "grpo  running",
    ]


def test_piped_output_has_no_control_characters_even_in_names_that_look_like_markup(tmp_path: Path) -> None:
    out = io.StringIO()
    with Lines(PlainConsole(out), planned("evaluate@sft"), tmp_path) as lines:
        lines(Event("evaluate@sft", "waiting", "got [red]x[/red] in [0]"))
    assert "got [red]x[/red] in [0]" in out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out.getvalue())


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_shows_progress_time_left_and_logs_within_the_width(clock: Clock, tmp_path: Path, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=True, color_system=None)
    table = LiveTable(console, planned("sft", "evaluate@pretrained", "dpo", "ppo"), tmp_path)
    table(Event("sft", "running", log=tmp_path / "mlruns/logs/sft.log"))
    table(Event("sft", "running", step=100, total=400))
    clock.now += 60
    table(Event("sft", "running", step=200, total=400))
    table(Event("dpo", "failed", "ValueError: " + "long " * 40, seconds=3, log=tmp_path / "mlruns/logs/dpo.log"))
    shown = frame(table, console)
    assert "1 min 00 s" in shown[0]
    assert "200/400, 2 min left" in shown[0]
    assert "waiting" in shown[1]
    assert "failed" in shown[2]
    assert shown[4:6] == ["log: mlruns/logs/sft.log", "log: mlruns/logs/dpo.log"]
    assert shown[6] == "1 failed, 1 running, 2 waiting · 1 min 00 s · at least 2 min left"
    assert max(map(len, shown)) <= width


def test_a_low_screen_shows_what_runs_and_failed_and_counts_the_rest(clock: Clock, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80, height=8, force_terminal=True, color_system=None)
    names = [f"stage{number}" for number in range(30)]
    table = LiveTable(console, planned(*names), tmp_path)
    for name in names[:20]:
        table(Event(name, "ran", seconds=1.0))
    table(Event("stage3", "failed", "x", seconds=1.0))
    table(Event("stage25", "running"))
    shown = frame(table, console)
    assert len(shown) <= 8
    assert {"stage3", "stage25"} <= {line.split()[0] for line in shown}
    assert shown[-1].startswith("24 more · 1 failed, 19 ran, 1 running, 9 waiting")


DATA = [f"LunarLander-v3-{tier}" for tier in ("random", "medium", "medium-replay", "medium-expert", "expert")]
METHODS = ["behaviour", "transitions", "bc", "dqn", "cql", "awr", "decision_transformer", "returns"]


def test_forty_branches_fit_a_small_terminal_and_what_runs_is_told_apart(clock: Clock, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    names = [f"{method}@{data}" for method in METHODS for data in DATA]
    table = LiveTable(console, planned(*names, "offline_report"), tmp_path)
    for name in names[:12]:
        table(Event(name, "ran", seconds=20.0))
    for data in ("medium-replay", "medium-expert"):
        name = f"decision_transformer@LunarLander-v3-{data}"
        table(Event(name, "running", log=tmp_path / f"mlruns/logs/{name}.log"))
        table(Event(name, "running", step=100, total=7500))
    table(Event("bc@LunarLander-v3-expert", "failed", "loss is NaN", seconds=3.0))
    clock.now += 5
    table(Event("decision_transformer@LunarLander-v3-medium-replay", "running", step=200, total=7500))
    shown = frame(table, console)
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    columns = [re.split(r"  +", line) for line in shown]
    assert ["behaviour (5)", "ran", "1 min 40 s"] in columns
    assert ["bc (4)", "40 s", "2 ran, 2 waiting"] in columns
    assert ["bc@LunarLander-v3-expert", "failed", "3.0 s", "loss is NaN"] in columns
    assert ["decision_trans…-medium-replay", "running", "5.0 s", "200/7500, 6 min left"] in columns
    assert ["decision_trans…-medium-expert", "running", "5.0 s", "100/7500"] in columns
    assert ["decision_transformer (3)", "waiting"] in columns
    assert ["offline_report", "waiting", "never run"] in columns
    assert shown[-1].startswith("1 failed, 12 ran, 2 running, 26 waiting")
    assert len([line for line in shown if line.startswith("log: ")]) == 2


def test_on_a_wide_terminal_names_are_whole_and_progress_has_a_bar(clock: Clock, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=140, height=50, force_terminal=True, color_system=None)
    name = "decision_transformer@LunarLander-v3-medium-replay"
    table = LiveTable(console, planned(name, "offline_report"), tmp_path)
    table(Event(name, "running", step=100, total=200))
    assert re.fullmatch(rf"{name}  running +0.0 s  \W+ 100/200", frame(table, console)[0])


def test_the_whole_table_stays_when_the_run_is_over(clock: Clock, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80, height=8, force_terminal=True, color_system=None)
    names = [f"stage{number}" for number in range(30)]
    with LiveTable(console, planned(*names), tmp_path) as table:
        table(Event("stage0", "up-to-date"))
    shown = frame(table, console)
    assert [line.split()[0] for line in shown] == names
    assert shown[0].split() == ["stage0", "up", "to", "date"]


def frame(table: LiveTable, console: Console) -> list[str]:
    with console.capture() as capture:
        console.print(table.table())
    return [line.rstrip() for line in capture.get().rstrip("\n").split("\n")]


def test_the_end_says_what_failed_with_its_log_and_how_to_go_on(tmp_path: Path) -> None:
    out, log = io.StringIO(), tmp_path / "dpo.log"
    log.write_text(
        "".join(f"line {number}\n" for number in range(50)) + "50%\r100%\n\x1b[31mValueError: loss is [NaN]\x1b[0m\n\n"
    )
    results = [
        StageResult("sft", "ran"),
        StageResult("dpo", "failed", "exit status 1", log=log),
        StageResult("report", "skipped", "dpo failed"),
    ]
    print_run_results(PlainConsole(out), results, tmp_path, 65)
    text = out.getvalue()
    assert text.startswith("\ndpo failed: exit status 1\n  line 40\n")
    assert "  100%\n" in text
    assert "ValueError: loss is [NaN]" in text
    assert "\x1b" not in text
    assert text.endswith(
        "log: dpo.log\n1 failed, 1 skipped, 1 ran in 1 min 05 s\n"
        "What succeeded is kept; mend the cause and run it again to go on.\n"
    )


def test_the_end_of_a_good_run_is_one_line(tmp_path: Path) -> None:
    out = io.StringIO()
    print_run_results(PlainConsole(out), [StageResult("a", "ran"), StageResult("b", "up-to-date")], tmp_path, 2)
    assert out.getvalue() == "1 ran, 1 up to date in 2.0 s\n"


@pytest.mark.parametrize("state", ["ran", "restored"])
@pytest.mark.parametrize("all_ran", [False, True])
def test_a_report_ends_with_the_commands_of_dvc_that_fit_it(tmp_path: Path, state: State, all_ran: bool) -> None:
    """Without arguments DVC names what other flows never made; where they ran too, nothing is to be said."""
    for report in ("report", "offline_report", "agents_report")[: 3 if all_ran else 1]:
        (tmp_path / "data" / report).mkdir(parents=True)
    out = io.StringIO()
    print_run_results(PlainConsole(out), [StageResult("sft", "ran"), StageResult("report", state)], tmp_path, 1.0)
    line = "in plain DVC: dvc status --with-deps report; dvc metrics show data/report/metrics\n"
    assert out.getvalue().endswith(line) == (state == "ran" and not all_ran)


def test_the_plan_says_why(tmp_path: Path) -> None:
    out = io.StringIO()
    print_stage_plan(
        PlainConsole(out), [PlannedStage("a", None, (), 1, 0), PlannedStage("long", "dep x[1] changed", ("a",), 1, 0)]
    )
    assert out.getvalue() == "a     up to date\nlong  dep x[1] changed\n1 of 2 stages would run\n"


def test_a_log_that_is_not_there_has_no_end(tmp_path: Path) -> None:
    assert read_log_tail(None) == []
    assert read_log_tail(tmp_path / "none.log") == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (3725, "1 h 02 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_tally_names_failures_first() -> None:
    assert format_state_counts(["ran", "failed", "ran", "up-to-date"]) == "1 failed, 2 ran, 1 up to date"


def test_what_a_shared_cache_gave_is_told_where_no_run_here_made_it(tmp_path: Path) -> None:
    ran, restored = StageResult("a", "ran", mlflow_run_id="1"), StageResult("b", "restored")
    for results, told in (
        ([ran, restored], True),
        ([restored], False),  # nothing was recorded at all
        ([ran, StageResult("b", "restored", mlflow_run_id="2")], False),
    ):
        out = io.StringIO()
        print_run_results(PlainConsole(out), results, tmp_path, 1.0)
        assert ("restored from a shared cache, with no run here that made it: b\n" in out.getvalue()) == told


def test_a_record_that_failed_is_told_and_fails_no_stage(tmp_path: Path) -> None:
    out = io.StringIO()
    results = [StageResult("a", "ran", unrecorded="mlruns/mlflow.db: disk I/O error"), StageResult("b", "ran")]
    print_run_results(PlainConsole(out), results, tmp_path, 1.0)
    assert (
        "what MLflow has of this run is incomplete: mlruns/mlflow.db: disk I/O error\n2 ran in 1.0 s" in out.getvalue()
    )


def test_a_run_ends_with_the_sentence_of_each_report_that_is_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "data/report").mkdir(parents=True)
    (tmp_path / "data/report/headline.txt").write_text("grpo answers 76.2 % right.\n")
    assert load_report_headlines(tmp_path, {"sft", "report", "offline_report"}) == ["grpo answers 76.2 % right."]
    assert load_report_headlines(tmp_path, {"sft"}) == []


def test_a_stopped_run_names_the_stage_that_was_stopped_and_nothing_that_it_skipped(tmp_path: Path) -> None:
    out = io.StringIO()
    names = ("sft", "dpo", "report")
    with Lines(PlainConsole(out), planned(*names), tmp_path) as lines:
        lines(Event("sft", "running"))
        lines(Event("sft", "failed", "stopped", seconds=12))
        for name in names[1:]:
            lines(Event(name, "skipped", "sft failed"))
    assert out.getvalue().splitlines()[1:] == ["sft     running", "sft     stopped     12 s"]
    end = io.StringIO()
    results = [
        StageResult("sft", "failed", "stopped"),
        *(StageResult(name, "skipped", "sft failed") for name in names[1:]),
    ]
    print_run_results(PlainConsole(end), results, tmp_path, 12)
    assert end.getvalue() == "1 failed, 2 skipped in 12 s\n"


def test_the_end_tells_a_fault_once(tmp_path: Path) -> None:
    """The last line of a failed stage's log is its reason."""
    log = tmp_path / "sft.log"
    log.write_text("reading\nparams.yaml: sft.epochs: too many\n")
    out = io.StringIO()
    reason = "params.yaml: sft.epochs: too many (exit status 1)"
    print_run_results(PlainConsole(out), [StageResult("sft", "failed", reason, log=log)], tmp_path, 1)
    assert out.getvalue().startswith(f"\nsft failed: {reason}\n  reading\nlog: sft.log\n")
    assert out.getvalue().count("too many") == 1


def test_a_stage_of_two_parts_counts_in_the_steps_of_its_first(clock: Clock, tmp_path: Path) -> None:
    """The first part has 20 of 40 steps, the second half as many again in steps of its own: 24 of 48 is half way."""
    out = io.StringIO()
    with Lines(PlainConsole(out), planned("evaluate"), tmp_path) as lines:
        lines(Event("evaluate", "running"))
        for step, total in ((1, 40), (20, 40), (30, 48)):
            clock.now += 60
            lines(Event("evaluate", "running", step=step, total=total))
            lines.report_if_silent(clock.now)
    assert [line.split()[5] for line in out.getvalue().splitlines()[3:]] == ["20/40,", "25/40,"]
