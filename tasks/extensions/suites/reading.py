"""A suite's problems, from files or from the hub at a commit; each fault is one line that names the place and what was
expected.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tasks.common.errors import ConfigError, DataError
from tasks.extensions.suites.registry import SUITES
from tasks.extensions.suites.suite import Suite, SuiteColumns, SuiteProblem
from tasks.language.data import forms, problem_forms
from tasks.language.data.rows import SUFFIXES, Row, fetch_hub_rows, parse_row, read_file
from tasks.language.rewards import answers, numerals

LONGEST = 100_000  # characters of one field; MATH-500's longest has 3,360
COMMIT = re.compile(r"[0-9a-f]{40}")


def get_suite(name: str) -> Suite:
    """The entry of this name."""
    if name not in SUITES:
        raise ConfigError(f"suite {name!r}: expected one of {', '.join(SUITES)}")
    return SUITES[name]


def load_suite_problems(name: str, folder: Path, revision: str | None, most: int | None = None) -> list[SuiteProblem]:
    """The first `most` problems of a suite: of a file in `folder`, or of the hub at a commit."""
    suite_spec = get_suite(name)
    distinct_problems = list(
        islice(
            _parse_distinct_problems(_read_or_fetch_suite_rows(suite_spec, name, folder, revision), suite_spec.columns),
            most,
        )
    )
    if not distinct_problems:
        raise DataError(f"suite {name}: there are no problems in {revision or suite_spec.file}")
    return distinct_problems


def load_suite_examples(name: str, folder: Path, count: int) -> list[SuiteProblem]:
    """The first `count` examples for few-shot prompts, from the suite's file of examples."""
    if not count:
        return []
    suite_spec = get_suite(name)
    shots = list(
        islice(_parse_distinct_problems(_read_suite_file(name, folder, suite_spec.examples), suite_spec.columns), count)
    )
    if len(shots) < count:
        raise DataError(
            f"suite {name}: {suite_spec.examples} has {len(shots)} examples; expected {count} for as many shots"
        )
    return shots


def _read_or_fetch_suite_rows(suite_spec: Suite, name: str, folder: Path, revision: str | None) -> Iterator[Row]:
    if revision is None:
        return _read_suite_file(name, folder, suite_spec.file)
    check_suite_revision(name, revision)
    return fetch_hub_rows(suite_spec.hub.hub_id, suite_spec.hub.config, revision, suite_spec.hub.split)


def check_suite_revision(name: str, revision: str) -> None:
    """ConfigError unless the suite is known, and the revision a commit."""
    hub = get_suite(name).hub
    if not COMMIT.fullmatch(revision):
        raise ConfigError(
            f"suite {name}: revision {revision[:60]!r}: expected a commit of {hub.hub_id}, 40 hexadecimal digits: "
            "a branch or "
            "a tag may name other data tomorrow"
        )


def _read_suite_file(name: str, folder: Path, stem: str) -> Iterator[Row]:
    files = [file for ending in SUFFIXES if (file := folder / f"{stem}{ending}").is_file()]
    if not files:
        raise DataError(
            f"suite {name}: {folder / stem}: no such file of type {', '.join(SUFFIXES)}; expected it there, or a "
            "revision of "
            f"{SUITES[name].hub.hub_id} on the hub"
        )
    return read_file(files[0])


def _parse_distinct_problems(rows: Iterable[Row], columns: SuiteColumns) -> Iterator[SuiteProblem]:
    """The problems in order; DataError where one is asked twice, which would count twice."""
    seen: dict[object, str] = {}
    for row in rows:
        parsed_problem = parse_row(row, partial(parse_suite_problem, columns=columns, name=row.name))
        key = (parsed_problem.question, tuple(parsed_problem.choices))
        if key in seen:
            raise DataError(f"{row.where}: asks the same as {seen[key]}; expected each problem once")
        seen[key] = row.where
        yield parsed_problem


