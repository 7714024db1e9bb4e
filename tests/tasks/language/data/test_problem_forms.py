import json

import datasets
import pytest
from tasks.language.data.gsm8k import from_gsm8k, read_hub, read_jsonl

from tasks.common.errors import StageError

ROW = {"question": "How many are 2 and 1?", "answer": "2 + 1 = 3\n#### 3"}


@pytest.mark.parametrize(
    ("answer", "solution", "number", "steps"),
    [
        ("Half is 3.\nSo 6.\n#### 6", "Half is 3.\nSo 6.\n#### 6", "6", 2),
        ("It costs a lot.\n#### $1,250", "It costs a lot.\n#### 1250", "1250", 1),
        ("#### -7", "#### -7", "-7", 0),
        ("2.50 each\n####  2.5 ", "2.50 each\n#### 2.5", "2.5", 1),
    ],
)
def test_a_row_of_gsm8k(answer, solution, number, steps):
    row = from_gsm8k({"question": " Why? ", "answer": answer}, "test-3")
    assert row == {"problem_id": "test-3", "question": "Why?", "solution": solution, "answer": number, "steps": steps}


GOOD = json.dumps(ROW)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"question": "Why?"', "line 3: Expecting ',' delimiter"),
        ("[1, 2]", "line 3: field 'question' is not there, or is no text"),
        ('{"question": "Why?"}', "line 3: field 'answer' is not there, or is no text"),
        ('{"answer": "#### 3"}', "line 3: field 'question' is not there, or is no text"),
        ('{"question": "Why?", "answer": 3}', "line 3: field 'answer' is not there, or is no text"),
        ('{"question": "  ", "answer": "#### 3"}', "line 3: field 'question' is not there, or is no text"),
        ('{"question": "Why?", "answer": "three"}', "line 3: field 'answer' has no '#### N'"),
        ('{"question": "Why?", "answer": "#### three"}', "line 3: field 'answer' ends in '#### three'"),
        ('{"question": "Why?", "answer": "#### th\\nree"}', "line 3: field 'answer' ends in '#### th ree'"),
        (f'{{"question": "Why?", "answer": "#### {"9" * 5000}"}}', "line 3: field 'answer' ends in a number of 5000"),
        ('{"question": "Why \\ud800?", "answer": "#### 3"}', "line 3: field 'question' has half a character"),
        ('{"question": "Why?", "answer": "\\udfff#### 3"}', "line 3: field 'answer' has half a character"),
        ("[" * 100_000, "line 3: maximum recursion depth exceeded"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    file = tmp_path / "train.jsonl"
    file.write_text(f"{GOOD}\n\n{line}\n")
    with pytest.raises(StageError) as stopped:
        read_jsonl(file)
    message = str(stopped.value)
    assert message.startswith(f"{file}: {said}")
    assert "\n" not in message
    assert message.endswith("; expected {question, answer ending in '#### N'}")
    assert len(message) < 400


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / "train.jsonl").write_bytes(GOOD.encode() + b'\n{"question": "\xff"}\n')
    with pytest.raises(StageError, match=r"train\.jsonl: line 2: 'utf-8' codec can't decode"):
        read_jsonl(tmp_path / "train.jsonl")


def test_rows_are_named_by_their_place_in_the_file(tmp_path):
    (tmp_path / "sums.jsonl").write_text(f"{GOOD}\n\n{GOOD}\n")
    assert [row["problem_id"] for row in read_jsonl(tmp_path / "sums.jsonl")] == ["sums-0", "sums-2"]


def test_a_hub_data_set_is_read_at_a_revision_and_its_bad_row_named(monkeypatch):
    asked, splits = [], {"train": [ROW, ROW], "test": [ROW, {"question": "Why?", "answer": "because"}]}

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return splits

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert [row["problem_id"] for row in read_hub("some/sums", "main", "abc", "train")] == ["train-0", "train-1"]
    assert asked == [(("some/sums", "main"), {"revision": "abc"})]
    with pytest.raises(StageError, match=r"^some/sums: test, row 1: field 'answer' has no '#### N'$"):
        read_hub("some/sums", "main", "abc", "test")
