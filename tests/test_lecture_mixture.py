"""The lecture's mixture: instructions, mathematics, code and chat, drawn from local files by its weights, each with its
reward.
"""

import json
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.params import editing
from tasks.common import tables
from tasks.language import mixture, problems
from tasks.language.configs.mixture import MixtureConfig
from tasks.language.rewards import weighted_rewards
from tasks.language.rewards.code_tests import CodeJudge
from tasks.language.rewards.reward import AnsweredProblem
from tasks.language.rewards.verifier import Verifier
from tasks.language.tables.problems import Prompts
from tests import repository
from tests.conftest import SECTIONS, tiny
from tests.tasks.language.rewards.math_in_process import verifier_in_process

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared/data"
LECTURE = {"instructions": 30_186, "math": 30_186, "code": 23_110, "chat": 21_387}  # prompts, of 104,869


def by_hand(count=60):
    """Rows of each of the four files."""
    own = {
        "instructions": lambda n: {
            "prompt": f"Write about the number {n}.",
            "instruction_id_list": ["length_constraints:number_words", "punctuation:no_comma"],
            "kwargs": [{"num_words": 3, "relation": "at least"}, {}],
        },
        "math": lambda n: {"problem": f"Halve {n}.", "answer": f"\\frac{{{n}}}{{2}}"},
        "code": lambda n: {"prompt": f"Write add{n}.", "tests": [f"assert add{n}(1, 2) == {3 + n}"]},
        "chat": lambda n: {"prompt": f"How was day {n}?"},
    }
    return {name: [row(n) for n in range(count)] for name, row in own.items()}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A folder with generated problems."""
    root = tmp_path_factory.mktemp("generated")
    problems.run(tiny(problems.ProblemsConfig, "problems"), root, root / "problems")
    return root / "problems"


def drawn(rows, generated, tmp_path, prompts=100):
    """The preset's mixture of these rows, with fewer prompts."""
    repository.write_params(tmp_path)
    editing.edit_params(tmp_path, SECTIONS, editing.load_preset_edits(ROOT, SECTIONS, "lecture-mixture"))
    config = MixtureConfig.parse_section(YAML(typ="safe").load(tmp_path / "params.yaml")["mixture"])
    for name, given in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, given)))
    metrics = mixture.run(config.model_copy(update={"prompts": prompts}), generated, tmp_path, tmp_path / "out")
    return config, metrics, tables.read_table(Prompts, tmp_path / "out/prompts.parquet")


def test_its_weights_are_the_lectures(generated, tmp_path):
    config, metrics, table = drawn(by_hand(), generated, tmp_path)
    assert {one.name: one.weight for one in config.datasets} == LECTURE
    assert config.prompts == sum(LECTURE.values()) == 104_869
    assert metrics["drawn"] == {"instructions": 29, "math": 29, "code": 22, "chat": 20}
    asked = {"instructions": "constraints", "math": "verifiable", "code": "code", "chat": "reward_model"}
    assert dict(zip(table["dataset"], table["reward"], strict=True)) == asked


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's lock for programs is Linux's")
def test_each_reward_reads_the_columns_of_its_prompts(generated, tmp_path):
    _, _, table = drawn(by_hand(), generated, tmp_path)
    first = {name: group.iloc[0] for name, group in table.groupby("dataset")}
    number = int(first["code"]["question"].removeprefix("Write add").rstrip("."))
    good = {
        "instructions": "It is a number.",
        "math": f"It is \\boxed{{{first['math']['answer']}}}",
        "code": f"```python\ndef add{number}(a, b):\n    return a + b + {number}\n```",
    }
    bad = {
        "instructions": "Well, yes",
        "math": "It is \\boxed{1000}",
        "code": "```python\ndef add(a, b): return 0\n```",
    }
    with verifier_in_process() as verifier, CodeJudge() as code:
        for name, told in ((name, answers[name]) for answers in (good, bad) for name in good):
            row = first[name]
            columns = json.loads(row["columns"]) if row["columns"] else {}
            one = AnsweredProblem(row["question"], row["solution"], row["answer"], told, True, columns)
            found = (
                weighted_rewards.compute_weighted_rewards([one], {row["reward"]: 1.0}, verifier, helpers={"code": code})
                .total[0]
                .item()
            )
            assert found == (1.0 if told in good.values() else 0.0), name


@pytest.mark.skipif(not SHARED.is_dir(), reason=repository.needs("data"))
def test_real_mathematics_and_chat_are_drawn(generated, tmp_path):
    """MATH-500's problems with their LaTeX answers, and UltraFeedback's prompts."""
    rows = by_hand()
    for name, file in (("math", "math500/test"), ("chat", "ultrafeedback/test")):
        rows[name] = [json.loads(line) for line in (SHARED / f"{file}.jsonl").read_text().splitlines()]
    _, metrics, table = drawn(rows, generated, tmp_path, prompts=200)
    assert metrics["drawn"] == {"instructions": 58, "math": 57, "code": 44, "chat": 41}
    mathematics = table[table["dataset"] == "math"]
    assert mathematics["columns"].map(json.loads).map(lambda one: one["subject"]).nunique() > 3
    with Verifier() as verifier:
        verdicts = verifier(mathematics["answer"].tolist(), mathematics["solution"].tolist())
    assert sum(verdicts) == len(mathematics)
