"""The record as other tools' files, and other tools' files as lines of the record: TRL, Argilla and Potato."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from tasks.common.errors import DataError
from tasks.common.tables import Record as Columns
from tasks.extensions.labelling.formats import argilla, potato, trl
from tasks.extensions.labelling.formats.imported_judgements import PersonalJudgement, build_record_lines
from tasks.language.data.rows import Row, parse_row, read_file, read_files
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import Line, format_validation_error

Tool = Literal["trl", "trl-chat", "argilla", "potato"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
SAID = "annotated_instances.jsonl"
OUTPUT = "annotation_output"


def export_judgements(record: JudgementRecord, tool: Tool, folder: Path) -> list[Path]:
    """Write the record's judgements to a folder in the tool's form; returns the files.

    Those without rows are not written.
    """
    if tool == "argilla":
        return _write_row_files({folder / "records.json": argilla.build_argilla_records(record)})
    if tool == "potato":
        items, annotations = potato.build_potato_rows(record)
        return _write_row_files(
            {folder / "items.jsonl": items, **{folder / OUTPUT / who / SAID: annotations[who] for who in annotations}}
        )
    rows_by_name = trl.build_trl_rows(record, conversational=tool == "trl-chat")
    return _write_row_files({folder / f"{name}.jsonl": rows for name, rows in rows_by_name.items()})


def load_tool_judgements(path: Path, tool: Tool, who: str, at: str) -> list[Line]:
    """Lines for the record from a tool's file or folder: items before their judgements. DataError names file, line and
    field.

    `who` judged where the file does not say so; `at` is the time that the judgements get. Potato's is a folder with the
    items that it was given (.jsonl or .json) and its annotation_output.
    """
    if tool == "potato":
        return _load_potato_judgements(path, who, at)

    def form(row: Row) -> Iterable[PersonalJudgement]:
        if tool == "argilla":
            return argilla.parse_argilla_record(row.values, row.name)
        return [trl.parse_trl_row(row.values, row.name, who)]

    return _merge_unique_lines(_convert_row_to_lines(row, form, at) for row in read_files(path))


def _load_potato_judgements(folder: Path, who: str, at: str) -> list[Line]:
    annotation_files = sorted((folder / OUTPUT).rglob(SAID))
    if not annotation_files:
        raise DataError(f"{folder}: expected a folder with {OUTPUT}/PERSON/{SAID}, as Potato writes it; found none")
    items = {item.name: item for row in read_files(folder) for item in [parse_row(row, potato.parse_potato_item)]}

    def form(row: Row) -> list[PersonalJudgement]:
        return potato.parse_potato_annotation(row.values, items, row.name)

    by_person = [(file, file.parent.name if file.parent.name != OUTPUT else who) for file in annotation_files]
    return _merge_unique_lines(
        _convert_row_to_lines(row._replace(name=person), form, at)
        for file, person in by_person
        for row in read_file(file)
    )


def _convert_row_to_lines(row: Row, form: Callable[[Row], Iterable[PersonalJudgement]], at: str) -> list[Line]:
    def made(_: Mapping[str, Any]) -> list[Line]:
        try:
            return build_record_lines(form(row), at)
        except ValidationError as error:
            raise ValueError(format_validation_error(error)) from None

    return parse_row(row, made)


def _merge_unique_lines(line_groups: Iterable[list[Line]]) -> list[Line]:
    """Each line once."""
    return list(dict.fromkeys(line for several in line_groups for line in several))


def _write_row_files(files: Mapping[Path, list[Columns]]) -> list[Path]:
    """JSON lines, or one list where the name ends in .json."""
    kept = {path: rows for path, rows in files.items() if rows}
    if not kept:
        raise DataError("nothing to export: no judgement has a form there")
    for path, rows in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [json.dumps(row, ensure_ascii=False) for row in rows]
        text = "[\n" + ",\n".join(texts) + "\n]\n" if path.suffix == ".json" else "\n".join(texts) + "\n"
        path.write_text(text, encoding="utf-8")
    return list(kept)
