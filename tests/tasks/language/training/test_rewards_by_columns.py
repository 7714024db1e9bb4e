"""Policies trained by what a prompt's columns say: constraints that a program checks, and tests of code."""

import json
import shutil

import pandas as pd
import pytest

from tasks.common import tables
from tasks.language.data import problem_forms
from tasks.language.data.rows import read_files
from tasks.language.rewards.reward import load
from tasks.language.tables.problems import Prompts
from tests.tasks.policies import STAGES, marked, train

CONSTRAINTS = {
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{}, {"num_words": 3, "relation": "at least"}],
}
CODE = {"inputs": [""], "outputs": [""]}  # an answer that is no Python fails


@pytest.fixture
def home(ready, tmp_path):
    """The tests' own pipeline, whose prompts ask for constraints, for code, and for what the policy counts."""
    home = tmp_path / "home"
    shutil.copytree(ready / "mixture", home / "mixture")
    for name in ("pretrained", "problems", "reward_model"):
        (home / name).symlink_to(ready / name)
    table = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(6)
    columns = [json.dumps(CONSTRAINTS), json.dumps(CODE), ""] * 2
    mixed = table.assign(reward=["constraints", "code", "policy"] * 2, columns=columns)
    tables.write_table(Prompts, mixed, home / "mixture/prompts.parquet")
    return home


@pytest.mark.parametrize("stage", marked(STAGES, ["rejection_sft"]))
def test_every_policy_can_be_trained_by_them(home, tmp_path, stage):
    changes = {
        "reward": "verifiable",
        **({"minimum_reward": 0.0, "max_new_tokens": 3, "samples": 2} if stage == "rejection_sft" else {}),
    }
    metrics = train(stage, home, tmp_path / "one", **changes)
    assert train(stage, home, tmp_path / "two", **changes) == metrics
    for name in ("model/model.safetensors", "curve.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    if stage != "rejection_sft":
        curve = pd.read_csv(tmp_path / "one/curve.csv")
        for name in ("constraints", "all_constraints", "code"):
            assert curve[f"rewards/{name}"].between(0, 1).all()
        assert (curve["rewards/constraints"] >= curve["rewards/all_constraints"]).all()
        assert curve["rewards/constraints"].max() > 0


ROWS = {
    "constraints": [
        {"key": 1, "prompt": "Write.", **CONSTRAINTS},
        {"key": 2, "prompt": "Say.", "instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["b"]}]},
    ],
    "code": [{"task_id": 1, "text": "Write f.", "code": "f = int", "test_list": ["assert f(1) == 1"], "test_setup_code": ""}],  # noqa: E501
    "code/2": [{"task_id": "a", "prompt": "def f():\n", "test": "def check(c):\n    assert c()", "entry_point": "f"}],
    "code/3": [{"question": "Add.", "input_output": json.dumps({"inputs": ["1"], "outputs": ["1"]}), "solutions": ""}],
}  # fmt: skip


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rows_in_the_forms_of_public_sets_reach_the_rewards(tmp_path, kind, form):
    """In a Parquet file each row has all arguments of the others, those that it lacks as nulls."""
    path = tmp_path / f"rows.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[kind]))
    else:
        pd.DataFrame(ROWS[kind]).to_parquet(path)
    found = problem_forms.parse_problems(read_files(path))
    reads = load(kind.partition("/")[0]).columns
    assert len(found) == len(ROWS[kind])
    for row in found:
        columns = json.loads(row["columns"])
        assert reads.has(columns)
        assert reads.fault(columns) is None
