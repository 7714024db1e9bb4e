"""What can be known of the user's files before a run: counts, faults, and numbers that do not fit together."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

from tasks.common.errors import StageError
from tasks.preflight import data, examples
from tests.conftest import PARAMS, SECTIONS
from tests.tasks.language import judged


def given(**changes):
    """The Configs of the language flow with changes by section."""
    params = deepcopy(PARAMS)
    for section, values in changes.items():
        params[section] |= values
    return {name: kind.model_validate(params[name]) for name, kind in SECTIONS.items() if name in params}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.fixture
def problems(tmp_path):
    """Thirty training problems in GSM8K's form and three test problems."""
    for name, count in (("train", 30), ("test", 3)):
        rows = [{"question": f"{name} {n}?", "answer": f"#### {n}"} for n in range(count)]
        write(tmp_path / f"problems/{name}.jsonl", rows)
    return {"source": "files", "path": str(tmp_path / "problems"), "validation": 5}


@pytest.mark.parametrize("section", ["responses", "mixture"])
def test_more_problems_are_passed_over_than_there_are(problems, section):
    configs = given(problems=problems, responses={"skip": 24}, mixture={"skip": 24})
    told = list(data.iterate_data_source_checks(configs, {"problems", "responses", "mixture"}))
    assert told == [f"problems: 25 train, 5 validation, 3 test from {problems['path']}"]
    configs = given(problems=problems, **{"responses": {"skip": 0}, "mixture": {"skip": 0}, section: {"skip": 25}})
    with pytest.raises(StageError) as stopped:
        list(data.iterate_data_source_checks(configs, {"problems", "responses", "mixture"}))
    line = f"params.yaml: {section}.skip: expected less than the 25 training problems that there are, got 25"
    assert str(stopped.value) == line
    assert list(data.iterate_data_source_checks(configs, {"problems"})), (
        "a section that no stage of the run reads is not asked"
    )


def test_each_source_is_counted(tmp_path):
    chats = write(tmp_path / "chats.jsonl", [{"prompt": f"{n}?", "completion": "Yes."} for n in range(10)])
    pairs = [{"prompt": f"{n}?", "chosen": "a", "rejected": "b" if n else "a"} for n in range(11)]
    files = {"demonstrations": chats, "preferences": write(tmp_path / "pairs.jsonl", [*pairs, pairs[1]])}
    files["evaluate"] = write(tmp_path / "asked.jsonl", [{"question": "2?", "answer": "2"}, {"prompt": "Why?"}])
    write(tmp_path / "prompts/own.jsonl", [{"prompt": f"{n}?", "level": n} for n in range(4)])
    configs = given(
        **{section: {"source": "files", "path": path} for section, path in files.items()},
        mixture={"path": str(tmp_path / "prompts"), "datasets": [mixed("policy")]},
    )
    told = list(data.iterate_data_source_checks(configs, {"demonstrations", "preferences", "mixture", "evaluate@sft"}))
    assert [line.partition(" from /")[0] for line in told] == [
        "demonstrations: 9 to learn from and 1 held out",
        "preferences: 8 pairs to learn from and 2 held out",
        "mixture: 4 prompts in own",
        "evaluate: 2 test problems",
    ]
    assert "left out: 1 of equal texts, 1 repeated, 0 whose prompt is held out" in told[1]
    assert told[3].endswith(", 1 with an answer; without an answer to each nothing is counted as right or wrong")


def test_why_too_little_is_left_is_said_before_that_it_is(tmp_path):
    chats = write(tmp_path / "chats.jsonl", [{"prompt": f"{n}?", "completion": ""} for n in range(3)])
    told = data.iterate_data_source_checks(given(demonstrations={"source": "files", "path": chats}), {"demonstrations"})
    assert next(told) == "demonstrations: rows left out: 3 without an answer"
    with pytest.raises(StageError, match="0 different prompts"):
        next(told)


def test_judgements_are_counted_and_those_that_are_missing(tmp_path):
    """Those that pairs are made of; files of a mixture are read too, and a line that is none is named."""
    file = tmp_path / "people.jsonl"
    for n in range(12):
        rows = [
            {"prompt_id": f"p{n}", "prompt": f"{n}?", "sample": s, "response": f"{s}", "ended": True} for s in (0, 1)
        ]
        judged.write(file, judged.pair(rows, "tie" if n else "a better", ("anna", "ben", "carl")[n % 3]))
    own = {"source": "people", "judgements": str(file), "minimum": 40}
    told = "preferences: 12 judgements by 3 people in " + str(file)
    assert list(data.iterate_data_source_checks(given(preferences=own), {"preferences"})) == [
        f"{told}; waiting for 28 more: posttrain label"
    ]
    assert list(data.iterate_data_source_checks(given(preferences={**own, "minimum": 12}), {"preferences"})) == [told]
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": f"{n}?", "chosen": "a", "rejected": "b"} for n in range(10)])
    shares = {"annotator": 0.0, "people": 0.5, "files": 0.5, "hub": 0.0}
    both = {**own, "source": "mixture", "mixture": shares, "pairs_path": pairs}
    assert len(list(data.iterate_data_source_checks(given(preferences=both), {"preferences"}))) == 2
    with file.open("a") as torn:
        torn.write("{}\n")
    with pytest.raises(StageError, match=r"people\.jsonl:25: kind: expected item, judgement"):
        list(data.iterate_data_source_checks(given(preferences=own), {"preferences"}))


