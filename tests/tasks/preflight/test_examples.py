"""`posttrain check` on the prompts, pairs and demonstrations that a run would use: lengths, rewards, leakage."""

import json
from copy import deepcopy

import pytest

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language import mixture
from tasks.language.tables.problems import Problems, Prompts
from tasks.preflight import data, examples
from tasks.preflight.__main__ import iterate_language_checks
from tests.conftest import PARAMS, SECTIONS, TINY

HUB = {"hub_config": None, "hub_revision": None, "hub_split": None}
SAMPLED = ["mixture", "grpo"]
CONTEXT = TINY["pretrained"]["context"]
LONG = "Why? " * CONTEXT


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A working directory with the first stages' outs; the Configs with changes by section; and files of rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("problems", "tokenizer"):
        (tmp_path / "data" / name).symlink_to(made / name)


def given(**changes):
    params = deepcopy(PARAMS)
    for section, values in [*TINY.items(), *changes.items()]:
        params[section] |= values
    return {name: kind.model_validate(params[name]) for name, kind in SECTIONS.items() if name in params}


def of_file(location, **changes):
    one = {"name": "own", "source": "file", "location": location, **HUB, "weight": 1.0, "reward": "policy", **changes}
    return {"path": ".", "prompts": 100, "datasets": [one]}


