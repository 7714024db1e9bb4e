"""TRL's data sets (its page "Dataset formats and types"): preferences with an explicit prompt, stepwise supervision,
prompt and completion.

Preferences are `{"prompt", "chosen", "rejected"}`, each a text or, in the conversational form, messages; stepwise
supervision is `{"prompt", "completions": [one for each step], "labels": [true or false]}`. Ties have no form there and
are left out; a neutral step is true. Two more columns, which TRL leaves alone, are `person`, and for pairs `strength`,
such as `slightly better`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.common.errors import DataError
from tasks.common.tables import Record as Row
from tasks.extensions.labelling.formats.imported_judgements import PersonalJudgement, clean_person_name
from tasks.extensions.labelling.measures.outcomes import list_pairwise_outcomes
from tasks.language.data import forms, messages
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import EditValue, Item, Judgement, PairwiseValue, StepsValue

FILES = ("preferences", "stepwise", "completions")


def build_trl_rows(record: JudgementRecord, conversational: bool) -> dict[str, list[Row]]:
    """Rows of each of FILES. Repeats are left out; a prompt with turns before it has only the conversational form, and
    none of its steps.
    """
    rows_by_file: dict[str, list[Row]] = {name: [] for name in FILES}
    for line in record.judgements:
        if line.repeat == 0:
            item = record.items[line.item]
            if item.history and not conversational:
                raise DataError(f"item {item.item}: turns before the prompt; expected the conversational form for them")
            if item.history and isinstance(line.value, StepsValue):
                raise DataError(
                    f"item {item.item}: turns before the prompt, for which TRL's stepwise form has no column"
                )
            for name, row in _iterate_trl_rows(line, item):
                rows_by_file[name].append(_convert_to_conversational(row, item) if conversational else row)
    return rows_by_file


def _iterate_trl_rows(line: Judgement, item: Item) -> Iterator[tuple[str, Row]]:
    shared_columns = {"prompt": item.prompt, "person": line.person}
    match line.value:
        case StepsValue(labels=labels):
            judged = [(step, label >= 0) for step, label in zip(item.steps, labels, strict=True) if label is not None]
            yield (
                "stepwise",
                {**shared_columns, "completions": [step for step, _ in judged], "labels": [good for _, good in judged]},
            )
        case EditValue(text=text):
            yield "completions", {**shared_columns, "completion": text}
        case value:
            strength = {"strength": value.strength[2:]} if isinstance(value, PairwiseValue) else {}
            for outcome in list_pairwise_outcomes(value):
                if outcome.score != 0.5:
                    better, worse = (
                        (outcome.first, outcome.second) if outcome.score else (outcome.second, outcome.first)
                    )
                    sides = {"chosen": item.answers[better].text, "rejected": item.answers[worse].text}
                    yield "preferences", {**shared_columns, **sides, **strength}


def _convert_to_conversational(row: Row, item: Item) -> Row:
    """Stepwise supervision has texts alone."""
    if "completions" in row:
        return row
    answers = {
        name: [{"role": "assistant", "content": row[name]}]
        for name in row.keys() & {"chosen", "rejected", "completion"}
    }
    tools, prompt = messages.split_tools(forms.join_prompt(item.prompt, item.history))
    return row | {"prompt": prompt, **({"tools": tools} if tools else {})} | answers


def parse_trl_row(row: Mapping[str, Any], name: str, who: str) -> PersonalJudgement:
    """A row of either form; `who` judged where no column `person` says so. ValueError names the field at fault.

    The two answers of a pair stand in the order of their texts, so that people who prefer different ones judge one
    item.
    """
    judged_by = clean_person_name(row.get("person") or who)
    if "chosen" in row:
        pair = forms.parse_preference_pair(row)
        chosen = messages.format_message_text(pair.chosen)
        rejected = messages.format_message_text(pair.rejected)
        first, second = sorted((chosen, rejected))
        if first == second:
            raise ValueError("fields 'chosen' and 'rejected' are one text; expected two answers")
        better = f"{'a' if chosen == first else 'b'} {pair.level}".strip()
        value = PairwiseValue(strength=f"{better} better")
        return PersonalJudgement(
            name, *forms.split_prompt(pair.prompt), (first, second), "pairwise", value, judged_by, 0.0
        )
    prompt = forms.split_prompt(forms.parse_text_or_messages(row.get("prompt"), "prompt", "user"))
    if "completions" in row:
        steps = row["completions"]
        labels = row.get("labels")
        if not isinstance(steps, list) or not isinstance(labels, list) or len(steps) != len(labels):
            raise ValueError("fields 'completions' and 'labels' should be lists of one length")
        text = "\n".join(str(step).replace("\n", " ") for step in steps)
        return PersonalJudgement(
            name,
            *prompt,
            (text,),
            "steps",
            StepsValue(labels=tuple(1 if good else -1 for good in labels)),
            judged_by,
            0.0,
        )
    if "completion" in row:
        [message] = forms.parse_text_or_messages(row["completion"], "completion", "assistant")
        return PersonalJudgement(
            name, *prompt, (), "edit", EditValue(text=messages.format_message_text(message)), judged_by, 0.0
        )
    raise ValueError(
        "expected prompt with chosen and rejected, completions and labels, or completion; got "
        f"{forms.format_column_names(row)}"
    )
