"""The forms in which people keep problems and other prompts, told apart by their columns: GSM8K, MATH, multiple choice,
...

GSM8K's rows (arXiv:2110.14168) hold steps and answer in one text, `steps #### N`. In all other forms a reference
solution and a reference answer may stand in columns of their own, or be absent where the reward or the measure needs
none.
"""

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.language.data import forms, messages
from tasks.language.data.columns import Omissions
from tasks.language.data.rows import Row, parse_row
from tasks.language.rewards import answers, numerals

DIGITS = 100  # of an answer in GSM8K's form, at most; Python itself converts no more than 4,300
MARK = "#### "
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of choices without labels
QUESTIONS = ("question", "problem", "prompt", "instruction", "query", "text")
SOLUTIONS = ("solution", "response", "completion", "output", "chosen", "code", "canonical_solution")
ANSWERS = ("answer", "final_answer", "Answer", "answerKey", "answer_key", "ground_truth")


def parse_problems(rows: Iterable[Row], needed_by: str = "") -> list[Record]:
    """Rows of Problems; DataError naming file, line and field. Where the first row is in GSM8K's form, all have to be.

    If some reward `needed_by` needs an answer, each row has to have one. Keys of messages that are not read are a line
    on standard error.
    """
    problems: list[Record] = []
    gsm8k = False
    omissions = Omissions()
    for row in rows:
        if not problems:
            gsm8k = is_gsm8k_row(row.values)
        unread: set[str] = set()
        form = parse_gsm8k_row if gsm8k else partial(parse_general_problem, unread=unread)
        problems.append({"problem_id": row.name, **parse_row(row, form)})
        omissions.unread.update(unread)
        if needed_by and not problems[-1]["answer"]:
            raise DataError(f"{row.where}: there is no answer, which {needed_by} needs; expected a column answer")
    for line in omissions.lines("prompts"):
        print(line, file=sys.stderr, flush=True)
    return problems


def build_problem_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells a prompt from others: its question, and the turns before it, spaces aside."""
    return forms.build_prompt_key(row["question"], row.get("history", ""))


def check_skip(section: str, skip: int, available: int) -> None:
    """ConfigError where a section passes over as many training problems as there are, or more."""
    if skip >= available:
        raise ConfigError(
            f"params.yaml: {section}.skip: expected less than the {available:,} training problems that "
            f"there are, got {skip}"
        )


def is_gsm8k_row(row: Mapping[str, Any]) -> bool:
    """Whether a row has a text `answer` with the mark, and no other form's columns."""
    return isinstance(row.get("answer"), str) and MARK in row["answer"] and "solution" not in row


def parse_gsm8k_row(row: Mapping[str, Any]) -> Record:
    """One row of GSM8K; ValueError naming the field where it is not one."""
    question = forms.get_required_text(row, "question")
    steps, mark, answer = forms.get_required_text(row, "answer").rpartition(MARK)
    if not mark:
        raise ValueError("field 'answer' has no '#### N'; expected it as in the first row")
    written = answers.strip_number_wrapping(answer)
    number = numerals.parse_number_parts(written)
    if number is None and len(written) <= DIGITS:
        raise ValueError(f"field 'answer' ends in '#### {' '.join(answer.split())[:DIGITS]}', which is no number")
    answer = written if number is None else number.plain
    if len(answer) > DIGITS:
        raise ValueError(f"field 'answer' ends in a number of {len(answer)} characters, above {DIGITS}")
    steps = steps.strip()
    solution = f"{steps}\n#### {answer}" if steps else f"#### {answer}"
    return _build_problem_record(
        row, ("question", "answer"), [forms.make_user_turn(question)], solution, answer, len(steps.splitlines())
    )


def parse_general_problem(row: Mapping[str, Any], unread: set[str] | None = None) -> Record:
    """One row of any other form.

    A reference that is absent is an empty text; keys of messages that are not read go to `unread`.
    """
    used, prompt, solution = _parse_prompt(row, set() if unread is None else unread)
    if not solution and (name := _find_text_column(row, SOLUTIONS)):
        solution = row[name].strip()
        used = (*used, name)
    name = next((name for name in ANSWERS if row.get(name) not in (None, "") and name not in used), "")
    answer = answers.find_last_boxed_text(solution) or ""
    judged = row.get("reward_model")
    if not name and isinstance(judged, Mapping) and judged.get("ground_truth") is not None:  # verl's rows
        answer = _parse_answer(judged["ground_truth"], "reward_model.ground_truth")
    elif name:
        choices = parse_choices(row)
        answer = get_choice_label(row[name], name, choices) if choices else _parse_answer(row[name], name)
    return _build_problem_record(row, (*used, name), prompt, solution, answer, len(solution.splitlines()))


