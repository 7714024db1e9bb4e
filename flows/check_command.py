"""`posttrain check`: what can be known of a run before it begins, with other values than those of params.yaml where
some are given.
"""

import json
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.model_commands import run_module_in_terminal
from flows.params.files import PARAMS, find_root, parse_params, read_text
from flows.running import FLOWS, convert_errors_to_wrong_use
from flows.running import get_flow_targets as ends_of
from tasks.common.terminal import format_in_one_line

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[language|offline|agents|STAGE...]", help="Flows or stages.", autocompletion=tab.complete_targets
    ),
]
PAIRS = {"pairs": ("reward_model", "dpo")}  # what is learned of pairs, by the stages that do


def check(
    targets: Targets = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="As if params.yaml said so.",
            autocompletion=tab.complete_param_edits,
        ),
    ] = None,
) -> int:
    """Look at data, template, lengths, rewards, environments, time and memory before a run; nothing is trained or
    written.
    """
    from flows.engine import plan
    from flows.params import checking, editing

    root = find_root()
    types = checking.load_config_classes(root)
    before = read_text(root / PARAMS)
    text, changes = editing.apply_edits_to_text(
        before, types, [editing.parse_setting(assignment) for assignment in set_ or []]
    )
    named = [stage for name in targets or ["language"] for stage in _list_target_stages(name)]
    with convert_errors_to_wrong_use():
        stages = plan.list_needed_stages(root, named, text)
    editing.check_params_consistency(root, types, stages, stages, text)
    for change in changes:
        print(f"{PARAMS} would change: {format_in_one_line(change)}", flush=True)
    with ExitStack() as stack:
        params = root / PARAMS
        if text != before:
            params = Path(stack.enter_context(TemporaryDirectory()), PARAMS)
            params.write_text(text)
        durations = format_expected_durations(root, stages, text)
        options = [f"--params={params}", *([f"--durations={durations}"] if durations else [])]
        return run_module_in_terminal(root, "tasks.preflight", *options, *sorted(stages))


def format_expected_durations(root: Path, stages: Collection[str], params: str) -> str:
    """How long `posttrain run` expects these stages to take with `params`, as JSON: `{"sft": "2 to 4 min"}`."""
    from flows.console.time_left import KNOWN_SPREAD, SpeedCalibration, format_duration_range
    from flows.lineage.expected_durations import expect_stage_durations

    words = {}
    with convert_errors_to_wrong_use():
        for name, expected in expect_stage_durations(root, stages, parse_params(params)).items():
            spread = KNOWN_SPREAD if expected.measured_here else SpeedCalibration().spread
            words[name] = format_duration_range(expected.seconds / spread, expected.seconds * spread)
    return json.dumps(words) if words else ""


def _list_target_stages(name: str) -> tuple[str, ...]:
    return ends_of(name) if name in FLOWS else PAIRS.get(name, (name,))
