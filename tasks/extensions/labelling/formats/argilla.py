"""Argilla's records as JSON: what `dataset.records.to_json` writes in Argilla 2, and the records of a FeedbackDataset
(Argilla 1).

A record has `fields`, of which `prompt` (or PROMPTS) is asked and all other texts are answers, in their order; a prompt
with turns before it is a list of messages (ChatField). In Argilla 2 `responses` are by question, `{"ranking":
[{"value": .., "user_id": ..}]}`; in Argilla 1 a list with `user_id`, `status` and `values`, of which the submitted ones
count. Suggestions are a model's guesses and are left out.

Questions are told apart by their values. RankingQuestion: field names, best first (Argilla 2, which has no ties), or
`{"value": name, "rank": n}` (Argilla 1). LabelQuestion: a verdict of the record, such as `a slightly better`, or the
name of the better field. RatingQuestion: one for each answer, named FIELD-rating, the more the better. Written are,
besides, `place-N` (the answer's rank, since ties have no other place in Argilla 2), `helpful-N`, `truthful-N`,
`harmless-N`, `step-N` (good, neutral, bad) and `edit` (TextQuestion).
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.common.tables import Record as Row
from tasks.extensions.labelling.formats.imported_judgements import (
    PersonalJudgement,
    clean_person_name,
    compute_dense_ranks,
)
from tasks.language.data import forms
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import (
    CRITERIA,
    VERDICTS,
    EditValue,
    Item,
    Mode,
    PairwiseValue,
    RankingValue,
    StepsValue,
    Value,
)
from tasks.language.tables.solutions import split_steps

PROMPTS = ("prompt", "instruction", "question", "input", "context")
STEP_LABELS = {"good": 1, "neutral": 0, "bad": -1}


def build_argilla_records(record: JudgementRecord) -> list[Row]:
    """A record of Argilla 2 for each item that was judged; people are UUIDs that follow from their names, which the
    metadata tell.
    """
    judged = defaultdict(list)
    for line in record.judgements:
        if line.repeat == 0:
            judged[line.item].append(line)
    return [
        _build_argilla_record(record.items[item], {line.person: line.value for line in lines})
        for item, lines in judged.items()
    ]


def _build_argilla_record(item: Item, values: Mapping[str, Value]) -> Row:
    prompt = forms.join_prompt(item.prompt, item.history) if item.history else item.prompt
    names = [f"response-{number}" for number, _ in enumerate(item.answers, start=1)]
    users = {who: str(uuid.uuid5(uuid.NAMESPACE_URL, who)) for who in values}
    responses = defaultdict(list)
    for who, value in values.items():
        for question, answer in _build_question_answers(value, names).items():
            responses[question].append({"value": answer, "user_id": users[who]})
    people = json.dumps({user: who for who, user in users.items()}, ensure_ascii=False)
    return {
        "id": item.item,
        "fields": {"prompt": prompt, **dict(zip(names, (answer.text for answer in item.answers), strict=True))},
        "metadata": {"prompt_id": item.prompt_id, "mode": item.mode, "people": people},
        "suggestions": {},
        "responses": dict(responses),
        "vectors": {},
    }


def _build_question_answers(value: Value, names: list[str]) -> Row:
    """What a judgement answers to each question."""
    match value:
        case PairwiseValue(strength=strength):
            return {"better": strength}
        case StepsValue(labels=labels):
            words = {label: word for word, label in STEP_LABELS.items()}
            return {f"step-{n}": words[label] for n, label in enumerate(labels, start=1) if label is not None}
        case EditValue(text=text, start=start):
            return {"edit": text, **({} if start is None else {"edit-from": names[start]})}
    ranks = {f"place-{n}": rank for n, rank in enumerate(value.ranks, start=1)}
    scores = {
        f"{name}-{n}": getattr(answer_scores, name)
        for n, answer_scores in enumerate(value.scores or (), start=1)
        if answer_scores is not None
        for name in CRITERIA
    }
    strict = len(set(value.ranks)) == len(names)
    order = [name for _, name in sorted(zip(value.ranks, names, strict=True))]
    return {**({"ranking": order} if strict else {}), **ranks, **scores}


def parse_argilla_record(row: Mapping[str, Any], name: str) -> Iterator[PersonalJudgement]:
    """The judgements in a record of either version; ValueError names the field at fault."""
    fields = _get_object_field(row, "fields")
    metadata = row.get("metadata") or {}
    prompt_field = next((field for field in PROMPTS if field in fields), None)
    if prompt_field is None:
        raise ValueError(
            f"field 'fields' has {', '.join(map(str, fields)) or 'nothing'}; expected one of {', '.join(PROMPTS)}"
        )
    prompt = forms.split_prompt(forms.parse_text_or_messages(fields[prompt_field], prompt_field, "user"))
    texts = {field: text for field, text in fields.items() if field != prompt_field and isinstance(text, str)}
    people_json = metadata.get("people") if isinstance(metadata, Mapping) else None
    people = json.loads(people_json) if isinstance(people_json, str) and people_json.startswith("{") else {}
    named = str(row.get("id") or row.get("external_id") or name)
    prompt_id = str(metadata.get("prompt_id") or named) if isinstance(metadata, Mapping) else named
    for user, answers in _group_answers_by_user(row.get("responses")).items():
        judgement = _parse_judgement_value(answers, texts)
        if judgement is not None:
            mode, value = judgement
            yield PersonalJudgement(
                prompt_id, *prompt, [*texts.values()], mode, value, clean_person_name(people.get(user, user)), 0.0
            )


def _get_object_field(row: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    if not isinstance(row.get(field), Mapping):
        raise ValueError(
            f"field '{field}' is {type(row.get(field)).__name__}; expected an object, as in Argilla's records"
        )
    mapping: Mapping[str, Any] = row[field]
    return mapping


def _group_answers_by_user(responses: object) -> dict[str, dict[str, Any]]:
    """What each user answered to each question."""
    by_user: dict[str, dict[str, Any]] = defaultdict(dict)
    try:
        if isinstance(responses, Mapping):
            for question, answers in responses.items():
                for response in answers:
                    by_user[str(response["user_id"])][question] = response["value"]
        for response in responses if isinstance(responses, list) else ():
            if response.get("status", "submitted") == "submitted":
                by_user[str(response["user_id"])] |= {
                    question: answer["value"] for question, answer in response["values"].items()
                }
    except (AttributeError, KeyError, TypeError):
        raise ValueError("field 'responses' has an answer without user_id and value; expected Argilla's form") from None
    return by_user


def _parse_judgement_value(answers: Mapping[str, Any], texts: Mapping[str, str]) -> tuple[Mode, Value] | None:
    """The judgement that a user's answers are; None if none of the questions is one of ours."""
    names = [*texts]
    if "edit" in answers:
        start = names.index(answers["edit-from"]) if answers.get("edit-from") in names else None
        return "edit", EditValue.model_validate({"text": answers["edit"], "from": start})
    if (steps := _parse_step_labels(answers, texts)) is not None:
        return "steps", steps
    if (ranks := _parse_ranks(answers, names)) is not None:
        scores = [_parse_criterion_scores(answers, number) for number, _ in enumerate(names, start=1)]
        return "ranking", RankingValue.model_validate({"ranks": ranks, "scores": scores if any(scores) else None})
    if len(names) == 2:
        for label in answers.values():
            if label in VERDICTS or label in names:
                strength = label if label in VERDICTS else f"{'ab'[names.index(label)]} better"
                return "pairwise", PairwiseValue(strength=strength)
    return None


