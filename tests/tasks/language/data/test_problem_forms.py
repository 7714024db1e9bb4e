"""Problems in other people's forms: each form's question, solution, answer, history and further columns by hand."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common.errors import StageError
from tasks.language.data import forms
from tasks.language.data.problem_forms import (
    LETTERS,
    drop_empty_columns,
    is_gsm8k_row,
    parse_general_problem,
    parse_gsm8k_row,
    parse_problems,
)
from tasks.language.data.rows import Row, read_files
from tests import repository

ROW = {"question": "How many are 2 and 1?", "answer": "2 + 1 = 3\n#### 3"}
NONE = {"history": "", "columns": ""}
SHARED = Path(__file__).parents[5] / "shared/data"
SYSTEM = {"role": "system", "content": "Be brief."}


def of(rows):
    return [Row(row, f"x-{number}", f"x.jsonl: line {number + 1}") for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("answer", "solution", "number", "steps"),
    [
        ("Half is 3.\nSo 6.\n#### 6", "Half is 3.\nSo 6.\n#### 6", "6", 2),
        ("It costs a lot.\n#### $1,250", "It costs a lot.\n#### 1250", "1250", 1),
        ("#### -7", "#### -7", "-7", 0),
        ("2.50 each\n####  2.5 ", "2.50 each\n#### 2.5", "2.5", 1),
        ("#### 1.2e3", "#### 1200", "1200", 0),
        ("#### \u22121\u202f250.50", "#### -1250.50", "-1250.50", 0),
        ("#### 3 \\times 10^{-2}.", "#### 0.03", "0.03", 0),
    ],
)
def test_a_row_of_gsm8k(answer, solution, number, steps):
    row = parse_gsm8k_row({"question": " Why? ", "answer": answer})
    assert row == {"question": "Why?", "solution": solution, "answer": number, "steps": steps, **NONE}


def test_gsm8ks_other_columns_are_kept():
    assert json.loads(parse_gsm8k_row({**ROW, "level": 2, "tags": ["sum"]})["columns"]) == {"level": 2, "tags": ["sum"]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "Why?"}, "field 'answer' is not there; expected text"),
        ({"answer": "#### 3"}, "field 'question' is not there; expected text"),
        ({"question": "Why?", "answer": 3}, "field 'answer' is int 3; expected text"),
        ({"question": "  ", "answer": "#### 3"}, "field 'question' is empty; expected text"),
        ({"question": "Why?", "answer": "three"}, "field 'answer' has no '#### N'; expected it as in the first row"),
        ({"question": "Why?", "answer": "#### three"}, "field 'answer' ends in '#### three', which is no number"),
        ({"question": "Why?", "answer": "#### th\nree"}, "field 'answer' ends in '#### th ree', which is no number"),
        (
            {"question": "Why?", "answer": f"#### {'9' * 5000}"},
            "field 'answer' ends in a number of 5000 characters, above 100",
        ),
        ({"question": "Why?", "answer": "#### 1e200"}, "field 'answer' ends in a number of 201 characters, above 100"),
        ({"question": "Why?", "answer": "#### 1 000, 5"}, "field 'answer' ends in '#### 1 000, 5', which is no number"),
        ({"question": "Why \ud800?", "answer": "#### 3"}, "field 'question' has half a character (a surrogate)"),
        ({"problem": "Why?", "solution": r"\boxed{3}"}, "field 'question' is not there; expected text"),
    ],
)
def test_behind_a_row_of_gsm8k_every_row_has_to_be_one(row, said):
    with pytest.raises(StageError) as stopped:
        parse_problems(of([ROW, row]))
    assert str(stopped.value).startswith(f"x.jsonl: line 2: {said}")
    assert "\n" not in str(stopped.value)
    assert len(str(stopped.value)) < 400


def test_a_mark_in_a_later_row_does_not_make_the_others_gsm8k():
    found = parse_problems(of([{"question": "Name a colour.", "answer": "red"}, ROW]))
    assert [row["answer"] for row in found] == ["red", "2 + 1 = 3\n#### 3"]
    assert [row["problem_id"] for row in found] == ["x-0", "x-1"]


BOXED = r"So $x^2 = \boxed{1}$ or, better, $\boxed{\frac{1}{2}}$."
CHOICES = {"label": ["A", "B"], "text": ["rain", "snow"]}
ASKED = "What falls?\nA. rain\nB. snow"
FORMS = {
    "MATH": ({"problem": " Find x. ", "solution": BOXED}, "Find x.", BOXED, r"\frac{1}{2}"),
    "MATH-500": ({"problem": "Find x.", "solution": BOXED, "answer": "0.5"}, "Find x.", BOXED, "0.5"),
    "an empty answer": ({"problem": "Find x.", "solution": BOXED, "answer": ""}, "Find x.", BOXED, r"\frac{1}{2}"),
    "AIME": ({"problem": "Find x.", "solution": "", "answer": 70}, "Find x.", "", "70"),
    "AMC": ({"problem": "Find x.", "answer": 27.0}, "Find x.", "", "27.0"),
    "OlympiadBench": ({"question": "Find x.", "final_answer": ["2"]}, "Find x.", "", "2"),
    "two answers": ({"question": "Find x.", "final_answer": ["1", "-1"]}, "Find x.", "", "1, -1"),
    "SVAMP": (
        {"Body": "Ada has 3 pens.", "Question": "How many?", "Answer": 3.0},
        "Ada has 3 pens. How many?",
        "",
        "3.0",
    ),
    "ARC of the hub": ({"question": "What falls?", "choices": CHOICES, "answerKey": "A"}, ASKED, "", "A"),
    "ARC's own": (
        {
            "question": {
                "stem": "What falls?",
                "choices": [{"label": "A", "text": "rain"}, {"label": "B", "text": "snow"}],
            },
            "answerKey": "B",
        },
        ASKED,
        "",
        "B",
    ),
    "MMLU": ({"question": "What falls?", "choices": ["rain", "snow"], "answer": 1}, ASKED, "", "B"),
    "letters for numbers": (
        {"question": "What falls?", "choices": {"label": ["1", "2"], "text": ["rain", "snow"]}, "answerKey": "B"},
        "What falls?\n1. rain\n2. snow",
        "",
        "2",
    ),
    "the choice's text": ({"question": "What falls?", "choices": ["rain", "snow"], "answer": "snow"}, ASKED, "", "B"),
    "letters": ({"question": "What falls?", "choices": ["rain", "snow"], "answer": "A"}, ASKED, "", "A"),
    "numbered": (
        {"question": "What falls?", "choices": {"label": ["1", "2"], "text": ["rain", "snow"]}, "answerKey": "2"},
        "What falls?\n1. rain\n2. snow",
        "",
        "2",
    ),
    "MBPP": ({"text": "Add two numbers.", "code": "def f(a, b): ..."}, "Add two numbers.", "def f(a, b): ...", ""),
    "a prompt alone": ({"prompt": "Write a poem."}, "Write a poem.", "", ""),
    "UltraFeedback": ({"prompt": "Write.", "chosen": "Roses", "rejected": "No"}, "Write.", "Roses", ""),
    "Alpaca": (
        {"instruction": "Translate.", "input": "rouge", "output": "red"},
        "Translate.\n\nrouge",
        "red",
        "",
    ),
    "messages": ({"messages": [forms.make_user_turn("Why?")]}, "Why?", "", ""),
    "answered messages": (
        {"messages": [forms.make_user_turn("Why?"), {"role": "assistant", "content": r"\boxed{7}"}]},
        "Why?",
        r"\boxed{7}",
        "7",
    ),
    "a prompt of messages": ({"prompt": [{"role": "user", "content": "Why?"}], "answer": "7"}, "Why?", "", "7"),
    "ShareGPT": ({"conversations": [{"from": "human", "value": "Why?"}]}, "Why?", "", ""),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_row_of_each_form(name):
    row, question, solution, answer = FORMS[name]
    found = parse_problems(of([row]))[0]
    assert (found["question"], found["solution"], found["answer"], found["history"]) == (question, solution, answer, "")
    assert found["steps"] == len(solution.splitlines())


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["3", "4"], "B"),  # MMLU-Pro
        ({"A": "3", "B": "4"}, "4"),  # MedQA
        (["A)3", "B)4"], "B"),  # AQuA
        (["(A) 3", "(B) 4"], 1),
    ],
)
def test_options_are_shown_with_the_question(options, answer):
    found = parse_general_problem({"question": "2 + 2?", "options": options, "answer": answer})
    assert (found["question"], found["answer"], found["columns"]) == ("2 + 2?\nA. 3\nB. 4", "B", "")
    assert parse_general_problem({"question": "2?", "choices": ["A) 3", "4"]})["question"] == "2?\nA. A) 3\nB. 4"
    for other in ({"level": "hard"}, "fast", ["-O2"], {}):
        assert parse_general_problem({"question": "2?", "answer": "2", "options": other})["question"] == "2?"


def test_keys_of_a_prompts_messages_that_are_not_read_are_named(capsys):
    turn = {"role": "user", "content": "2 + 2?", "images": ["x.png"]}
    rows = [Row({name: [turn], "answer": "4"}, name, name) for name in ("messages", "prompt")]
    assert len(parse_problems(rows)) == 2
    assert capsys.readouterr().err == "prompts: not read: messages.images (2 rows)\n"


def test_the_turns_before_the_last_are_history():
    turns = [
        SYSTEM,
        forms.make_user_turn("Hi"),
        {"role": "assistant", "content": "Hello"},
        forms.make_user_turn("Why?"),
    ]
    found = parse_general_problem({"messages": turns, "answer": "7"})
    assert (found["question"], forms.parse_messages_json(found["history"])) == ("Why?", turns[:-1])
    assert forms.join_prompt(found["question"], found["history"]) == turns
    assert parse_general_problem({"prompt": turns})["history"] == found["history"]


def test_other_columns_are_kept_as_they_are():
    """IFEval's instructions reach the reward; the columns that are read already do not stand there twice."""
    row = {
        "key": 1000,
        "prompt": "Write in capitals.",
        "instruction_id_list": ["change_case:english_capital"],
        "kwargs": [{"language": None, "num_words": 300}],
    }
    found = parse_general_problem(row)
    assert json.loads(found["columns"]) == {name: value for name, value in row.items() if name != "prompt"}
    assert json.loads(parse_general_problem(FORMS["MATH-500"][0] | {"level": 5})["columns"]) == {"level": 5}
    assert parse_general_problem(FORMS["MATH-500"][0])["columns"] == ""


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"title": "?", "body": "?"},
            "expected a column question, problem, prompt, instruction, query, text, messages",
        ),
        ({}, "expected a column question"),
        ({"question": ""}, "field 'question' is empty"),
        ({"prompt": [{"role": "user", "content": " "}]}, "the prompt's last turn is empty"),
        ({"question": ["Why?"]}, "field 'question[0]' is 'Why?'; expected a message"),
        ({"question": 3}, "field 'question' is int 3"),
        ({"question": {"choices": []}}, "field 'question' is not there"),
        ({"messages": []}, "field 'messages' is list []"),
        ({"messages": [{"role": "assistant", "content": "7"}]}, "the prompt ends with a turn of nobody"),
        ({"messages": [SYSTEM]}, "the prompt ends with a turn of system; expected the user's"),
        ({"messages": [{"role": "user"}]}, "field 'messages[0].content' is not there"),
        ({"question": "Why?", "answer": {"value": "7"}}, "field 'answer' is dict"),
        ({"question": "Why?", "answer": []}, "field 'answer' is list []"),
        ({"question": "Why?", "answer": [["7"]]}, "field 'answer' is list"),
        ({"question": "Why?", "answer": True}, "field 'answer' is bool True"),
        ({"question": "Why?", "answer": float("nan")}, "field 'answer' is float nan"),
        ({"question": "Why?", "answer": float("-inf")}, "field 'answer' is float -inf; expected a text or a number"),
        ({"question": "Why?", "choices": "rain"}, "field 'choices' is str; expected texts, or labels with texts"),
        ({"question": "Why?", "choices": [1, 2]}, "field 'choices' is list; expected texts"),
        ({"question": "Why?", "choices": ["a"] * 27}, "field 'choices' is list; expected texts"),
        (
            {"question": "Why?", "choices": {"label": ["A", "B"], "text": ["rain"]}},
            "field 'choices' has 2 labels and 1 texts",
        ),
        ({"question": "Why?", "choices": ["a", "b"], "answer": 2}, "field 'answer' is '2'; expected one of A, B"),
        ({"question": "Why?", "choices": ["a", "b"], "answer": -1}, "field 'answer' is '-1'; expected one of A, B"),
        ({"instruction": "Why?", "input": 3}, "field 'input' is int 3"),
        ({"Body": "", "Question": "Why?"}, "field 'Body' is empty"),
        ({"question": "Why?", "a\nb": "\udc00"}, "field 'a"),
        ({"a\nb": 1, "x" * 5000: 2}, "expected a column"),
    ],
    ids=str,
)
def test_a_row_without_a_question_is_named(row, said):
    with pytest.raises(StageError) as stopped:
        parse_problems(of([row]))
    assert str(stopped.value).startswith(f"x.jsonl: line 1: {said}")
    assert "\n" not in str(stopped.value)
    assert len(str(stopped.value)) < 400


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "stem", "label", "text", "x"]), inner)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "question",
        "problem",
        "prompt",
        "instruction",
        "text",
        "messages",
        "solution",
        "answer",
        "choices",
        "input",
        "Body",
        "Question",
        "x",
    ]
)


