"""Texts that somebody labelled, such as answers that are right or wrong (KTO's form, arXiv:2402.01306)."""

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.common.tables import Record
from tasks.language.data import forms, messages
from tasks.language.data.rows import Row, parse_row

LABELS = {
    "1": True,
    "true": True,
    "positive": True,
    "pos": True,
    "0": False,
    "false": False,
    "negative": False,
    "neg": False,
}


def parse_labelled_answers(rows: Iterable[Row]) -> list[Record]:
    """Prompts with an answer and whether it is right, from columns `prompt`, `completion` and `label`."""
    return [{"solution_id": row.name, **parse_row(row, _parse_labelled_answer)} for row in rows]


def _parse_labelled_answer(row: Mapping[str, Any]) -> Record:
    prompt = forms.add_system_and_tools(row, forms.parse_text_or_messages(row.get("prompt"), "prompt", "user"))
    question, history = forms.split_prompt(prompt)
    *_, answer = forms.parse_text_or_messages(row.get("completion"), "completion", "assistant")
    response = forms.get_required_text({"completion": messages.format_message_text(answer)}, "completion")
    return {"prompt": question, "history": history, "response": response, "right": parse_boolean_label(row, "label")}


def parse_boolean_label(row: Mapping[str, Any], column: str) -> bool:
    """A label as a truth value; ValueError naming the column where it is none."""
    value = row.get(column)
    label = LABELS.get(str(value).strip().lower()) if isinstance(value, str | int | bool) else None
    if label is None:
        fault = f"has {value!r}" if column in row else f"is missing; there are {forms.format_column_names(row)}"
        raise ValueError(f"field '{column}' {fault}; expected 1 or 0, true or false, positive or negative")
    return label
