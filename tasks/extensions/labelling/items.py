"""What people are asked to judge, as items: responses of the pipeline, two policies' answers, or a file of one's own.

The answers of a prompt, equal texts once, are cut into items of as many answers as the mode and `answers` say; what is
left over, since two are needed to compare, makes no item.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.common import tables
from tasks.common.errors import DataError
from tasks.extensions.labelling import rankings
from tasks.language.data import forms, messages
from tasks.language.data.rows import Row, parse_row, read_files
from tasks.language.judgements.lines import MOST_ANSWERS, Answer, Item, Mode, compute_item_id, parse_line_object
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tasks.language.tables.solutions import split_steps

ANSWERS = ("responses", "answers", "completions")
ANSWER = ("response", "completion", "answer", "solution")
EXPECTED = f"prompt with {' or '.join(ANSWERS)}, prompt with {' or '.join(ANSWER)}, or prompt, chosen and rejected"


class AnsweredPrompt(NamedTuple):
    """A prompt with answers, before they are made items; a judgement that is expected of them, as the record keeps
    it.
    """

    prompt_id: str
    prompt: str
    history: str
    answers: tuple[Answer, ...]
    gold: Mapping[str, Any] | None


def load_answers_from_responses(folder: Path, source: str = "responses") -> list[AnsweredPrompt]:
    """What a policy sampled, by prompt, with its tokens: data/responses, or another folder with such a
    responses.parquet.
    """
    rows_by_prompt: dict[str, list[tables.Record]] = {}
    for row in tables.list_records(_read_stage_table(Responses, folder / "responses.parquet")):
        rows_by_prompt.setdefault(row["prompt_id"], []).append(row)
    return [
        AnsweredPrompt(
            prompt_id,
            rows[0]["prompt"],
            rows[0].get("history", ""),
            tuple(_iterate_sampled_answers(rows, source)),
            None,
        )
        for prompt_id, rows in rows_by_prompt.items()
    ]


def _iterate_sampled_answers(rows: Sequence[tables.Record], source: str) -> Iterator[Answer]:
    for row in sorted(rows, key=lambda row: int(row["sample"])):
        tokens = tuple(map(int, row["tokens"]))
        yield Answer(sample=row["sample"], source=source, text=row["response"], ended=row["ended"], tokens=tokens)


def load_answers_from_evaluations(first: Path, second: Path) -> list[AnsweredPrompt]:
    """An arena: two policies' answers to the same test problem at the same temperature, from folders
    data/evaluate/POLICY.

    A problem's greedy answers come first. The policies are named by their folders.
    """
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))
    sides = [_load_evaluated_answers(folder, name) for folder, name in zip((first, second), names, strict=True)]
    (prompts, ours), (prompts_of_second, theirs) = sides
    order = {problem: number for number, problem in enumerate(prompts)}
    common = sorted(ours.keys() & theirs.keys(), key=lambda key: (order[key[0]], *key[1:]))
    answered = [
        AnsweredPrompt(key[0], *prompts[key[0]], (ours[key], theirs[key]), None)
        for key in common
        if prompts[key[0]] == prompts_of_second[key[0]]
    ]
    if not answered:
        raise DataError(
            f"{first} and {second}: no problem that both policies answered; evaluate both on the same problems"
        )
    return answered


def _load_evaluated_answers(
    folder: Path, name: str
) -> tuple[dict[str, tuple[str, str]], dict[tuple[str, float, int], Answer]]:
    """Prompt and history of each problem, and the answers by problem, temperature and sample."""
    problems = tables.list_records(_read_stage_table(Problems, folder / "asked.parquet"))
    rows = tables.list_records(_read_stage_table(Generations, folder / "generations.parquet"))
    return {problem["problem_id"]: (problem["question"], problem.get("history", "")) for problem in problems}, {
        (row["problem_id"], row["temperature"], row["sample"]): Answer(
            sample=row["sample"], source=name, text=row["response"], ended=row["ended"], tokens=None
        )
        for row in rows
    }


def _read_stage_table(schema: type[tables.Table], path: Path) -> Any:
    if not path.is_file():
        raise DataError(f"{path}: no such file; run the stage that makes it first")
    return tables.read_table(schema, path)


def load_answers_from_files(path: Path) -> list[AnsweredPrompt]:
    """Rows of a file of one's own, or of all files of a folder (.jsonl, .json, .parquet), in one of the forms of
    EXPECTED.

    A prompt is text or messages. An answer is a text, or an object with `text` and, where they are known, `source`,
    `ended` and `tokens`. `gold` may have an expected judgement: a verdict such as `a better`, a ranking such as `B > A
    = C`, labels of steps, a text, or a value as in the record. DataError names file, line and field.
    """
    answered = [_parse_file_row(row) for row in read_files(path)]
    if not answered:
        raise DataError(f"{path}: no rows; expected {EXPECTED}")
    return answered


def _parse_file_row(row: Row) -> AnsweredPrompt:
    return parse_row(row, lambda values: _parse_answered_prompt(values, row.name))


def _parse_answered_prompt(row: Mapping[str, Any], name: str) -> AnsweredPrompt:
    if row.get("chosen") is not None and row.get("rejected") is not None:
        pair = forms.parse_preference_pair(row)
        prompt, history = forms.split_prompt(pair.prompt)
        sides = (
            ("chosen", messages.format_message_text(pair.chosen)),
            ("rejected", messages.format_message_text(pair.rejected)),
        )
        answers = [
            Answer(sample=n, source=side, text=text, ended=True, tokens=None) for n, (side, text) in enumerate(sides)
        ]
    elif row.get("prompt") is not None:
        prompt, history = forms.split_prompt(_parse_prompt_turns(row))
        answers = [_parse_answer(answer, number) for number, answer in enumerate(_list_row_answers(row))]
    else:
        raise ValueError(f"expected columns {EXPECTED}; got {forms.format_column_names(row)}")
    prompt_id = next((str(row[key]) for key in ("prompt_id", "id") if row.get(key) is not None), name)
    return AnsweredPrompt(
        prompt_id, prompt, history, tuple(answers), _parse_gold_judgement(row.get("gold"), len(answers))
    )


def _parse_prompt_turns(row: Mapping[str, Any]) -> forms.Conversation:
    turns = forms.parse_text_or_messages(row["prompt"], "prompt", "user")
    return (
        forms.join_history_and_prompt(forms.parse_conversation(row["history"], "history"), turns)
        if row.get("history")
        else turns
    )


def _list_row_answers(row: Mapping[str, Any]) -> list[object]:
    for name in ANSWERS:
        if row.get(name) is not None:
            if not isinstance(row[name], list):
                raise ValueError(f"field '{name}' is {type(row[name]).__name__}; expected a list of answers")
            return list(row[name])
    single = [row[name] for name in ANSWER if row.get(name) is not None]
    return single[:1]


def _parse_answer(value: object, number: int) -> Answer:
    fields = value if isinstance(value, Mapping) else {"text": value}
    defaults = {"sample": number, "source": "", "ended": True, "tokens": None}
    kept = {key: inner for key, inner in fields.items() if key in {*defaults, "text"} and inner is not None}
    try:
        return Answer.model_validate({**defaults, **kept})
    except ValueError:
        raise ValueError(
            f"answer {number} is {str(value)[:40]!r}; expected text, or an object with text, source, ended and tokens"
        ) from None


def _parse_gold_judgement(value: object, count: int) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, list):
        return {"labels": value}
    if isinstance(value, str) and ">" not in value and "=" not in value:
        return {"strength": value}
    return {"ranks": rankings.parse_ranking(str(value), rankings.get_answer_letters(count))}


def build_judgement_items(
    answered: Iterable[AnsweredPrompt], mode: Mode, answers: int, seed: int, per_prompt: int
) -> list[Item]:
    """Items of one mode, at most `per_prompt` of each prompt; `answers` in each of mode ranking and at most so many in
    edits.

    Which answers come together is drawn from the seed. A prompt with a gold judgement is one item, its answers as they
    are.
    """
    size = {"pairwise": 2, "steps": 1}.get(mode, min(answers, MOST_ANSWERS))
    by_prompt: dict[tuple[str, str], int] = {}
    items_by_id: dict[str, Item] = {}
    for answered_prompt in answered:
        key = (answered_prompt.prompt, answered_prompt.history)
        for group in (
            [answered_prompt.answers]
            if answered_prompt.gold is not None
            else _group_answers(answered_prompt, mode, size, seed)
        ):
            if answered_prompt.gold is None and by_prompt.get(key, 0) >= per_prompt:
                break
            item = _build_item(answered_prompt, group, mode)
            by_prompt[key] = by_prompt.get(key, 0) + (answered_prompt.gold is None and item.item not in items_by_id)
            items_by_id[item.item] = item
    if not items_by_id:
        raise DataError(f"no items of mode {mode}: expected prompts with {_describe_needed_answers(mode)}")
    return list(items_by_id.values())


def _group_answers(answered_prompt: AnsweredPrompt, mode: Mode, size: int, seed: int) -> list[tuple[Answer, ...]]:
    distinct = list({answer.text: answer for answer in reversed(answered_prompt.answers)}.values())[::-1]
    if mode == "steps":
        return [(answer,) for answer in distinct if split_steps(answer.text)]
    if mode == "edit":
        return [tuple(distinct[:size])]
    if len(distinct) > size:
        random.Random(f"{seed}\n{answered_prompt.prompt_id}").shuffle(distinct)
    groups = [tuple(distinct[start : start + size]) for start in range(0, len(distinct), size)]
    return [group for group in groups if len(group) == size or (mode == "ranking" and len(group) > 1)]


def _build_item(answered_prompt: AnsweredPrompt, answers: tuple[Answer, ...], mode: Mode) -> Item:
    fields = {
        "kind": "item",
        "item": compute_item_id(
            mode, answered_prompt.prompt, answered_prompt.history, [answer.text for answer in answers]
        ),
        "mode": mode,
        "prompt_id": answered_prompt.prompt_id,
        "prompt": answered_prompt.prompt,
        "history": answered_prompt.history,
        "answers": answers,
        **({"steps": split_steps(answers[0].text)} if mode == "steps" and answers else {}),
        "gold": answered_prompt.gold,
    }
    try:
        item = parse_line_object(fields)
    except ValueError as error:
        raise DataError(f"prompt {answered_prompt.prompt_id}: {error}") from None
    assert isinstance(item, Item)
    return item


def _describe_needed_answers(mode: Mode) -> str:
    return {"steps": "answers that have a line", "edit": "any answers or none"}.get(
        mode, "two answers or more that differ"
    )