def _parse_prompt(row: Mapping[str, Any], unread: set[str]) -> tuple[tuple[str, ...], forms.Conversation, str]:
    """The columns that hold the prompt, the prompt, and the reference response where the same columns hold one."""
    if (name := next((name for name in forms.TURNS if row.get(name) not in (None, "")), None)) is not None:
        turns = forms.parse_conversation(row[name], name, unread)
        answer = turns.pop() if turns[-1]["role"] == "assistant" else {}
        solution = answer.get("content") or messages.format_message_text(
            answer
        )  # a call alone is read as a person reads it
        return (name,), turns, solution
    if "Body" in row and "Question" in row:  # SVAMP
        body = forms.get_required_text(row, "Body")
        return ("Body", "Question"), [forms.make_user_turn(f"{body} {forms.get_required_text(row, 'Question')}")], ""
    name = next((name for name in QUESTIONS if row.get(name) is not None), None)
    if name is None:
        raise ValueError(
            f"expected a column {', '.join((*QUESTIONS, *forms.TURNS))}; got {forms.format_column_names(row)}"
        )
    question: Any = row[name]
    if isinstance(question, Mapping):  # ARC's own files
        question = question.get("stem")
    if name == "instruction":
        return (name, "input"), [forms.build_instruction_turn(row)], ""
    if choices := parse_choices(row):
        lines = [forms.get_required_text({name: question}, name), *(f"{label}. {text}" for label, text in choices)]
        return (
            (name, "choices" if row.get("choices") is not None else "options"),
            [forms.make_user_turn("\n".join(lines))],
            "",
        )
    prompt = forms.parse_text_or_messages(
        question.strip() if isinstance(question, str) else question, name, "user", unread
    )
    if isinstance(history := row.get("history"), str) and history:  # as our own tables keep it
        prompt = forms.join_history_and_prompt(forms.parse_conversation(history, "history"), prompt)
    return (name, "history"), prompt, ""


def parse_choices(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Labels and texts of a multiple choice: from lists of both, a list of pairs, texts by label, or texts alone.

    No choices: it is none.
    """
    question = row.get("question")
    holder = question if isinstance(question, Mapping) else row
    choices: Any = holder.get("choices")
    if choices is None and _has_choice_texts(holder.get("options")):
        choices = holder["options"]
    if choices is None:
        return []
    if isinstance(choices, Mapping) and isinstance(choices.get("label"), list):
        labels = choices["label"]
        texts = choices.get("text") or []
        if len(labels) != len(texts):
            raise ValueError(f"field 'choices' has {len(labels)} labels and {len(texts)} texts; expected as many")
        return [(str(label), str(text)) for label, text in zip(labels, texts, strict=True)]
    if isinstance(choices, Mapping) and choices and all(isinstance(text, str) for text in choices.values()):
        return [(str(label), text) for label, text in choices.items()]
    if isinstance(choices, list) and all(
        isinstance(choice, Mapping) and {"label", "text"} <= {*choice} for choice in choices
    ):
        return [(str(choice["label"]), str(choice["text"])) for choice in choices]
    if (
        isinstance(choices, list)
        and len(choices) <= len(LETTERS)
        and all(isinstance(choice, str) for choice in choices)
    ):
        return _label_choices_by_letter(choices)
    raise ValueError(f"field 'choices' is {type(choices).__name__}; expected texts, or labels with texts")


def _has_choice_texts(options: object) -> bool:
    """Whether a column `options`, which may hold anything, has the texts of choices, by letters or alone."""
    by_letter = isinstance(options, Mapping) and options and (*options,) == (*LETTERS[: len(options)],)
    return bool(by_letter) or (
        isinstance(options, list) and len(options) > 1 and all(isinstance(option, str) for option in options)
    )


def _label_choices_by_letter(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Texts with the letters from A on; those that begin with them, as `A)21`, without what stands there."""
    matches = [
        re.fullmatch(rf"\(?{letter}[).:] ?(.+)", text, re.DOTALL) for letter, text in zip(LETTERS, texts, strict=False)
    ]
    plain = [match[1] for match in matches if match]
    return list(zip(LETTERS, plain if len(plain) == len(texts) else texts, strict=False))


def _parse_answer(value: object, field: str) -> str:
    if isinstance(value, list) and value and not isinstance(value[0], list | dict):
        return ", ".join(_parse_answer(part, field) for part in value)
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int | float)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise ValueError(f"field '{field}' is {type(value).__name__} {str(value)[:40]}; expected a text or a number")
    return str(value).strip()


def get_choice_label(value: object, field: str, choices: list[tuple[str, str]]) -> str:
    """The label of the right choice, which is given by its label, its letter, its text, or its place from 0 on
    (MMLU).
    """
    labels, texts = zip(*choices, strict=True)
    answer = _parse_answer(value, field)
    if answer in labels:
        return answer
    if isinstance(value, int) and labels == (*LETTERS[: len(labels)],) and 0 <= value < len(labels):
        return LETTERS[value]
    if answer in (*LETTERS[: len(labels)],):
        return str(labels[LETTERS.index(answer)])
    if answer in texts:
        return str(labels[texts.index(answer)])
    raise ValueError(f"field '{field}' is {' '.join(answer.split())[:40]!r}; expected one of {', '.join(labels)[:40]}")


def _find_text_column(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if isinstance(row.get(name), str) and row[name].strip()), None)


def _build_problem_record(
    row: Mapping[str, Any], used: tuple[str, ...], prompt: forms.Conversation, solution: str, answer: str, steps: int
) -> Record:
    prompt = forms.add_system_and_tools(row, [forms.remove_weight(turn) for turn in prompt])
    question, history = forms.split_prompt(prompt)
    others = {name: value for name, value in row.items() if name not in used}
    return {
        "question": question,
        "solution": solution,
        "answer": answer,
        "steps": steps,
        "history": history,
        "columns": json.dumps(others, ensure_ascii=False, default=str) if others else "",
    }


def drop_empty_columns(rows: list[Record]) -> list[Record]:
    """The rows without `history` and `columns` where no row has any: tables have these columns only where they say
    something.
    """
    empty = [name for name in ("history", "columns") if not any(row.get(name) for row in rows)]
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]