@given(st.dictionaries(NAMES, VALUES))
@settings(max_examples=25)
def test_any_row_is_read_or_named(row):
    """Whatever JSON holds: a row of Problems with a question, or one line."""
    found, said = None, ""
    try:
        [found] = parse_problems(of([row]))
    except StageError as error:
        said = str(error)
    if found is None:
        assert said.startswith("x.jsonl: line 1: ")
        assert "\n" not in said
        return
    assert found["question"].strip()
    assert all(isinstance(found[name], str) for name in ("question", "solution", "answer", "history", "columns"))
    assert isinstance(json.loads(found["columns"] or "{}"), dict)


@given(st.lists(st.text("ab", min_size=1), min_size=2, max_size=26), st.data())
def test_every_choice_has_a_letter(texts, data):
    place = data.draw(st.integers(0, len(texts) - 1))
    found = parse_general_problem({"question": "Which?", "choices": texts, "answer": place})
    assert f"\n{LETTERS[place]}. {texts[place]}" in found["question"]
    assert found["answer"] == LETTERS[place]
    assert found["question"].count("\n") == len(texts)


def test_history_and_columns_are_there_only_where_some_row_has_them():
    plain, kept = {"question": "a", **NONE}, {"question": "b", "history": "", "columns": '{"a": 1}'}
    assert drop_empty_columns([plain, plain]) == [{"question": "a"}] * 2
    assert drop_empty_columns([plain, kept]) == [
        {"question": "a", "columns": ""},
        {"question": "b", "columns": '{"a": 1}'},
    ]


