"""Potato's files: the items that it shows, and `annotation_output/PERSON/annotated_instances.jsonl`, what each person
said of them.

A line of an item has `id`, `prompt` and a list `responses` (or another of LISTS, or `left` and `right`); a line of what
was said has `id`, `displayed_text`, `label_annotations` by scheme, `span_annotations` and `behavioral_data`. Of the
schemes (Potato's pages on pairwise, ranking and best-worst annotation) are read: pairwise `selection` (A, B, tie) and
`scale_value` (below 0: A is better; the scale's ends are the strongest verdicts), ranking `rank_order` (`B,D=A,C`),
best-worst `best` and `worst` (those between tie), and likert `scale_N` in a scheme for each answer, named by its number
or letter at the end. Steps and edits have no form there.
"""

import re
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.common.tables import Record as Row
from tasks.extensions.labelling import rankings
from tasks.extensions.labelling.formats.imported_judgements import (
    PersonalJudgement,
    clean_person_name,
    compute_dense_ranks,
)
from tasks.extensions.labelling.measures.outcomes import SCALE, compute_signed_strength
from tasks.language.data import forms
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import Item, Mode, PairwiseValue, RankingValue, Value
from tasks.language.tables.preferences import LEVELS

LISTS = ("responses", "answers", "candidates", "options", "text")
BOTH_BAD = "both_bad"  # a scheme of our own, which Potato keeps as it is


def build_potato_rows(record: JudgementRecord) -> tuple[list[Row], dict[str, list[Row]]]:
    """The items that were judged as pairs or rankings, and by person what was said of them; repeats are left out."""
    annotations: dict[str, list[Row]] = defaultdict(list)
    items: dict[str, Row] = {}
    for line in record.judgements:
        item = record.items[line.item]
        if line.repeat == 0 and isinstance(line.value, PairwiseValue | RankingValue):
            items[item.item] = {
                "id": item.item,
                "prompt": forms.join_prompt(item.prompt, item.history) if item.history else item.prompt,
                "responses": [answer.text for answer in item.answers],
            }
            seconds = round(line.seconds)
            annotations[line.person].append(
                {
                    "id": item.item,
                    "displayed_text": _format_displayed_text(item),
                    "label_annotations": _build_label_annotations(line.value),
                    "span_annotations": {},
                    "behavioral_data": {
                        "time_string": f"Time spent: 0d {seconds // 3600}h {seconds // 60 % 60}m {seconds % 60}s "
                    },
                }
            )
    return [*items.values()], dict(annotations)


def _format_displayed_text(item: Item) -> str:
    names = rankings.get_answer_letters(len(item.answers))
    return "\n".join(
        [item.prompt, *(f"{name}. {answer.text}" for name, answer in zip(names, item.answers, strict=True))]
    )


def _build_label_annotations(value: PairwiseValue | RankingValue) -> Row:
    if isinstance(value, RankingValue):
        return {"ranking": {"rank_order": rankings.format_ranking(value.ranks).replace(" > ", ",").replace(" = ", "=")}}
    step = compute_signed_strength(value.strength)
    labels = {
        "preference": {"selection": "A" if step > 0 else "B" if step < 0 else "tie"},
        "preference_scale": {"scale_value": str(-step)},
    }
    return {**labels, **({BOTH_BAD: {"yes": "true"}} if value.strength == "both bad" else {})}


class PotatoItem(NamedTuple):
    """An item as Potato was given it."""

    name: str
    prompt: str
    history: str
    answers: list[str]


def parse_potato_item(row: Mapping[str, Any]) -> PotatoItem:
    """An item of its input; ValueError names the field at fault."""
    sides = [row.get("left"), row.get("right")]
    answers: list[Any] = next((row[name] for name in LISTS if isinstance(row.get(name), list)), sides)
    if len(answers) < 2 or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(
            f"expected a list of texts in {', '.join(LISTS)}, or left and right; got {forms.format_column_names(row)}"
        )
    name = next((name for name in ("prompt", "question", "instruction", "context") if row.get(name)), None)
    if name is None or row.get("id") is None:
        raise ValueError(
            "expected id, and a prompt in prompt, question, instruction or context; got "
            f"{forms.format_column_names(row)}"
        )
    return PotatoItem(
        str(row["id"]), *forms.split_prompt(forms.parse_text_or_messages(row[name], name, "user")), answers
    )


