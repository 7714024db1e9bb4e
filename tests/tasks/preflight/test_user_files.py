"""Files are read before anything is trained, whatever was made before and whichever stages a command names."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.data import forms
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.preflight import data, large, user_files
from tests import extensions
from tests.tasks.preflight.test_data import given, mixed, write

CHAT = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2."}]
SYSTEM = [{"role": "system", "content": "Count."}, *CHAT]
UNKNOWN = {"prompt": "Why?", "instruction_id_list": ["language:unheard_of"], "kwargs": [{}]}
POLICIES = [f"{name}" for name in data.POLICIES]


def constrained(tmp_path, row):
    """A mixture of one file, and policies that are paid for constraints."""
    write(tmp_path / "own.jsonl", [{**row, "prompt": f"{n}?"} for n in range(3)])
    return {"mixture": {"path": str(tmp_path), "datasets": [mixed("constraints")]}}


def fault(configs, stages):
    with pytest.raises(StageError) as stopped:
        list(user_files.iterate_user_file_checks(configs, stages))
    return str(stopped.value)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("made", [(), ("mixture",), ("mixture", "pretrained", "sft")])
def test_what_a_reward_cannot_read_is_found_whatever_was_made_before(tmp_path, policy, made):
    configs = given(**constrained(tmp_path, UNKNOWN))
    stages = {"mixture", "pretrained", "sft", policy} - {*made}
    assert fault(configs, stages).startswith(f"{policy}: {tmp_path}/own.jsonl: own-0: reward constraints: ")


def test_a_file_that_a_stage_behind_it_learns_from_is_read_again(tmp_path):
    """The conversation was fine for the model that SFT started from before."""
    chats = write(tmp_path / "chats.jsonl", [{"messages": CHAT}, {"messages": SYSTEM}])
    source = {"demonstrations": {"source": "files", "path": chats}}
    assert "message 1 (system)" in fault(given(**source), {"pretrained", "sft"})
    assert not list(user_files.iterate_user_file_checks(given(**source), {"report"}))


FAULTY = {  # section -> what its file holds, and the stages that read it
    **extensions.entries("FAULTY"),
    "corpus": [{"words": "no text"}],
    "demonstrations": [{"prompt": "2?"}],
    "preferences": [{"prompt": "2?", "chosen": "2"}],
    "solutions": [{"prompt": "2?", "completion": "2", "label": "perhaps"}],
    "evaluate": [{"words": "no question"}],
}


@pytest.mark.parametrize("section", FAULTY)
@pytest.mark.parametrize("trained", ["pretrained", "sft", "reward_model", "grpo"])
def test_a_training_is_told_of_files_that_only_later_runs_read(tmp_path, section, trained):
    """Those that a stage behind it asks something of stop the run, the others are named."""
    configs = given(**{section: {"source": "files", "path": write(tmp_path / "own.jsonl", FAULTY[section])}})
    where = f"{tmp_path}/own.jsonl: line 1: "
    if trained in user_files.LEARNED_BY.get(section, ()):
        assert where in fault(configs, {trained})
    else:
        [line] = user_files.iterate_user_file_checks(configs, {trained})
        assert where in line
    assert where in fault(configs, {section}), "the stage itself"
    assert not list(user_files.iterate_user_file_checks(configs, {"report"})), "nothing is trained, and no file is read"


def test_in_a_copy_that_lacks_them_files_of_later_runs_are_not_looked_for():
    configs = given(evaluate={"source": "files", "path": "nowhere"})
    assert not list(user_files.iterate_user_file_checks(configs, {"sft"}, later=False))
    assert "nowhere" in fault(configs, {"evaluate@sft"})
    with pytest.raises(StageError, match="nowhere"):
        list(user_files.iterate_user_file_checks(configs, {"sft", "evaluate@sft"}, later=False))


@pytest.mark.parametrize("made", ["problems", "mixture", "demonstrations"])
def test_what_was_made_of_a_hubs_set_is_held_against_what_is_asked_of_it_now(tmp_path, monkeypatch, made):
    """Its rows lie here where the stage is up to date; those of a stage that will run are not what will be there
    then.
    """
    monkeypatch.chdir(tmp_path)
    source = {**mixed("policy"), "source": "hub", "location": "some/set", "hub_revision": "main", "hub_split": "train"}
    asked = {"question": "Why?", "solution": "", "answer": ""}
    prompt = {"prompt_id": "own/1", "dataset": "own", **asked, "reward": "policy", "history": "", "columns": ""}
    if made == "problems":
        tables.write_table(
            Problems, pd.DataFrame([{"problem_id": "1", **asked, "steps": 1}]), Path("data/problems/train.parquet")
        )
        configs = given(problems={"source": "hub"}, mixture={"skip": 0})
    elif made == "mixture":
        for name in ("prompts", "validation"):
            tables.write_table(Prompts, pd.DataFrame([prompt]), Path(f"data/mixture/{name}.parquet"))
        configs = given(mixture={"datasets": [source]})
    else:
        row = {"demonstration_id": "a", "messages": forms.dump_messages_json(SYSTEM), "text": ""}
        for name in ("train", "validation"):
            tables.write_table(Demonstrations, pd.DataFrame([row]), Path(f"data/demonstrations/{name}.parquet"))
        configs = given(demonstrations={"source": "hub"})
    trained = "sft" if made == "demonstrations" else "grpo"
    expected = (
        "message 1 (system)" if made == "demonstrations" else "there is no answer, which the reward verifiable needs"
    )
    assert expected in fault(configs, {trained})
    assert not list(user_files.iterate_user_file_checks(configs, {made, trained}))


def test_pairs_that_policies_judge_are_read_before_the_policies_are_trained(tmp_path):
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": "2?", "chosen": "2", "rejected": "3"}, {"prompt": "3?"}])
    configs = given(evaluate={"pairs_path": pairs})
    assert "pairs.jsonl: line 2: " in fault(configs, {"sft", "evaluate@sft"})
    [line] = user_files.iterate_user_file_checks(configs, {"sft"})
    assert "pairs.jsonl: line 2: " in line


@pytest.mark.parametrize("section", ["preferences", "mixture", "evaluate"])
def test_turns_that_a_model_from_scratch_takes_for_the_assistants_are_counted(tmp_path, section):
    prompt = SYSTEM[:2]
    rows = {
        "preferences": [{"prompt": asked, "chosen": "2", "rejected": "3"} for asked in (prompt, "3?")],
        "mixture": [{"prompt": prompt}, {"prompt": "3?"}],
        "evaluate": [{"prompt": prompt, "answer": "2"}, {"prompt": "3?", "answer": "3"}],
    }
    source = {"source": "files", "path": write(tmp_path / "own.jsonl", rows[section])}
    source = {"path": str(tmp_path), "datasets": [mixed("format")]} if section == "mixture" else source
    stages = {"evaluate@sft"} if section == "evaluate" else {section}
    [line] = user_files.iterate_user_file_checks(given(**{section: source}), stages)
    assert line.endswith("; in 1 of them a model from scratch reads turns before the prompt as the assistant's")
    [line] = user_files.iterate_user_file_checks(given(**{section: source}, pretrained={"init": "directory"}), stages)
    assert "from scratch" not in line


def test_problems_without_answers_do_not_suit_a_reward_that_compares(tmp_path):
    """Of one's own, whether the stages problems and mixture have run or not."""
    for name in ("train", "test"):
        write(tmp_path / f"{name}.jsonl", [{"prompt": f"{name} {n}?"} for n in range(9)])
    source = {"source": "files", "path": str(tmp_path), "validation": 2}
    configs = given(problems=source, mixture={"skip": 0}, responses={"skip": 0})
    for stages in ({"problems", "mixture", "sft", "grpo"}, {"sft", "grpo"}):
        assert "there is no answer, which the reward verifiable needs" in fault(configs, stages)
    assert list(user_files.iterate_user_file_checks(configs, {"problems"}))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_of_a_large_file_the_first_rows_are_read(tmp_path, monkeypatch, kind):
    """The rest is the stage's; what is asked of the whole set (two different prompts) is not asked of its beginning."""
    monkeypatch.setattr(data, "LARGE", 1000)
    monkeypatch.setattr(large, "HEAD", 600)
    file = tmp_path / f"own.{kind}"
    rows = [{"prompt": "2?", "chosen": f"{n}", "rejected": "x" * 50} for n in range(4000)]

    def told(rows):
        if kind == "parquet":
            pd.DataFrame(rows).to_parquet(file)
        else:
            write(file, rows)
        configs = given(preferences={"source": "files", "path": str(file)})
        return list(user_files.iterate_user_file_checks(configs, {"preferences"}))

    count = {"jsonl": 600 // (len(json.dumps(rows[0])) + 1), "parquet": tables.BATCHES[1]}[kind]
    [line] = told(rows)
    assert line.startswith(f"preferences: {file} has ")
    assert line.endswith(f": its first {count:,} rows are read before the run, the rest is left to the stage")
    with pytest.raises(StageError) as stopped:
        told([{**rows[0], "rejected": None}, *rows[1:]])
    assert str(stopped.value).startswith(f"{file}: ")
    assert len(told([*rows[:-1], {**rows[0], "rejected": None}])) == 1, "the stage's to find"


def test_a_large_list_in_json_is_left_to_the_stage_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "LARGE", 10)
    monkeypatch.setattr(large, "HEAD", 10)
    file = tmp_path / "own.json"
    file.write_text(json.dumps([{"text": "one"}, {"text": "two"}]))
    [line] = user_files.iterate_user_file_checks(given(corpus={"source": "files", "path": str(file)}), {"corpus"})
    assert line == f"corpus: {file} has {file.stat().st_size:.1f} bytes: it is left to the stage"
