"""Suites from files: every suite's form in tiny rows, the real files where they are, and files that are wrong."""

import json
import math
from pathlib import Path

import pytest

from tasks.common.errors import ConfigError, StageError
from tasks.extensions.suites import prompting, reading, scoring
from tasks.extensions.suites.registry import SUITES
from tasks.language.rewards.verifier import Verifier
from tests import repository

SHARED = Path(__file__).parents[5] / "shared/data"
STEM = {"stem": "Where?", "choices": [{"label": "1", "text": "here"}, {"label": "2", "text": "there"}]}
# A row as each suite's files have it, with question, answer, level and subject as they are read.
FORMS = {
    "math500": (
        {"problem": "x?", "solution": "So \\boxed{7}.", "answer": "7", "level": 3, "subject": "Algebra"},
        ("x?", "7", "3", "Algebra"),
    ),
    "aime24": ({"problem": "x?", "question": "x?", "answer": "073", "solution": "..."}, ("x?", "073", "", "")),
    "aime25": ({"problem": "x?", "answer": "70", "solution": ""}, ("x?", "70", "", "")),
    "amc23": ({"question": "x?", "answer": 27.0}, ("x?", "27", "", "")),
    "minerva_math": (
        {"problem": "x?", "solution": "\\boxed{1} or \\boxed{1.6} cm", "type": "Optics"},
        ("x?", "1.6", "", "Optics"),
    ),
    "olympiadbench": (
        {"question": "x?", "final_answer": ["$69$,$84$"], "solution": ["a", "b"], "subfield": "Algebra"},
        ("x?", "69,84", "", "Algebra"),
    ),
    "gsm8k": ({"question": "x?", "answer": "3 + 4 = 7\n#### 1,007"}, ("x?", "1007", "", "")),
    "svamp": (
        {"Body": "Ann has 2.", "Question": "x?", "Answer": 2.5, "Type": "Sum"},
        ("Ann has 2. x?", "2.5", "", "Sum"),
    ),
    "arc_easy": ({"question": STEM, "answerKey": "B"}, ("Where?", "B", "", "")),
    "arc_challenge": (
        {"question": "Where?", "choices": {"text": ["here", "there"], "label": ["A", "B"]}, "answerKey": "B"},
        ("Where?", "B", "", ""),
    ),
}
SIZES = {"math500": 500, "aime24": 30, "aime25": 30, "amc23": 40, "minerva_math": 272, "olympiadbench": 675}
SIZES |= {"gsm8k": 1319, "svamp": 1000, "arc_easy": 2365, "arc_challenge": 1165}


def written(folder, name, text):
    path = folder / f"{SUITES[name].file}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


@pytest.mark.parametrize("name", FORMS)
def test_each_suite_s_form_is_read(tmp_path, name):
    row, expected = FORMS[name]
    written(tmp_path, name, row)
    [found] = reading.load_suite_problems(name, tmp_path, None)
    assert (found.question, found.answer, found.level, found.subject) == expected


@pytest.mark.parametrize(
    ("labels", "key", "letter"),
    [
        ("ABCD", "C", "C"),
        ("1234", "3", "C"),
        ("1234", 3, "C"),
        ("1234", "C", "C"),
        ("0123", "2", "C"),
        ("0123", 0, "A"),
        ("abcd", "c", "C"),
        ("BADC", "D", "C"),
        ("12345", "5", "E"),
        ("123", "1", "A"),
    ],
)
def test_choices_stand_behind_letters_whatever_their_labels_are(tmp_path, labels, key, letter):
    """As in arc_challenge_chat: the prompt asks for a letter, and the letter of the right choice is right."""
    texts = ["hen", "ant", "trout", "mole", "wasp"][: len(labels)]
    row = {"question": "Which?", "choices": {"text": texts, "label": [*labels]}, "answerKey": key}
    written(tmp_path, "arc_easy", row)
    [found] = reading.load_suite_problems("arc_easy-text", tmp_path, None)
    assert [text for _, text in found.choices] == texts
    assert "".join(own for own, _ in found.choices) == "ABCDE"[: len(labels)]
    assert found.answer == letter
    prompt = prompting.fill_template(SUITES["arc_easy-text"].prompt.question, found)
    assert f"\nA. hen\nB. ant\nC. trout{''.join(['', chr(10) + 'D. mole'][len(labels) > 3])}" in prompt
    right, _ = scoring.judge_extracted_answers(
        SUITES["arc_easy-text"], [found] * 3, [letter, str(key), "Z"], None, "bare letter"
    )
    assert right == [True, str(key) == letter, False]


def test_every_suite_is_there_by_its_form():
    """Conventions of one suite read one file."""
    assert {SUITES[name].file for name in FORMS} == {suite.file for suite in SUITES.values()}


@pytest.mark.parametrize("name", SIZES)
def test_the_real_files_are_read_whole(name):
    if not SHARED.is_dir():
        pytest.skip(repository.needs("data"))
    assert len(reading.load_suite_problems(name, SHARED, None)) == SIZES[name]


@pytest.mark.slow
def test_references_hold_themselves_to_be_right():
    """But for 3 of Minerva Math's 272: of answers that are several equations or words, math-verify reads only a
    part.
    """
    if not SHARED.is_dir():
        pytest.skip(repository.needs("data"))
    with Verifier() as verifier:
        readable = scoring.judge_reference_answers(
            SUITES["minerva_math"], reading.load_suite_problems("minerva_math", SHARED, None), verifier
        )
    assert (len(readable), readable.count(False)) == (272, 3)