def write(tmp_path, name, rows):
    (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    return name


def told(configs, stages):
    return [*data.iterate_data_source_checks(configs, stages), *iterate_language_checks(configs, stages, False, {})]


def test_the_mixtures_prompts_are_those_that_would_be_drawn(home, tmp_path):
    """The very rows of the stage, from files and from problems; of a hub set those that the stage has drawn already."""
    location = write(tmp_path, "own.jsonl", [{"prompt": f"{n}?"} for n in range(9)])
    mixed = given(mixture=of_file(location, weight=3.0))["mixture"]
    both = mixed.model_copy(update={"datasets": [*mixed.datasets, *given()["mixture"].datasets], "skip": 32})
    mixture.run(both, tmp_path / "data/problems", tmp_path, tmp_path / "data/mixture")
    read = (tables.read_table(Prompts, tmp_path / f"data/mixture/{name}.parquet") for name in ("prompts", "validation"))
    expected = [row for table in read for row in tables.list_records(table)]
    found = examples.load_prompt_examples({"mixture": both})
    assert [(row["prompt_id"], row["question"]) for row in found] == [
        (row["prompt_id"], row["question"]) for row in expected
    ]
    of_hub = {"source": "hub", "hub_revision": "main", "hub_split": "train"}
    assert examples.load_prompt_examples(given(mixture=of_file("some/set", **of_hub))) == expected
    (tmp_path / "data/problems").unlink()
    for config in (mixed, both):
        assert len(examples.load_prompt_examples({"mixture": config})) == 9, "a set of files needs no problems"


@pytest.mark.parametrize("section", ["grpo", "rejection_sft"])
def test_a_prompt_of_ones_own_that_leaves_no_room_is_found_before_training(home, tmp_path, section):
    location = write(tmp_path, "own.jsonl", [{"prompt": "Why?"}, {"prompt": "How?"}, {"prompt": LONG}])
    configs = given(mixture=of_file(location, reward="format"))
    line = rf"^prompts: the longest has \d+ tokens, with {section}.max_new_tokens = 8 more than the model's {CONTEXT} "
    with pytest.raises(StageError, match=line):
        told(configs, ["mixture", section])
    assert not any(line.startswith("prompts") for line in told(configs, ["mixture", "sft"])), "no stage samples"


def test_test_prompts_that_would_be_left_out_are_counted(home, tmp_path):
    rows = [{"prompt": f"{n}?", "response": "So. " * n} for n in (1, 2, 90)]
    path = write(tmp_path, "asked.jsonl", [*rows, {"prompt": LONG}])
    configs = given(evaluate={"source": "files", "path": path, "max_new_tokens": 16})
    found = told(configs, ["evaluate@sft"])
    limit = f"with evaluate.max_new_tokens = 16 more than the model's {CONTEXT} positions"
    assert f"1 of 4 test problems have {limit}, and would be left out" in found
    assert "evaluate.max_new_tokens = 16 would cut off 1 of 3 references (33 %)" in found
    write(tmp_path, "asked.jsonl", [{"prompt": LONG}])
    with pytest.raises(StageError, match=rf"^test problems: the shortest has \d+ tokens, {limit}$"):
        told(configs, ["evaluate@sft"])


def test_test_prompts_that_are_trained_on_are_counted(home, tmp_path):
    """In files by what the user asks in any turn; the pipeline's own splits share nothing."""
    chats = [{"prompt": f"{n}?", "completion": "Yes."} for n in range(40)]
    chats.append({"messages": [turn for n in (3, 50) for turn in ({"role": "user", "content": f"{n}?"}, REPLY)]})
    pairs = [{"prompt": f"{n}?", "chosen": "a", "rejected": "b"} for n in range(100, 140)]
    files = {"demonstrations": chats, "preferences": pairs, "mixture": [{"prompt": f"{n}?"} for n in (60, 61, 62)]}
    own = {section: write(tmp_path, f"{section}.jsonl", rows) for section, rows in files.items()}
    test = write(tmp_path, "asked.jsonl", [{"prompt": f"{n}?"} for n in (0, 1, 50, 61, 62, 999)])
    configs = given(
        demonstrations={"source": "files", "path": own["demonstrations"], "validation_share": 0.001, "seed": 1},
        preferences={"source": "files", "path": own["preferences"]},
        mixture=of_file(own["mixture"], reward="format"),
        evaluate={"source": "files", "path": test},
    )
    stages = ["demonstrations", "preferences", "mixture", "grpo", "evaluate@grpo"]
    [line] = [line for line in told(configs, stages) if line.startswith("leakage")]
    assert line == "leakage: of 6 test prompts there are 3 in demonstrations, 0 in preferences, 2 in mixture"
    [line] = [line for line in told(given(), [*SAMPLED, "evaluate@grpo"]) if line.startswith("leakage")]
    assert line == "leakage: of 8 test prompts there are 0 in mixture"


def test_each_stage_that_learns_from_pairs_shows_one(home, tmp_path):
    pairs = [{"prompt": "2?", "chosen": "5", "rejected": "6"}, {"prompt": "3?", "chosen": "5", "rejected": "6"}]
    source = {"source": "files", "path": write(tmp_path, "pairs.jsonl", pairs), "seed": 0}
    stages = ["preferences", "reward_model", "dpo"]
    shown = [line for line in told(given(preferences=source), stages) if "an example's" in line]
    assert [line.partition("?<|assistant|>") for line in shown] == [
        (f"{section}: an example's {side} side, trained tokens in brackets: <|user|>{asked}", "?<|assistant|>", answer)
        for section in stages[1:]
        for asked in [shown[0].partition("?<")[0][-1]]
        for side, answer in (("chosen", "[[5<|end|>]]"), ("rejected", "[[6<|end|>]]"))
    ]
    labels = {"objective": "outcome", "data": "data/solutions"}
    lines = told(given(preferences=source, reward_model=labels), stages)
    assert not [line for line in lines if line.startswith("reward_model: pairs")], "it learns from labels"
    assert "no pairs yet for dpo: `posttrain run preferences` makes them" in told(given(), ["dpo"])


REPLY = {"role": "assistant", "content": "Yes."}


def test_rewards_are_tried_on_a_prompt_of_ones_own(home, tmp_path):
    rows = [{"prompt": "Write 1 word.", "answer": "7", "constraints": [{"kind": "keywords", "words": ["one"]}]}] * 2
    configs = given(
        mixture=of_file(write(tmp_path, "own.jsonl", rows)), grpo={"reward": {"verifiable": 1.0, "format": 1.0}}
    )
    found = [
        line.partition(",")[0].partition(" (")[0] for line in told(configs, SAMPLED) if line.startswith("grpo.reward")
    ]
    assert found == ["grpo.reward verifiable: empty 0.00", "grpo.reward format: empty 0.00"]


@pytest.mark.parametrize(
    ("row", "reward", "said"),
    [
        ({"prompt": "Why?"}, {"verifiable": 1.0}, "there is no answer, which the reward verifiable needs"),
        ({"prompt": "Why?"}, {"rubric": 0.5}, "there is no answer, which the reward rubric needs"),
        ({"prompt": "Why?", "tests": 3}, {"code": 1.0}, "reward code: "),
        (
            {"prompt": "Why?", "completions": "x"},
            {"rewards/mine.py:f": 1.0},
            "a column is called completions; expected another name, since rewards get the completions so",
        ),
    ],
)
def test_a_prompt_that_lacks_what_a_stages_reward_reads_is_named(tmp_path, row, reward, said):
    write(tmp_path, "own.jsonl", [row])
    more = {"reward_files": "rewards"} if "rewards/mine.py:f" in reward else {}
    configs = given(mixture={**of_file("own.jsonl"), "path": str(tmp_path)}, grpo={"reward": reward, **more})
    with pytest.raises(StageError) as stopped:
        list(data.iterate_data_source_checks(configs, SAMPLED))
    assert str(stopped.value).startswith(f"grpo: {tmp_path}/own.jsonl: own-0: {said}")
    assert list(data.iterate_data_source_checks(configs, ["mixture"])) == ["mixture: 1 prompts in own"], (
        "no stage of the run asks for it"
    )


def test_pipelines_own_test_problems_are_those_that_are_asked(home):
    table = tables.read_table(Problems, examples.PROBLEMS / "test.parquet")
    assert [row["question"] for row in examples.load_test_examples(given(evaluate={"problems": 5}))] == [
        *table["question"][:5]
    ]
