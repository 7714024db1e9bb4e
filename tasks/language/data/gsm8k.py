"""Problems in GSM8K's form (arXiv:2110.14168), `{"question": .., "answer": "steps #### N"}`, from files or a hub."""

import json
import re
from pathlib import Path

from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.tables.problems import NUMBER

DIGITS = 100  # of an answer, at most; Python itself converts no more than 4,300


def read_jsonl(path: Path) -> list[Record]:
    """Rows of one GSM8K file, blank lines passed over; DataError with one line naming file, line and field."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected rows {{question, answer ending in '#### N'}}, one a line")
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):  # str.splitlines splits at U+2028 as well
        if line.strip():
            try:
                rows.append(from_gsm8k(json.loads(line), f"{path.stem}-{number - 1}"))
            except (ValueError, RecursionError) as error:  # of JSON and of UTF-8 too
                raise DataError(
                    f"{path}: line {number}: {error}; expected {{question, answer ending in '#### N'}}"
                ) from None
    return rows


def from_gsm8k(row: object, problem_id: str) -> Record:
    """One row of GSM8K as a row of Problems; ValueError naming the field where it is not one."""
    given: Record = row if isinstance(row, dict) else {}
    for field in ("question", "answer"):
        text = given.get(field)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"field '{field}' is not there, or is no text")
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise ValueError(f"field '{field}' has half a character (a surrogate), which no file can keep")
    steps, mark, answer = given["answer"].rpartition("#### ")
    if not mark:
        raise ValueError("field 'answer' has no '#### N'")
    answer = answer.strip().replace(",", "").lstrip("$")
    if not re.match(NUMBER, answer):
        raise ValueError(f"field 'answer' ends in '#### {' '.join(answer.split())[:DIGITS]}', which is no number")
    if len(answer) > DIGITS:
        raise ValueError(f"field 'answer' ends in a number of {len(answer)} characters, above {DIGITS}")
    steps = steps.strip()
    solution = f"{steps}\n#### {answer}" if steps else f"#### {answer}"
    return {
        "problem_id": problem_id,
        "question": given["question"].strip(),
        "solution": solution,
        "answer": answer,
        "steps": len(steps.splitlines()),
    }


def read_hub(name: str, config: str | None, revision: str, split: str) -> list[Record]:
    """Rows of one split of a hub data set in GSM8K's form, at a revision; DataError naming the row that is not."""
    from datasets import load_dataset

    splits = load_dataset(name, config, revision=revision)
    if split not in splits:
        raise DataError(f"{name}: there is no split {split!r}; expected {' or '.join(map(repr, splits))}")
    rows = []
    for number, row in enumerate(splits[split]):
        try:
            rows.append(from_gsm8k(row, f"{split}-{number}"))
        except ValueError as error:
            raise DataError(f"{name}: {split}, row {number}: {error}") from None
    return rows