def _parse_step_labels(answers: Mapping[str, Any], texts: Mapping[str, str]) -> StepsValue | None:
    if len(texts) != 1 or "step-1" not in answers:
        return None
    count = len(split_steps(next(iter(texts.values()))))
    return StepsValue(labels=tuple(STEP_LABELS.get(answers.get(f"step-{n}", "")) for n in range(1, count + 1)))


def _parse_ranks(answers: Mapping[str, Any], names: list[str]) -> tuple[int, ...] | None:
    """From places, a ranking with or without ties, or a rating of each answer."""
    stated_ranks = [answers.get(f"place-{number}") for number, _ in enumerate(names, start=1)]
    if names and all(isinstance(rank, int) for rank in stated_ranks):
        return compute_dense_ranks([rank for rank in stated_ranks if rank is not None])
    for value in answers.values():
        if isinstance(value, list) and value:
            ranked = {
                choice["value"] if isinstance(choice, Mapping) else choice: choice.get("rank", n)
                if isinstance(choice, Mapping)
                else n
                for n, choice in enumerate(value, start=1)
            }
            if set(ranked) != set(names):
                raise ValueError(
                    f"a ranking of {', '.join(map(str, ranked))[:80]}; expected the fields {', '.join(names)}"
                )
            return compute_dense_ranks([ranked[name] for name in names])
    ratings = [answers.get(f"{name}-rating") for name in names]
    negated_ratings = [-rating for rating in ratings if isinstance(rating, int)]
    return compute_dense_ranks(negated_ratings) if len(negated_ratings) == len(names) > 1 else None


def _parse_criterion_scores(answers: Mapping[str, Any], number: int) -> Row | None:
    scores = {name: answers.get(f"{name}-{number}") for name in CRITERIA}
    return scores if None not in scores.values() else None
