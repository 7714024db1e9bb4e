"""What SFT imitates: from problems, files and a hub; validation and test problems never reach it."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.configs.demonstrations import DemonstrationsConfig
from tasks.language.data import forms
from tasks.language.demonstrations import list_user_questions, run, split_demonstrations
from tasks.language.tables.problems import Demonstrations, Problems
from tests.conftest import PARAMS
from tests.tasks.language import judged

CONFIG = DemonstrationsConfig.model_validate({**PARAMS["demonstrations"], "source": "files", "validation_share": 0.25})
ROWS = [{"prompt": f"Question {n}?", "completion": f"Answer {n}."} for n in range(12)]


@pytest.fixture
def stage(made, tmp_path):
    """Run the stage on these rows; its metrics, and its training and validation conversations."""

    def go(rows=ROWS, name="out", **changes):
        raw, out = tmp_path / "raw", tmp_path / name
        raw.mkdir(exist_ok=True)
        (raw / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        metrics = run(CONFIG.model_copy(update=changes), made / "problems", raw, out)
        return metrics, *(
            tables.read_table(Demonstrations, out / f"{part}.parquet") for part in ("train", "validation")
        )

    return go


def turns(table):
    return [forms.parse_messages_json(text) for text in table["messages"]]


def test_of_problems_are_the_stages_own(made, stage):
    metrics, *parts = stage(rows=(), source="problems")
    assert metrics == {"train": 60, "validation": 8, "duplicates": 0, "leaked": 0, "left_out": 0}
    for name, table in zip(("train", "validation"), parts, strict=True):
        made_there = tables.read_table(Demonstrations, made / f"problems/{name}_demonstrations.parquet")
        pd.testing.assert_frame_equal(table, made_there)


def test_problems_without_solutions_are_refused(made, stage, tmp_path):
    for part in ("train", "validation"):
        home = tmp_path / f"without {part}"
        for name in ("train", "validation"):
            table = tables.read_table(Demonstrations, made / f"problems/{name}_demonstrations.parquet")
            tables.write_table(
                Demonstrations, table.head(0) if part == name else table, home / f"{name}_demonstrations.parquet"
            )
        with pytest.raises(StageError) as stopped:
            run(CONFIG.model_copy(update={"source": "problems"}), home, tmp_path, tmp_path / "out")
        which = "training" if part == "train" else "validation"
        assert (
            str(stopped.value)
            == f"{home}: the {which} problems have no solutions to imitate; set demonstrations.source"
        )
        assert not (tmp_path / "out").exists()


def test_a_share_of_the_prompts_is_held_out(stage):
    metrics, train, validation = stage()
    assert metrics == {"train": 9, "validation": 3, "duplicates": 0, "leaked": 0, "left_out": 0}
    found = [*turns(train), *turns(validation)]
    assert sorted(one[0]["content"] for one in found) == sorted(row["prompt"] for row in ROWS)
    assert {*train["demonstration_id"], *validation["demonstration_id"]} == {f"own-{n}" for n in range(12)}
    assert train["demonstration_id"].tolist() != sorted(train["demonstration_id"]), "shuffled"


def test_the_seed_decides(stage, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        stage(name=name, seed=seed)
    one, same, other = ((tmp_path / name / "train.parquet").read_bytes() for name in ("one", "same", "other"))
    assert one == same != other


def conversation(question, answer, *more, system=""):
    before = [{"role": "system", "content": system}] if system else []
    turns = [
        {"role": role, "content": text}
        for role, text in zip(("user", "assistant") * 3, (question, answer, *more), strict=False)
    ]
    return {"messages": [*before, *turns]}


def test_conversations_that_open_alike_are_on_one_side(stage):
    """The turns before the first answer decide, whatever spaces stand around them and whatever comes later."""
    rows = [
        conversation(f"Question {n % 4}?{' ' * (n % 2)}", f"Answer {n}", *(["And?", "So."] if n % 5 else []))
        for n in range(40)
    ]
    metrics, train, validation = stage(rows)
    assert (metrics["train"], metrics["validation"]) == (30, 10)
    opened = [{list_user_questions(row)[0] for row in tables.list_records(part)} for part in (train, validation)]
    assert [len(part) for part in opened] == [3, 1]
    assert not opened[0] & opened[1]


def test_what_a_system_prompt_says_tells_prompts_apart(stage):
    """A document in the system turn, about which each user asks the same."""
    rows = [conversation("What does it say?", f"It says {n}.", system=f"Document {n}") for n in range(20)]
    metrics, _train, _validation = stage(rows)
    assert (metrics["train"], metrics["validation"]) == (15, 5)
    again = stage([*rows, *rows[:3]], name="again")[0]
    assert again["duplicates"] == 3


def test_conversations_that_all_open_alike_are_told_apart_by_later_turns(stage):
    rows = [conversation("Hi", "Hello!", f"Who is {n}?", f"Nobody {n}.") for n in range(8)]
    metrics, _train, _validation = stage(rows)
    assert (metrics["train"], metrics["validation"]) == (6, 2)
    with pytest.raises(StageError, match="1 different prompts"):
        stage([conversation("Hi", f"Hello {n}!") for n in range(8)], name="alike")


def test_what_cannot_be_learned_is_left_out_and_counted(stage, capfd):
    """Empty answers, answers that are labelled as bad, and those that are all marked as not learned."""
    said = {"role": "assistant", "content": "So."}
    left_out = [
        {"prompt": "Empty?", "completion": ""},
        {"prompt": "None?", "completion": None},
        {"instruction": "Blank?", "output": " \n"},
        conversation("Empty?", " "),
        conversation("Last is empty?", "So.", "And?", ""),
        {"prompt": "Bad?", "completion": "No.", "label": False},
        {"messages": [forms.make_user_turn("Only context?"), {**said, "weight": 0}]},
        {"prompt": "No pair?", "chosen": "", "rejected": "No."},
    ]
    kept = [{"prompt": "Good?", "completion": "Yes.", "label": True}, conversation("Silent first?", "", "And?", "So.")]
    metrics, train, validation = stage([*ROWS, *left_out, *kept])
    assert (metrics["left_out"], metrics["train"] + metrics["validation"]) == (8, 14)
    lines = capfd.readouterr().err
    assert (
        "rows left out: 1 labelled as bad answers, 1 whose answers are all marked as not learned, 6 without an" in lines
    )
    found = {
        list_user_questions(row)[0]: forms.parse_messages_json(row["messages"])
        for part in (train, validation)
        for row in tables.list_records(part)
    }
    assert found["Silent first?"][1]["weight"] == 0, "an empty answer is context"
    assert not {"Empty?", "None?", "Blank?", "Bad?", "Only context?"} & {*found}


def test_columns_that_nobody_reads_are_named_once(stage, capfd):
    more = {"source": "web", "score": 3, "empty": None}
    turn = {"role": "assistant", "content": "So.", "mood": "good"}
    stage([*ROWS[:4], {**ROWS[5], **more}, {"messages": [forms.make_user_turn("Why?"), turn], "source": "web"}])
    assert "not read: messages.mood (1 rows), score (1 rows), source (2 rows)\n" in capfd.readouterr().err


def test_what_asks_a_held_out_problem_is_left_out_and_counted(made, stage):
    """Also in a later turn, and with other spaces around it; a training problem may stand there."""
    held, train = (
        tables.read_table(Problems, made / f"problems/{name}.parquet")["question"] for name in ("test", "train")
    )
    check = tables.read_table(Problems, made / "problems/validation.parquet")["question"]
    later = [*map(forms.make_user_turn, ["Hi", f"\n{held[1]} "])]
    said = {"role": "assistant", "content": "So."}
    leaks = [
        {"prompt": f" {held[0]}", "completion": "7"},
        {"question": check[0], "answer": "#### 7"},
        {"messages": [later[0], said, later[1], said]},
        {"conversations": [{"from": "human", "value": check[3]}, {"from": "gpt", "value": "7"}]},
    ]
    metrics, learned, validation = stage([*leaks, *ROWS, {"prompt": train[0], "completion": "7"}])
    assert metrics == {"train": 10, "validation": 3, "duplicates": 0, "leaked": 4, "left_out": 0}
    asked = {
        question
        for part in (learned, validation)
        for row in tables.list_records(part)
        for question in list_user_questions(row)
    }
    assert asked == {row["prompt"] for row in ROWS} | {train[0]}


def test_rows_that_are_repeated_word_for_word_are_counted(stage):
    twice = [
        *ROWS,
        *ROWS[:5],
        {"messages": [forms.make_user_turn("Question 0?"), {"role": "assistant", "content": "Answer 0."}]},
    ]
    assert stage(twice)[0] == {"train": 9, "validation": 3, "duplicates": 6, "leaked": 0, "left_out": 0}
    other = stage([*ROWS, {"prompt": "Question 0?", "completion": "Another."}])[0]
    assert (other["train"] + other["validation"], other["duplicates"]) == (13, 0)


def test_plain_texts_and_conversations_may_be_mixed(stage):
    metrics, train, validation = stage([*ROWS[:4], *({"text": f"Text {n}."} for n in range(4)), {"text": "Text 0."}])
    assert (metrics["train"], metrics["validation"], metrics["duplicates"]) == (6, 2, 1)
    both = pd.concat([train, validation])
    assert sorted(both["text"]) == ["", "", "", "", "Text 0.", "Text 1.", "Text 2.", "Text 3."]
    assert ((both["text"] == "") == (both["messages"] != "")).all()


def test_a_hub_set_is_read(made, tmp_path, monkeypatch):
    held = {("some/talks", "v1"): {"train": ROWS, "other": ROWS[:6]}}
    monkeypatch.setattr("datasets.load_dataset", lambda name, config, revision: held[name, revision])
    hub = {"source": "hub", "hub_id": "some/talks", "hub_revision": "v1", "hub_split": "other"}
    metrics = run(CONFIG.model_copy(update=hub), made / "problems", tmp_path, tmp_path / "out")
    assert (metrics["train"], metrics["validation"]) == (4, 2)
    table = tables.read_table(Demonstrations, tmp_path / "out/train.parquet")
    assert set(table["demonstration_id"]) < {f"other-{n}" for n in range(6)}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [],
            "data/raw/demonstrations: 0 different prompts; expected at least 2, one to learn from and one to hold out",
        ),
        (ROWS[:1], "data/raw/demonstrations: 1 different prompts"),
        ([*ROWS, {"prompt": "Why?"}], "own.jsonl: line 13: expected columns messages | conversations"),
        (
            [*ROWS, {"messages": [forms.make_user_turn("Why?")]}],
            "own.jsonl: line 13: expected at least one turn of the assistant",
        ),
        ([{"prompt": "Why?", "completion": "\ud800"}], "own.jsonl: line 1: field 'completion' has half a character"),
    ],
    ids=str,
)
def test_what_cannot_be_learned_from_is_one_line(stage, tmp_path, rows, said):
    with pytest.raises(StageError) as stopped:
        stage(rows)
    assert said in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "out").exists()


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 99))), st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_split_loses_nothing_and_shares_no_first_question(rows, share, seed):
    found = [
        {
            "demonstration_id": f"{n}",
            "messages": forms.dump_messages_json(
                [forms.make_user_turn(opening), {"role": "assistant", "content": f"{answer}"}]
            ),
            "text": "",
        }
        for n, (opening, answer) in enumerate(rows)
    ]
    config = CONFIG.model_copy(update={"validation_share": share, "seed": seed})
    if len({opening for opening, _ in rows}) < 2:
        with pytest.raises(StageError, match="expected at least 2"):
            split_demonstrations(config, found, "x")
        return
    train, validation = split_demonstrations(config, found, "x")
    assert sorted(row["demonstration_id"] for row in [*train, *validation]) == sorted(
        row["demonstration_id"] for row in found
    )
    assert train
    assert validation
    assert not {list_user_questions(row)[0] for row in train} & {list_user_questions(row)[0] for row in validation}


def test_a_training_row_that_opens_as_a_held_out_one_is_on_neither_side():
    """It is left out, and not held out beside it: its file says that it is no measure."""
    rows = [("train-0", "A?"), ("train-1", "B?"), ("test-0", "B?"), ("test-1", "C?")]
    found = [
        {"demonstration_id": name, "messages": json.dumps([{"role": "user", "content": asked}]), "text": ""}
        for name, asked in rows
    ]
    train, validation = split_demonstrations(CONFIG, found, "own")
    assert [row["demonstration_id"] for row in train] == ["train-0"]
    assert sorted(row["demonstration_id"] for row in validation) == ["test-0", "test-1"]


def test_what_people_wrote_is_imitated(made, tmp_path):
    """Their better answers, and none of the answers that they only judged; a question of the test problems is left
    out.
    """
    tested = tables.read_table(Problems, made / "problems/test.parquet")["question"].iloc[0]
    turns = forms.dump_messages_json([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}])
    record = tmp_path / "people.jsonl"
    for number, prompt in enumerate([*(f"Who has {n} pens?" for n in range(9)), tested]):
        history = {"history": turns} if not number else {}
        row = {
            "prompt_id": f"p{number}",
            "prompt": prompt,
            "sample": 0,
            "response": "Nobody.",
            "ended": True,
            **history,
        }
        judged.write(record, judged.edit([row], f"Ada has {number}."))
        judged.write(record, judged.pair([row, {**row, "sample": 1, "response": "Me."}], "a better"))
    config = CONFIG.model_copy(update={"source": "people", "path": str(record), "validation_share": 0.3})
    metrics = run(config, made / "problems", record, tmp_path / "out")
    assert (metrics["train"], metrics["validation"], metrics["leaked"]) == (6, 3, 1)
    rows = pd.concat(
        [tables.read_table(Demonstrations, tmp_path / f"out/{name}.parquet") for name in ("train", "validation")]
    )
    said = [forms.parse_messages_json(text) for text in rows["messages"]]
    assert {messages[-1]["content"] for messages in said} == {f"Ada has {n}." for n in range(9)}
    assert sorted(map(len, said)) == [2] * 8 + [4], "the turns before stand there too"
