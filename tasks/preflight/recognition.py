"""`python -m tasks.preflight.recognition FILE...`: what each of the user's files is, and the parameters with which a
run uses it, as JSON.

Files are read with the stages' readers of rows, and files of Python are parsed: nothing is imported or unpickled. Exit
code 2, with one line as JSON on standard error, for a file that no run uses.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tasks.common.errors import DataError, StageError
from tasks.language.data import forms, problem_forms
from tasks.language.data.rows import Row, is_held_out, list_data_files, parse_row, read_files
from tasks.preflight import recipes
from tasks.preflight.recipes import Recipe

SHORT_ANSWER = 5  # words; a longer answer is imitated and not compared
ALTERNATIVES = {  # what else rows of a kind may be used as
    "chats": "--as prompts compares the answers, --as test measures with them",
    "prompts": "--as chats imitates the answers, --as test measures with them",
    "test": "--as prompts trains on them by reward, --as chats imitates the answers",
    "text": "--as chats trains SFT on it and not the pretrained model",
}
EXPECTED = (
    "rows of conversations, preference pairs, problems, prompts or text; a model's folder; recorded episodes; or "
    "Python with a reward or an environment"
)


class Recognized(NamedTuple):
    """What a file is, and what of it says so."""

    kind: str
    reason: str


def recognize_file(path: Path, kind: str = "") -> Recipe:
    """The recipe for a file or folder, as `kind` or as what it looks like; StageError if no run uses it so."""
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.suffix == ".py":
        return recipes.build_python_recipe(path, kind)
    if path.is_dir() and (path / "config.json").is_file():
        return recipes.build_model_recipe(path)
    if path.suffix == ".hdf5" or (path / "data/main_data.hdf5").is_file():
        return recipes.build_episodes_recipe(path)
    rows = [*read_files(path)]
    if not rows:
        raise DataError(f"{path}: there are no rows; expected {EXPECTED}")
    recognized = Recognized(kind, f"used as --as {kind}") if kind else recognize_rows(path, rows[0])
    return recipes.build_rows_recipe(path, recognized.kind, recognized.reason, rows)


def recognize_rows(path: Path, row: Row) -> Recognized:
    """What the rows of a file are, by the columns of the first; DataError if they are in none of the forms."""
    columns = {name for name, value in row.values.items() if value not in (None, "", [])}
    if {"chosen", "rejected"} <= columns:
        return Recognized("pairs", _list_columns(columns & {"prompt", "chosen", "rejected", *forms.TURNS}))
    for name in forms.TURNS:
        if name in columns:
            turns = parse_row(row, partial(_parse_turns, name))
            last = turns[-1]["role"]
            kind = "chats" if last == "assistant" else "prompts"
            return Recognized(kind, f"{_list_columns({name})}, whose last turn is the {last}'s")
    if columns & {"text"} and not columns & {*problem_forms.QUESTIONS[:-1]}:
        return Recognized("text", f"{_list_columns({'text'})}; {ALTERNATIVES['text']}")
    answer = _parse_reference_answer(row)
    shown = _list_columns(columns & {*problem_forms.QUESTIONS, *problem_forms.SOLUTIONS, *problem_forms.ANSWERS})
    if answer and _has_both_splits(path):
        return Recognized("problems", f"{shown}, with train and test files")
    if answer and is_held_out(path.stem):
        return Recognized("test", f"{shown}, with the name of a test file; {ALTERNATIVES['test']}")
    imitated = _can_be_imitated(row)
    if answer and (len(answer.split()) <= SHORT_ANSWER or not imitated):
        return Recognized("prompts", f"{shown}, whose answers a reward compares; {ALTERNATIVES['prompts']}")
    if imitated:
        return Recognized("chats", f"{shown}; {ALTERNATIVES['chats']}")
    if columns & {*problem_forms.QUESTIONS} or {"Body", "Question"} <= columns:
        return Recognized("prompts", shown)
    raise DataError(f"{row.where}: columns {', '.join(sorted(columns)) or 'without values'}; expected {EXPECTED}")


def _parse_reference_answer(row: Row) -> str:
    """The answer that a row of problems names; empty for other rows."""
    form = problem_forms.parse_gsm8k_row if problem_forms.is_gsm8k_row(row.values) else _parse_problem
    with suppress(StageError):
        return str(parse_row(row, form)["answer"])
    return ""


def _parse_problem(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return problem_forms.parse_general_problem(values)


def _parse_turns(column: str, values: Mapping[str, Any]) -> list[Any]:
    return [*forms.parse_conversation(values[column], column)]


def _can_be_imitated(row: Row) -> bool:
    with suppress(StageError):
        parse_row(row, forms.parse_demonstration)
        return True
    return False


def _has_both_splits(path: Path) -> bool:
    stems = {file.stem for file in list_data_files(path)}
    return path.is_dir() and {"train", "test"} <= stems


def _list_columns(columns: set[str]) -> str:
    return f"column{'s' * (len(columns) != 1)} {', '.join(sorted(columns))}"


def combine_recipes(named: Sequence[Recipe]) -> list[Recipe]:
    """The recipes of one run; DataError where the files do not make one."""
    for kind in {recipe.kind for recipe in named}:
        same = [recipe.path for recipe in named if recipe.kind == kind]
        if len(same) > 1:
            raise DataError(f"{same[0]} and {same[1]} are both {kind}; expected one of them, or a folder with both")
    laid = [recipe.path for recipe in named if recipe.preset]
    if len(laid) > 1:
        raise DataError(f"{laid[0]} and {laid[1]} need other values of the same parameters; expected one of them")
    kinds = {recipe.kind for recipe in named}
    for recipe in named:
        rewarded = "reward" in kinds or any("reward" in key for key, _ in recipe.settings)
        if recipe.kind == "prompts" and not rewarded:
            raise DataError(
                f"{recipe.path}: not every row has an answer that the reward verifiable compares; expected a reward as "
                f"well, such as: posttrain use {recipe.path} rewards/mine.py"
            )
        if recipe.kind == "environment" and "model" not in kinds and not recipes.has_expert(recipe):
            raise DataError(
                f"{recipe.path}: there is no best_action to clone; expected a model to start from as well, such as: "
                f"posttrain use {recipe.path} MODEL"
            )
    if "environment" in kinds:
        return [recipes.start_agents_from_model(recipe) if recipe.kind == "model" else recipe for recipe in named]
    return [*named]


def main() -> None:
    """Print a list with what each file is; exit code 2 with one line where one is nothing."""
    parser = argparse.ArgumentParser(prog="python -m tasks.preflight.recognition", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--as", dest="kind", default="", choices=("", *recipes.ROW_KINDS))
    arguments = parser.parse_args()
    try:
        named = combine_recipes([recognize_file(path, arguments.kind) for path in arguments.files])
    except StageError as error:
        print(json.dumps(str(error)), file=sys.stderr)
        raise SystemExit(2) from None
    print(json.dumps([recipe._asdict() for recipe in named]))


if __name__ == "__main__":
    main()