REAL = {  # by file: rows, first answer, how many have an answer and a solution
    "gsm8k/test.jsonl": (1319, "18", 1319, 1319),
    "math500/test.jsonl": (500, r"\left( 3, \frac{\pi}{2} \right)", 500, 500),
    "aime24/test.jsonl": (30, "204", 30, 30),
    "aime25/test.jsonl": (30, "70", 30, 0),
    "amc23/test.jsonl": (40, "27.0", 40, 0),
    "minerva_math/test.jsonl": (272, "1.6", 272, 272),
    "olympiadbench/test.jsonl": (675, "2", 675, 0),
    "svamp/test.jsonl": (1000, "145.0", 1000, 0),
    "arc/easy_test.jsonl": (2365, "A", 2365, 0),
    "arc/challenge_test.jsonl": (1165, "C", 1165, 0),
    "ultrafeedback/test.jsonl": (200, "", 0, 200),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason=repository.needs("data"))
@pytest.mark.parametrize("file", REAL)
def test_real_sets(file):
    found = parse_problems(read_files(SHARED / file))
    answered, solved = (sum(bool(row[name]) for row in found) for name in ("answer", "solution"))
    assert (len(found), found[0]["answer"], answered, solved) == REAL[file]
    assert max(Counter(row["problem_id"] for row in found).values()) == 1
    if file.startswith("arc"):
        assert all(f"\n{row['answer']}. " in row["question"] for row in found), "each answer is one of the choices"