def parse_potato_annotation(
    row: Mapping[str, Any], items: Mapping[str, PotatoItem], who: str
) -> list[PersonalJudgement]:
    """A line of what a person said; nothing where no scheme is one of ours, as in the pages before and after the
    task.
    """
    name = str(row.get("id", row.get("instance_id")))
    labels = row.get("label_annotations")
    if not isinstance(labels, Mapping):
        raise ValueError(
            f"field 'label_annotations' is {type(labels).__name__}; expected an object, as Potato writes it"
        )
    schemes = {str(scheme): annotation for scheme, annotation in labels.items() if isinstance(annotation, Mapping)}
    item = items.get(name)
    judgement = None if item is None else _parse_judgement_value(schemes, len(item.answers))
    time = row.get("behavioral_data")
    seconds = _parse_time_string(str(time.get("time_string", ""))) if isinstance(time, Mapping) else 0.0
    judged_by = clean_person_name(row.get("user_id") or who)
    return [] if item is None or judgement is None else [PersonalJudgement(*item, *judgement, judged_by, seconds)]


def _parse_judgement_value(schemes: Mapping[str, Mapping[str, Any]], count: int) -> tuple[Mode, Value] | None:
    names = rankings.get_answer_letters(count)
    for annotation in schemes.values():
        if "rank_order" in annotation:
            return "ranking", RankingValue(
                ranks=rankings.parse_ranking(str(annotation["rank_order"]).replace(",", ">"), names)
            )
        if "best" in annotation and "worst" in annotation:
            return "ranking", RankingValue(
                ranks=_rank_best_and_worst(str(annotation["best"]), str(annotation["worst"]), names)
            )
    if count == 2:
        for annotation in sorted(
            schemes.values(), key=lambda rating: "scale_value" not in rating
        ):  # the scale says more
            if "scale_value" in annotation or "selection" in annotation:
                return "pairwise", PairwiseValue(
                    strength="both bad" if BOTH_BAD in schemes else _parse_strength(annotation)
                )
    ratings = _parse_likert_ratings(schemes, count)
    return (
        None
        if ratings is None
        else ("ranking", RankingValue(ranks=compute_dense_ranks([-rating for rating in ratings])))
    )


def _parse_strength(annotation: Mapping[str, Any]) -> str:
    if "scale_value" not in annotation:
        strengths = {"A": "a better", "B": "b better", "tie": "tie"}
        if annotation["selection"] not in strengths:
            raise ValueError(f"field 'selection' is {str(annotation['selection'])[:40]!r}; expected A, B or tie")
        return strengths[annotation["selection"]]
    try:
        step = round(float(annotation["scale_value"]))
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"field 'scale_value' is {str(annotation['scale_value'])[:40]!r}; expected a number") from None
    level = LEVELS[min(abs(step), SCALE) - 1]
    return f"{'a' if step < 0 else 'b'} {f'{level} better'.strip()}" if step else "tie"


def _rank_best_and_worst(best: str, worst: str, names: str) -> tuple[int, ...]:
    if best == worst or not {best, worst} <= set(names):
        raise ValueError(f"best is {best[:9]!r} and worst {worst[:9]!r}; expected two of {', '.join(names)}")
    return compute_dense_ranks([0 if name == best else 2 if name == worst else 1 for name in names])


def _parse_likert_ratings(schemes: Mapping[str, Mapping[str, Any]], count: int) -> Sequence[int] | None:
    """A number for each answer from likert schemes whose names end in the answer's number or letter."""
    ratings: dict[int, int] = {}
    for scheme, annotation in schemes.items():
        end = re.search(r"(?:^|[\W_])([A-Z]|\d+)$", scheme)
        rated = [int(match[1]) for label in annotation if (match := re.fullmatch(r"(?:scale_)?(\d{1,3})", str(label)))]
        if end is not None and len(rated) == 1:
            answer_index = int(end[1]) - 1 if end[1].isdigit() else string.ascii_uppercase.index(end[1])
            ratings[answer_index] = rated[0]
    return (
        [ratings[answer_index] for answer_index in range(count)]
        if set(ratings) == set(range(count)) and count > 1
        else None
    )


def _parse_time_string(text: str) -> float:
    match = re.search(r"(\d{1,6})d (\d{1,6})h (\d{1,6})m (\d{1,6})s", text)
    if match is None:
        return 0.0
    days, hours, minutes, seconds = map(int, match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