def mixed(reward):
    hub = {"hub_config": None, "hub_revision": None, "hub_split": None}
    return {"name": "own", "source": "file", "location": "own.jsonl", **hub, "weight": 1.0, "reward": reward}


def test_what_a_reward_needs_and_no_row_has_is_named(tmp_path):
    write(tmp_path / "own.jsonl", [{"prompt": "Why?"}])
    configs = given(mixture={"path": str(tmp_path), "datasets": [mixed("verifiable")]})
    with pytest.raises(
        StageError, match=r"own\.jsonl: line 1: there is no answer, which the reward verifiable of own needs"
    ):
        list(data.iterate_data_source_checks(configs, {"mixture"}))


def test_what_a_stage_makes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configs = given(demonstrations={"source": "files", "path": "data/preferences"})
    assert not list(data.iterate_data_source_checks(configs, {"demonstrations"}))
    assert not Path("data").exists()


def test_a_model_from_scratch_knows_no_system_prompts(tmp_path):
    turns = [{"role": role, "content": role} for role in ("system", "user", "assistant")]
    chats = write(tmp_path / "chats.jsonl", [{"messages": turns[1:]}, {"messages": turns}])
    own = {"demonstrations": {"source": "files", "path": chats}}
    with pytest.raises(
        StageError, match=r"chats.jsonl: chats-1: message 1 \(system\): a model from scratch knows user"
    ):
        list(data.iterate_data_source_checks(given(**own), {"demonstrations"}))
    [line] = data.iterate_data_source_checks(given(**own, pretrained={"init": "directory"}), {"demonstrations"})
    assert line.startswith("demonstrations: 1 to learn from and 1 held out"), "a system prompt makes it another prompt"


def test_examples_are_the_users_own(tmp_path, monkeypatch):
    """Not what a run on other files has left, and not the pipeline's problems where none is trained on."""
    monkeypatch.chdir(tmp_path)
    chats = write(tmp_path / "chats.jsonl", [{"prompt": f"{n}?", "completion": "Yes."} for n in range(10)])
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": f"{n}?", "chosen": "a", "rejected": "b"} for n in range(10)])
    asked = write(tmp_path / "asked.jsonl", [{"question": "2?", "answer": "2"}])
    write(tmp_path / "own.jsonl", [{"prompt": "Why?", "level": 3}])
    files = {"demonstrations": chats, "preferences": pairs, "evaluate": asked}
    configs = given(
        **{section: {"source": "files", "path": path} for section, path in files.items()},
        mixture={"path": str(tmp_path), "datasets": [mixed("policy")]},
    )
    assert len(examples.load_demonstration_examples(configs)) == 9
    assert [one["chosen"] for one in examples.load_pair_examples(configs)] == ["a"] * 8
    [prompt] = examples.load_prompt_examples(configs)
    assert (prompt["question"], json.loads(prompt["columns"])) == ("Why?", {"level": 3})
    assert [one["question"] for one in examples.load_test_examples(configs)] == ["2?"]
    sources = (
        examples.load_demonstration_examples,
        examples.load_pair_examples,
        examples.load_prompt_examples,
        examples.load_test_examples,
    )
    assert [*(source(given()) for source in sources), examples.load_problem_examples()] == [[]] * 5, (
        "nothing has been made yet"
    )


@pytest.mark.parametrize(("known", "there"), [(20, 15), (None, None), (3, 0)])
def test_a_hub_sets_problems_are_counted_before_they_are_downloaded(monkeypatch, known, there):
    """Only where a stage passes over some of them: the hub is not asked for nothing."""
    asked = []
    monkeypatch.setattr(data, "fetch_hub_row_count", lambda *what: asked.append(what) or known)
    own = {"source": "hub", "hub_id": "some/sums", "hub_config": "main", "validation": 5}
    configs = given(problems=own, responses={"skip": 14}, mixture={"skip": 15})
    assert list(data.iterate_data_source_checks(configs, {"problems", "sft"})) == []
    assert not asked
    if there != 0:
        told = list(data.iterate_data_source_checks(configs, {"problems", "responses"}))
        assert told == ([] if there is None else [f"problems: at most {there} train in some/sums"])
        assert asked == [("some/sums", "main", "main", "train")]
    if there is not None:
        line = rf"^params.yaml: mixture.skip: expected less than the {there} training problems that there are, got 15$"
        with pytest.raises(StageError, match=line):
            list(data.iterate_data_source_checks(configs, {"problems", "mixture"}))


@pytest.mark.parametrize("place", ["problems", "evaluate"])
def test_files_that_are_too_large_are_left_to_the_stages(problems, tmp_path, monkeypatch, place):
    own = {"source": "files", "path": write(tmp_path / "asked.jsonl", [{"prompt": "Why?"}])}
    configs = given(problems=problems, evaluate=own)
    stages = {"problems": {"problems"}, "evaluate": {"evaluate@sft"}}[place]
    assert len(list(data.iterate_data_source_checks(configs, stages))) == 1
    monkeypatch.setattr(data, "LARGE", 10)
    assert list(data.iterate_data_source_checks(configs, stages)) == []
