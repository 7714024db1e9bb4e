import itertools
import json
import random
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.configs.problems import HabitsConfig, ProblemsConfig
from tasks.language.data import forms, word_problems
from tasks.language.data.word_problems import ProblemKind
from tasks.language.problems import SPLITS, generate_problem_splits, run
from tasks.language.tables.problems import OTHER_KINDS, Demonstrations, Problems
from tests import repository
from tests.conftest import tiny

CONFIG = tiny(ProblemsConfig, "problems")
GSM8K = Path(__file__).parents[4] / "shared/data/gsm8k"
needs_gsm8k = pytest.mark.skipif(not GSM8K.is_dir(), reason=repository.needs("data/gsm8k"))
ROWS = [{"question": f"How many are {n} and 1?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in range(40)]


def chains(rows):
    """The arithmetic of each problem, read from its solution, not from the generator."""
    found = set()
    for row in rows:
        lines = row["solution"].split("\n")[:-1]
        found.add(tuple("".join(word for word in line.split() if not word.strip(".").isalpha()) for line in lines))
    return found


@given(st.integers(0, 2**31), st.integers(30, 60))
@settings(max_examples=25)
def test_generated_splits_share_no_question_and_no_arithmetic(seed, largest):
    splits = generate_problem_splits(CONFIG.model_copy(update={"seed": seed, "largest": largest}))
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 60, "validation": 8, "test": 8}
    questions = [row["question"] for rows in splits.values() for row in rows]
    assert len(set(questions)) == len(questions)
    arithmetic = [chains(rows) for rows in splits.values()]
    assert sum(map(len, arithmetic)) == len(set.union(*arithmetic)), "no chain in two splits"
    assert [*map(len, arithmetic[1:])] == [8, 8], "each validation and each test problem has a chain of its own"


def numbers(table):
    return [[int(number) for number in re.findall(r"\d+", text)] for text in table["solution"]]


def unseen(table):
    """Of each problem whether one of its steps is kept out of training."""
    steps = [re.findall(r"(\d+) ([-+*/]) (\d+) =", text) for text in table["solution"]]
    return [
        any(word_problems.is_equation_kept_from_training(int(a), symbol, int(b)) for a, symbol, b in of) for of in steps
    ]


def test_sets_of_another_kind(tmp_path):
    run(CONFIG.model_copy(update={"other_kinds": 6}), tmp_path, tmp_path / "out")
    sets = {name: tables.read_table(Problems, tmp_path / f"out/{name}.parquet") for name in OTHER_KINDS}
    assert sets["longer"]["steps"].tolist() == [4, 5] * 3
    assert all(CONFIG.largest < max(of) <= CONFIG.largest + 10 for of in numbers(sets["larger"]))
    assert sets["words"]["question"].str.contains("|".join(word_problems.OTHER_WORDS.items.split())).all()
    splits = {name: tables.read_table(Problems, tmp_path / f"out/{name}.parquet") for name in SPLITS}
    for name, table in {**sets, **splits}.items():
        assert unseen(table) == [name == "sums"] * len(table)
        assert name in splits or len(chains(table.to_dict("records"))) == len(table) == 6
        assert name == "larger" or max(map(max, numbers(table))) <= CONFIG.largest


def test_what_steps_there_are_follows_the_weights():
    config = {"one_step": 0.0, "two_steps": 1.0, "three_steps": 0.0}
    assert {row["steps"] for row in generate_problem_splits(CONFIG.model_copy(update=config))["train"]} == {2}
    with pytest.raises(ValidationError, match="expected a number above 0 here or in one_step or two_steps"):
        ProblemsConfig.model_validate({**CONFIG.model_dump(), **dict.fromkeys(config, 0.0)})


def test_too_few_problems_exist(monkeypatch):
    """Three problems, drawn again and again; the splits want 76."""
    drawn = itertools.cycle(
        [word_problems.generate_word_problem(random.Random(seed), ProblemKind(1, 30)) for seed in range(3)]
    )
    monkeypatch.setattr(word_problems, "generate_word_problem", lambda *_: next(drawn))
    with pytest.raises(StageError, match=r"too few different problems exist; raise problems\.largest"):
        generate_problem_splits(CONFIG)


def test_the_stage_writes_the_same_bytes_for_the_same_seed(tmp_path):
    metrics = [run(CONFIG.model_copy(update={"seed": s}), tmp_path, tmp_path / str(n)) for n, s in enumerate([1, 1, 2])]
    assert metrics[0] == {"train": 60, "validation": 8, "test": 8}
    bytes_of = [[(tmp_path / str(n) / f"{name}.parquet").read_bytes() for name in SPLITS] for n in range(3)]
    assert bytes_of[0] == bytes_of[1]
    assert bytes_of[0] != bytes_of[2]


@pytest.mark.parametrize("part", ["train", "validation"])
@pytest.mark.parametrize("source", ["generated", "files"])
def test_demonstrations_are_of_the_problems(files, tmp_path, source, part):
    """Only generated solutions get another manner; users' own solutions stay as they are."""
    habits = HabitsConfig(shortcut=0.5, unnamed=1.0, opening=0.0, closing=0.0, repeated=0.0)
    config = (files() if source == "files" else CONFIG).model_copy(update={"habits": habits})
    train = made(config, tmp_path)[part]
    shown = tables.read_table(Demonstrations, tmp_path / "out" / f"{part}_demonstrations.parquet")
    assert shown["demonstration_id"].tolist() == train["problem_id"].tolist()
    asked, answered = zip(*map(forms.parse_messages_json, shown["messages"]), strict=True)
    assert [*asked] == [{"role": "user", "content": question} for question in train["question"]]
    assert {turn["role"] for turn in answered} == {"assistant"}
    responses = pd.Series([turn["content"] for turn in answered])
    assert all(map(str.endswith, responses, "#### " + train["answer"]))
    same = responses == train["solution"]
    assert same.all() if source == "files" else not same.any()


@pytest.fixture
def files(tmp_path):
    def write(train=ROWS[:30], test=ROWS[30:]):
        for name, rows in (("train", train), ("test", test)):
            lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
            (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return CONFIG.model_copy(update={"source": "files", "path": str(tmp_path)})

    return write


def made(config, tmp_path):
    run(config, tmp_path, tmp_path / "out")
    return {name: tables.read_table(Problems, tmp_path / "out" / f"{name}.parquet") for name in SPLITS}


def test_files_are_read_and_split(files, tmp_path):
    found = made(files(), tmp_path)
    assert {name: len(table) for name, table in found.items()} == {"train": 22, "validation": 8, "test": 8}
    assert found["test"]["question"].tolist() == [row["question"] for row in ROWS[30:38]]
    assert found["test"]["solution"].tolist() == [row["answer"] for row in ROWS[30:38]]
    questions = [question for table in found.values() for question in table["question"]]
    assert len(set(questions)) == len(questions)


def test_repeated_questions_stay_in_one_split_only(files, tmp_path):
    """A test question that also occurs in training, one beyond the test problems that are kept, and one that occurs
    twice.
    """
    config = files(train=[*ROWS[:30], *ROWS[:30], *ROWS[30:]], test=[*ROWS[30:], ROWS[30]])
    found = made(config, tmp_path)
    metrics = run(config, tmp_path, tmp_path / "again")
    assert (metrics["repeated"], metrics["leaked"]) == (30 + 1, len(ROWS[30:]))
    assert len(found["train"]) + len(found["validation"]) == 30
    assert not {*found["train"]["question"], *found["validation"]["question"]} & {row["question"] for row in ROWS[30:]}


def test_a_line_separator_inside_a_text_ends_no_line(files, tmp_path):
    odd = {"question": "Why\u2028not\u0085?", "answer": "#### 3"}
    assert odd["question"] in made(files(test=[odd]), tmp_path)["test"]["question"].tolist()


def test_files_that_do_not_suffice(files, tmp_path):
    with pytest.raises(StageError, match=r"8 training problems leave none beside problems\.validation = 8"):
        run(files(train=ROWS[:8]), tmp_path, tmp_path / "out")
    with pytest.raises(StageError, match="there are no test problems"):
        run(files(test=[]), tmp_path, tmp_path / "out")
    with pytest.raises(
        StageError, match=r"train\.jsonl: no such file; expected one of type \.jsonl, \.json, \.parquet$"
    ):
        run(files(), tmp_path / "elsewhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_problems_without_solutions_have_no_demonstrations(files, tmp_path):
    """As AIME's: a question and an answer. Where some have a solution, those are imitated."""
    rows = [{"problem": f"Find {n}.", "answer": n} for n in range(40)]
    found = made(files(train=rows[:30], test=rows[30:]), tmp_path)
    assert found["test"]["answer"].tolist() == [str(n) for n in range(30, 38)]
    assert tables.read_table(Demonstrations, tmp_path / "out/train_demonstrations.parquet").empty
    solved = [{**row, "solution": f"It is {row['answer']}."} for row in rows[:30]]
    train = made(files(train=[*solved[:29], rows[29]], test=rows[30:]), tmp_path)["train"]
    shown = tables.read_table(Demonstrations, tmp_path / "out/train_demonstrations.parquet")
    assert shown["demonstration_id"].tolist() == train["problem_id"][train["solution"] != ""].tolist()
    assert 21 <= len(shown) <= 22


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_splits_may_be_files_of_another_type(tmp_path, kind):
    """With a system prompt and further columns, which the tables keep."""
    turns = [{"role": "system", "content": "Be brief."}]
    rows = [
        {"prompt": [*turns, {"role": "user", "content": f"Find {n}."}], "answer": f"{n}", "level": n} for n in range(40)
    ]
    for name, part in (("train", rows[:30]), ("test", rows[30:])):
        frame, file = pd.DataFrame(part), tmp_path / f"{name}.{kind}"
        frame.to_json(file, orient="records") if kind == "json" else frame.to_parquet(file)
    found = made(CONFIG.model_copy(update={"source": "files", "path": str(tmp_path)}), tmp_path)
    assert {name: len(table) for name, table in found.items()} == {"train": 22, "validation": 8, "test": 8}
    for table in found.values():
        assert [json.loads(text) for text in table["history"]] == [turns] * len(table)
        assert [json.loads(text)["level"] for text in table["columns"]] == table["answer"].astype(int).tolist()


def test_conversations_that_end_alike_are_different_problems(files, tmp_path):
    """`Go on.` after one question is not `Go on.` after another."""
    rows = [{"messages": [*forms.join_prompt(f"Tell me of {n}."), *forms.join_prompt("Go on.")]} for n in range(40)]
    metrics = run(files(train=[*rows[:30], rows[3], rows[35]], test=rows[30:]), tmp_path, tmp_path / "out")
    assert metrics == {"train": 22, "validation": 8, "test": 8, "repeated": 1, "leaked": 1}


@needs_gsm8k
def test_real_gsm8k(tmp_path):
    config = CONFIG.model_copy(update={"source": "files", "train": 10**6, "validation": 500, "test": 10**6})
    metrics = run(config, GSM8K, tmp_path)
    assert metrics["validation"] == 500
    assert metrics["train"] + 500 <= 7473
    assert metrics["test"] <= 1319
    assert metrics["train"] > 6900
    found = {name: tables.read_table(Problems, tmp_path / f"{name}.parquet") for name in SPLITS}
    first = found["test"].iloc[0]
    assert first["question"].startswith("Janet\u2019s ducks lay 16 eggs per day.")
    assert (first["answer"], first["steps"]) == ("18", 2)
    questions = [question for table in found.values() for question in table["question"]]
    assert len(set(questions)) == len(questions)