def parse_suite_problem(row: Mapping[str, Any], columns: SuiteColumns, name: str) -> SuiteProblem:
    """One row; ValueError that names the field at fault."""
    for field, value in row.items():
        _check_field_length(value, field)
    solution = _join_solution_parts(row.get(columns.solution))
    choices = problem_forms.parse_choices(row) if columns.choices else []
    answer_field = next((field for field in columns.answer if row.get(field) is not None), None)
    if answer_field is None:
        raise ValueError(
            f"expected a column {' or '.join(columns.answer)} with a value; got {forms.format_column_names(row)}"
        )
    if columns.choices:
        if not choices:
            raise ValueError(f"expected choices with labels and texts; got {forms.format_column_names(row)}")
        choices, answer = _relabel_choices_by_letter(
            choices, problem_forms.get_choice_label(row[answer_field], answer_field, choices)
        )
    else:
        answer = _parse_answer(row[answer_field], answer_field, columns)
    question = _parse_question(row, columns)
    return SuiteProblem(
        name,
        question,
        answer,
        solution,
        _format_optional_text(row.get(columns.level)),
        _format_optional_text(row.get(columns.subject)),
        choices,
    )


def _relabel_choices_by_letter(choices: Sequence[tuple[str, str]], label: str) -> tuple[list[tuple[str, str]], str]:
    """The choices behind A, B, .. whatever their labels are, and the letter of the one with the `label`, as
    lm-evaluation-harness asks.
    """
    letters = problem_forms.LETTERS[: len(choices)]
    if len(letters) < len(choices):
        raise ValueError(f"there are {len(choices)} choices; expected at most {len(letters)}, a letter for each")
    named = dict(zip((original_label for original_label, _ in choices), letters, strict=True))
    if len(named) < len(choices):
        raise ValueError(
            f"the labels of the choices are {', '.join(original_label for original_label, _ in choices)[:60]}; "
            "expected each once"
        )
    return list(zip(letters, (text for _, text in choices), strict=True)), named[label]


def _parse_question(row: Mapping[str, Any], columns: SuiteColumns) -> str:
    row = {field: value["stem"] if _is_arc_question(value) else value for field, value in row.items()}
    if columns.joined:
        return " ".join(forms.get_required_text(row, field) for field in columns.question)
    field = next((field for field in columns.question if row.get(field) is not None), None)
    if field is None:
        raise ValueError(f"expected a column {' or '.join(columns.question)}; got {forms.format_column_names(row)}")
    forms.get_required_text(row, field)  # which refuses what is no text
    question: str = row[field]  # with the spaces around it, which lm-evaluation-harness keeps
    return question


def _is_arc_question(value: object) -> bool:
    """Whether it is a question as ARC's own files keep it, with its choices beside it."""
    return isinstance(value, Mapping) and isinstance(value.get("stem"), str)


def _parse_answer(value: object, field: str, columns: SuiteColumns) -> str:
    text = _format_answer_value(value, field)
    if columns.given == "behind ####":
        number = numerals.parse_number_parts(answers.strip_number_wrapping(text.rpartition(problem_forms.MARK)[2]))
        if number is None:
            raise ValueError(f"field '{field}' does not end in '#### N'; expected a number there")
        text = number.plain
    if columns.given == "in a box" and field == columns.solution:
        text = answers.find_last_boxed_text(text) or ""
    if not text:
        raise ValueError(f"field '{field}' holds no answer")
    return text


def _format_answer_value(value: object, field: str) -> str:
    """The answer as text: 27.0 is `27`, a list its items behind each other, without the signs that begin and end
    mathematics.
    """
    if isinstance(value, list) and value:
        return ", ".join(_format_answer_value(part, field).replace("$", "") for part in value)
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"field '{field}' is {type(value).__name__} {str(value)[:40]}; expected a text or a number")
    return str(int(value)) if value == int(value) else repr(value)


def _join_solution_parts(value: object) -> str:
    parts = value if isinstance(value, list) else [value]
    return "\n".join(part for part in parts if isinstance(part, str)).strip()


def _format_optional_text(value: object) -> str:
    return "" if value is None else str(value)


def _check_field_length(value: object, field: str) -> None:
    length = len(value) if isinstance(value, str) else len(json.dumps(value, default=str))
    if length > LONGEST:
        raise ValueError(f"field '{field}' has {length:,} characters; expected at most {LONGEST:,}")
