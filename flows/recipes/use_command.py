"""`posttrain use FILE...`: params.yaml set so that a run uses files of the user's, after a look at what they hold."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from flows.check_command import format_expected_durations
from flows.model_commands import run_module_in_terminal
from flows.params.files import PARAMS, ParameterError, find_root, parse_params, read_text, write_file_atomically
from flows.recipes.preset_command import format_section_names, save_params_for_undo
from flows.running import FLOWS, convert_errors_to_wrong_use, get_flow_targets

Recipe = Mapping[str, Any]  # the fields of tasks/preflight/recipes.py's Recipe


def use(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Chats, pairs, prompts, problems, a test set, text, a model, a reward or an environment.",
        ),
    ],
    as_: Annotated[
        str,
        typer.Option(
            "--as", metavar="KIND", help="chats, pairs, prompts, problems, test or text; else by the columns."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at the files and change nothing.")] = False,
) -> int:
    """Use files of your own: shows what they hold, and sets params.yaml so that a run learns from them."""
    from flows.engine import plan
    from flows.params import checking, editing

    root = find_root()
    types = checking.load_config_classes(root)
    recipes = recognize_files(root, files, as_)
    for recipe in recipes:
        laid = f"; preset {recipe['preset']}" if recipe["preset"] else ""
        print(f"{recipe['path']}: {recipe['kind']} ({recipe['reason']}){laid}", flush=True)
    edits = [edit for recipe in recipes for edit in iterate_recipe_edits(root, types, recipe)]
    before = read_text(root / PARAMS)
    text, _ = editing.apply_edits_to_text(before, types, edits)
    target = choose_target(recipes)
    with convert_errors_to_wrong_use():
        stages = plan.list_needed_stages(root, get_flow_targets(target) if target in FLOWS else [target], text)
    editing.check_params_consistency(root, types, stages, stages, text)
    with ExitStack() as stack:
        params = Path(stack.enter_context(TemporaryDirectory()), PARAMS)
        params.write_text(text)
        durations = format_expected_durations(root, stages, text)
        options = [f"--params={params}", *([f"--durations={durations}"] if durations else [])]
        options += [f"--preview={recipe['kind']}" for recipe in recipes]
        status = run_module_in_terminal(root, "tasks.preflight", *options, *sorted(stages))
    if status:
        print(f"{PARAMS} is as it was", file=sys.stderr)
        return status
    print(format_whole_duration(root, stages, text))
    if not dry_run and text != before:
        save_params_for_undo(root, before, text)
        write_file_atomically(root / PARAMS, text.encode())
    for line in format_changes(root, before, text, dry_run):
        print(line)
    print(f"next: posttrain run{'' if target == 'language' else f' {target}'}")
    return 0


def recognize_files(root: Path, files: Sequence[Path], kind: str) -> list[Recipe]:
    """What the files are, read in a process of its own; ParameterError with one line where no run uses one."""
    names = []
    for file in files:
        path = file.absolute()
        names.append((path.relative_to(root) if path.is_relative_to(root) else path).as_posix())
    command = [sys.executable, "-m", "tasks.preflight.recognition", f"--as={kind}", "--", *names]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        try:
            raise ParameterError(str(json.loads(last)))
        except ValueError:
            raise ParameterError(last or "the files cannot be read") from None
    recipes: list[Recipe] = json.loads(done.stdout)
    return recipes


def iterate_recipe_edits(root: Path, types: Any, recipe: Recipe) -> Iterator[Any]:
    """The edits of the recipe's preset, and then those of the file."""
    from flows.params import editing

    if recipe["preset"]:
        yield from editing.load_preset_edits(root, types, recipe["preset"])
    for key, value in recipe["settings"]:
        yield editing.Edit(tuple(key), value, json.dumps(value, ensure_ascii=False), recipe["path"])


def choose_target(recipes: Sequence[Recipe]) -> str:
    """The flow or stage that uses all the files: a stage alone where no file is for all policies."""
    targets = [str(recipe["target"]) for recipe in recipes if recipe["target"]]
    for recipe in recipes:
        if recipe["kind"] in ("test", "problems"):
            return str(recipe["target"])
    stages = [target for target in targets if target not in FLOWS]
    return [*stages, *targets, "language"][0]


def format_whole_duration(root: Path, stages: Sequence[str], params: str) -> str:
    """How long the stages take one after another, as far as earlier runs or measured ones say it."""
    from flows.console.time_left import SpeedCalibration, format_duration_range
    from flows.lineage.expected_durations import expect_stage_durations

    expected = expect_stage_durations(root, stages, parse_params(params))
    unknown = [stage for stage in stages if stage not in expected and stage != "code"]
    seconds = sum(duration.seconds for duration in expected.values())
    spread = SpeedCalibration().spread
    words = format_duration_range(seconds / spread, seconds * spread)
    if not unknown:
        return f"time: about {words} for all {len(stages)} stages"
    return f"time: about {words} and what {', '.join(unknown)} take, which have not run on such data here"


def format_changes(root: Path, before: str, text: str, dry_run: bool) -> Iterator[str]:
    """What differs in params.yaml, and the way back."""
    from flows.lineage.git_files import read_file_at_head

    old = parse_params(before)
    new = parse_params(text)
    changed = [section for section in new if new[section] != old.get(section)]
    verb = "would change" if dry_run else "changed"
    if not changed:
        yield f"{PARAMS}: has these values already"
        return
    yield f"{PARAMS}: {verb} in {format_section_names(changed)} (git diff {PARAMS})"
    committed = read_file_at_head(root, PARAMS)
    if committed:
        first = parse_params(committed)
        if others := [section for section in old if old[section] != first.get(section) and section not in changed]:
            yield (
                f"{PARAMS}: earlier changes stay in {format_section_names(others)}; "
                "`posttrain preset default` first takes them back"
            )
    if not dry_run:
        yield "back: posttrain preset --undo, or posttrain preset default"