GOOD = {"problem": "x?", "answer": "1"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (json.dumps({"answer": "1"}), "line 1: expected a column problem or question; got answer"),
        (json.dumps({"problem": "x?"}), "line 1: expected a column answer with a value; got problem"),
        (
            json.dumps({"problem": "x?", "answer": None}),
            "line 1: expected a column answer with a value; got problem, answer",
        ),
        (json.dumps({"problem": 3, "answer": "1"}), "line 1: field 'problem' is "),
        (json.dumps({"problem": " ", "answer": "1"}), "line 1: field 'problem' is "),
        (
            json.dumps({"problem": "x?", "answer": True}),
            "line 1: field 'answer' is bool True; expected a text or a number",
        ),
        (
            json.dumps({"problem": "x?", "answer": {"a": 1}}),
            "line 1: field 'answer' is dict {'a': 1}; expected a text or",
        ),
        (
            json.dumps({"problem": "x?", "answer": []}),
            r"line 1: field 'answer' is list \[\]; expected a text or a number",
        ),
        (json.dumps({"problem": "x?", "answer": " "}), "line 1: field 'answer' holds no answer"),
        (
            json.dumps({"problem": "x?", "answer": math.nan}),
            "line 1: field 'answer' is float nan; expected a text or a number",
        ),
        (
            json.dumps({"problem": "x?", "answer": math.inf}),
            "line 1: field 'answer' is float inf; expected a text or a number",
        ),
        (f"{json.dumps(GOOD)}\n\n{json.dumps(GOOD)}", "line 3: asks the same as .*line 1; expected each problem once"),
        (
            json.dumps({"problem": "x" * 10**6, "answer": "1"}),
            "line 1: field 'problem' has 1,000,000 characters; expected",
        ),
        (
            json.dumps({"problem": "x?", "answer": ["1"] * 10**5}),
            "line 1: field 'answer' has 500,000 characters; expected",
        ),
        ("[1]", "line 1: expected an object with columns, got list"),
        ("{", "line 1: expected JSON"),
        ("", "suite math500: there are no problems in math500/test"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, line):
    written(tmp_path, "math500", text)
    with pytest.raises(StageError, match=line) as caught:
        reading.load_suite_problems("math500", tmp_path, None)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "row", "line"),
    [
        ("gsm8k", {"question": "x?", "answer": "7"}, None),
        ("gsm8k", {"question": "x?", "answer": "#### 7, 8"}, "field 'answer' does not end in '#### N'"),
        ("gsm8k", {"question": "x?", "answer": "#### seven"}, "field 'answer' does not end in '#### N'"),
        ("minerva_math", {"problem": "x?", "solution": "no box"}, "field 'solution' holds no answer"),
        ("svamp", {"Body": "Ann", "Answer": 1.0}, "field 'Question' is "),
        (
            "arc_easy",
            {"question": "Where?", "choices": {"text": ["a", "b"], "label": ["1", "1"]}, "answerKey": "1"},
            "the labels of the choices are 1, 1; expected each once",
        ),
        (
            "arc_easy",
            {"question": "Where?", "choices": {"text": ["a"] * 27, "label": [*range(27)]}, "answerKey": "1"},
            "there are 27 choices; expected at most 26, a letter for each",
        ),
        ("arc_easy", {"question": "Where?", "answerKey": "A"}, "expected choices with labels and texts; got "),
        ("arc_easy", {"question": STEM, "answerKey": "C"}, "field 'answerKey' is 'C'; expected one of 1, 2"),
        ("arc_easy", {"question": {**STEM, "choices": 3}, "answerKey": "A"}, "field 'choices' is int; expected texts"),
    ],
)
def test_a_row_of_another_form_is_told(tmp_path, name, row, line):
    written(tmp_path, name, row)
    if line is None:
        assert reading.load_suite_problems(name, tmp_path, None)[0].answer == "7"
        return
    with pytest.raises(StageError, match=line):
        reading.load_suite_problems(name, tmp_path, None)


@pytest.mark.parametrize("revision", ["main", "v1.0", "0123abc", "0" * 39, "g" * 40, "0" * 40 + "\n"])
def test_the_hub_is_asked_for_a_commit_only(tmp_path, revision):
    with pytest.raises(ConfigError, match="expected a commit of HuggingFaceH4/MATH-500, 40 hexadecimal digits"):
        reading.load_suite_problems("math500", tmp_path, revision)


def test_rows_of_the_hub_are_read_as_those_of_files(tmp_path, monkeypatch):
    """What the hub's library gives for the entry's data set at the commit."""
    asked = []

    def rows(*given):
        asked.append(given)
        yield reading.Row({"problem": "x?", "answer": "1"}, "test-0", "HuggingFaceH4/MATH-500: test, row 0")

    monkeypatch.setattr(reading, "fetch_hub_rows", rows)
    [found] = reading.load_suite_problems("math500", tmp_path, "a" * 40)
    assert (found.problem_id, found.answer) == ("test-0", "1")
    assert asked == [("HuggingFaceH4/MATH-500", None, "a" * 40, "test")]


def test_examples_are_the_first_rows_of_their_file(tmp_path):
    path = tmp_path / "gsm8k/train.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(json.dumps({"question": f"{n}?", "answer": f"#### {n}"}) for n in range(3)))
    assert [one.question for one in reading.load_suite_examples("gsm8k", tmp_path, 2)] == ["0?", "1?"]
    assert reading.load_suite_examples("gsm8k", tmp_path / "nowhere", 0) == []
    with pytest.raises(StageError, match="gsm8k/train has 3 examples; expected 4 for as many shots"):
        reading.load_suite_examples("gsm8k", tmp_path, 4)