def test_prompts_as_verl_and_open_instruct_keep_them():
    asked = [{"role": "user", "content": "2 + 2?"}]
    verl = {
        "data_source": "x",
        "prompt": asked,
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "ability": "math",
    }
    for row in (
        verl,
        {"messages": asked, "ground_truth": "4", "dataset": "gsm8k"},
        {"messages": asked, "ground_truth": ["4"]},
    ):
        found = parse_general_problem(row)
        assert (found["question"], found["answer"], found["history"]) == ("2 + 2?", "4", "")


@pytest.mark.parametrize(
    "row",
    [
        {"question": "2 + 2?", "answer": "4"},
        {"question": "2 + 2?", "answer": "2 + 2 = 4\n#### 4"},
        {"instruction": "2 + 2?"},
        {"question": "2 + 2?", "choices": ["3", "4"], "answer": 1},
        {"Body": "There are 2.", "Question": "2 + 2?"},
        {"messages": [{"role": "user", "content": "2 + 2?"}]},
    ],
    ids=str,
)
def test_a_prompts_tools_and_system_prompt_stand_in_its_history(row):
    tool = {"name": "add", "parameters": {"type": "object"}}
    form = parse_gsm8k_row if is_gsm8k_row(row) else parse_general_problem
    declared, system = json.loads(form({**row, "tools": [tool], "system": "Be brief."})["history"])
    assert declared["role"] == "tools"
    assert json.loads(declared["content"])[0]["function"] == tool
    assert system == {"role": "system", "content": "Be brief."}
