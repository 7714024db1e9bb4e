"""The whole flow over the real dvc.yaml, with tiny params, in a copy of this repository; all tests take minutes and are
slow.
"""

import json
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.lineage.auditing import audit_lineage
from tasks import check
from tests import repository
from tests.clone import ROOT, Clone, states

pytestmark = pytest.mark.slow
SHARED = ROOT.parent / "shared"
TUNED = ("rejection_sft", "dpo", "reinforce", "ppo", "grpo")
CONTROLS = ("sft_matched",)
POLICIES = ("pretrained", "sft", *CONTROLS, *TUNED)
PRESETS = ("solutions",)  # stages that a default run does without
STAGES = {  # this flow's other stages in dvc.yaml
    f"{name}@{policy}" if policy else name
    for name, stage in YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"].items()
    if "tasks.language." in stage.get("do", stage)["cmd"] and name not in PRESETS
    for policy in ([""] if "foreach" not in stage else CONTROLS if name == "sft_control" else POLICIES)
} | {"code"}
SHORT = {"steps": 3, "prompts_per_step": 4, "max_new_tokens": 24, "evaluate_every": 2, "evaluate_prompts": 4}
TINY: dict[str, dict[str, Any]] = {
    "problems": {"train": 260, "validation": 16, "test": 12, "one_step": 1.0, "two_steps": 0.0, "three_steps": 0.0},
    "corpus": {"facts": 200, "solutions": 260, "stories": 20},
    "tokenizer": {"vocabulary": 400},
    "pretrained": {"width": 32, "layers": 2, "heads": 2, "context": 192, "batch_size": 4, "steps": 30},
    "sft": {"demonstrations": 200, "batch_size": 16},
    "sft_control": {"policies": {"sft_matched": {"epochs": 1}}, "skip": 200, "demonstrations": 60, "batch_size": 16},
    "responses": {"skip": 200, "prompts": 40, "max_new_tokens": 24},
    "preferences": {"temperature": 2.0, "tie_margin": 0.0},
    "reward_model": {"epochs": 1, "prompts_per_batch": 8},
    "dpo": {"epochs": 1, "prompts_per_batch": 8, "beta": 0.1},
    "mixture": {"skip": 200},
    "rejection_sft": {"prompts": 20, "samples": 2, "max_new_tokens": 24, "minimum_reward": 0.0},
    "reinforce": {**SHORT, "variance_every": 2, "variance_parts": 2},
    "ppo": SHORT,
    "grpo": {**SHORT, "samples": 4},
    "evaluate": {
        "problems": 10,
        "samples": 2,
        "candidates": [0.3, 1.0],
        "validation_problems": 8,
        "pass_at": [1, 2],
        "max_new_tokens": 24,
        "bootstrap": 50,
    },
    "report": {"policies": [*POLICIES]},
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone.of_this(tmp_path_factory.mktemp("clone") / "posttrain", TINY)


@pytest.fixture(scope="module")
def first(clone: Clone) -> dict[str, Any]:
    """The first run's result for each stage."""
    return clone.posttrain("run", "language")


@pytest.mark.core
def test_every_stage_runs(clone: Clone, first: dict[str, Any]) -> None:
    assert states(first) == {"ran": STAGES}
    assert all(facts["mlflow_run_id"] for facts in first.values())
    outs = [out["path"] for stage in clone.lock.values() for out in stage["outs"]]
    assert len(outs) > 2 * len(STAGES)
    assert [problem for out in outs for problem in check.find_file_problems(clone.root / out)] == []
    assert clone.call("git", "status", "--porcelain").splitlines() == ["?? dvc.lock"], "nothing lies where git sees it"


def test_models_load_as_people_load_them(clone: Clone, first: dict[str, Any]) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    for name in POLICIES:
        model = AutoModelForCausalLM.from_pretrained(clone.root / "data" / name)
        words = AutoTokenizer.from_pretrained(clone.root / "data" / name)
        asked = words.apply_chat_template([{"role": "user", "content": "Why?"}], return_tensors="pt", return_dict=True)
        assert model(**asked).logits.shape[-1] == len(words)
    scorer = AutoModelForSequenceClassification.from_pretrained(clone.root / "data/reward_model")
    assert scorer(**asked).logits.shape == (1, 1)


def test_a_second_run_does_nothing_and_dvc_agrees(clone: Clone, first: dict[str, Any]) -> None:
    assert states(clone.posttrain("run", "language")) == {"up-to-date": STAGES}
    lock = (clone.root / "dvc.lock").read_bytes()
    assert clone.dvc("status", "--with-deps", "report").strip() == "Data and pipelines are up to date."
    repro = clone.dvc("repro", "report")
    assert repro.count("didn't change, skipping") == len(STAGES)
    assert "Running stage" not in repro
    assert (clone.root / "dvc.lock").read_bytes() == lock


def test_its_audit_is_clean_and_names_what_was_falsified(clone: Clone, first: dict[str, Any], tmp_path: Path) -> None:
    for scope in ((), ("--all",), ("evaluate@dpo",)):
        found = json.loads(clone.call(sys.executable, "-m", "flows.cli", "audit", "--json", *scope))
        assert (found["faults"], found["remarks"]) == ([], [])
        assert found["seconds"] < 60
    assert found["checked"]["code files"] > 5, "one for each stage"
    shutil.copytree(clone.root, tmp_path / "copy")
    model = tmp_path / "copy/data/dpo/model.safetensors"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.unlink()
    model.write_bytes(content)
    page = tmp_path / "copy/report.html"
    page.write_text(page.read_text().replace("<td>0.", "<td>0.9", 1))
    faults = [finding.line for finding in audit_lineage(tmp_path / "copy").faults]
    assert len(faults) == 2, faults
    assert faults[0].startswith("data/dpo/model.safetensors: its bytes are ")
    assert faults[1].startswith("report.html: ")


def test_metrics_and_plots_work(clone: Clone, first: dict[str, Any]) -> None:
    shown = json.loads(clone.dvc("metrics", "show", "--json"))[""]["data"]
    policies = {path: of["data"] for path, of in shown.items() if "data" in of}
    assert policies.keys() == {f"data/report/metrics/{policy}.json" for policy in POLICIES}
    assert all(0 <= of["strict_greedy"] <= 1 for of in policies.values())
    table = clone.dvc("metrics", "show").splitlines()
    assert len(table[0]) < 200
    one = json.loads(clone.dvc("metrics", "show", "--json", "data/metrics/reward_model.json"))[""]["data"]
    assert 0 <= one["data/metrics/reward_model.json"]["data"]["accuracy"] <= 1
    assert json.loads(clone.dvc("metrics", "diff", "--json")) is not None
    plots = json.loads(clone.dvc("plots", "show", "--json"))
    curves = set(json.dumps(plots).split('"')) & {f"data/curves/{name}.csv" for name in ("sft", "reward_model", *TUNED)}
    assert len(curves) == 7
    page = clone.root / clone.dvc("plots", "show", "--out", "plots").strip().removeprefix("file://")
    assert page.is_file()
    shutil.rmtree(page.parent)


def test_a_clone_that_pulls_the_results_has_their_lineage_and_runs_nothing(
    clone: Clone, first: dict[str, Any], tmp_path: Path
) -> None:
    """The folder between them stands for any remote of DVC."""
    twin, store = clone.twin(tmp_path / "twin"), tmp_path / "store"
    store.mkdir()
    for copy in (clone, twin):
        copy.dvc("remote", "add", "--local", "--quiet", "--default", "store", str(store))
    clone.dvc("push", "--quiet")
    clone.dvc("push", "--quiet", "--run-cache")
    shutil.copyfile(clone.root / "dvc.lock", twin.root / "dvc.lock")  # as a commit of it brings it
    twin.dvc(
        "pull", "--quiet", "--run-cache", "--with-deps", "report"
    )  # plain `dvc pull` fails for want of the other flow's results
    again = twin.posttrain("run", "language")
    assert states(again) == {"up-to-date": STAGES}
    assert {facts["mlflow_run_id"] for facts in again.values()} == {None}, "no run of this clone's MLflow made them"
    lineage = json.loads(twin.call(sys.executable, "-m", "flows.cli", "lineage", "report", "--json"))
    traced = {run["stage"]: run["id"] for run in lineage["runs"]}
    makers = {stage: facts["mlflow_run_id"] for stage, facts in first.items() if stage != "code"}
    assert traced == makers, "the runs of the other clone, for all but the digests of the code"
    audited = json.loads(twin.call(sys.executable, "-m", "flows.cli", "audit", "--all", "--json"))
    assert audited["faults"] == []


def test_the_same_params_from_an_empty_cache_give_the_same_hashes(
    clone: Clone, first: dict[str, Any], tmp_path: Path
) -> None:
    """The engine runs stages in parallel; plain `dvc repro` runs them one after another in another clone.

    Of the evaluations, which are one command, it runs one; the engine makes the others there, since each is a start of
    Python that takes seconds.
    """
    twin = clone.twin(tmp_path / "twin")
    assert not (twin.root / ".dvc/cache").exists()
    others = {f"evaluate@{policy}" for policy in POLICIES if policy != "dpo"}
    stages = [f"sft_control@{policy}" if policy in CONTROLS else policy for policy in POLICIES]
    assert twin.dvc("repro", *stages, "evaluate@dpo").count("Running stage") == len(STAGES - others) - 1
    assert states(twin.posttrain("run", *sorted(others)))["ran"] == others
    assert twin.dvc("repro", "report").count("Running stage") == 1
    hashes = [
        {out["path"]: out["md5"] for stage in copy.lock.values() for out in stage["outs"]} for copy in (clone, twin)
    ]
    assert {path for path in hashes[0] if hashes[0][path] != hashes[1].get(path)} == set()
    assert clone.lock == twin.lock


def test_a_comment_runs_code_alone_and_an_edit_the_stages_that_reach_it_and_none_after_them(
    clone: Clone, first: dict[str, Any]
) -> None:
    module = clone.root / "tasks/algorithms/language/dpo.py"
    before = module.read_text()
    module.write_text(before + "# A comment changes no byte of an out.\n")
    assert states(clone.posttrain("run", "language")) == {"ran": {"code"}, "up-to-date": STAGES - {"code"}}
    assert clone.dvc("status", "--with-deps", "report").strip() == "Data and pipelines are up to date."
    module.write_text(before + 'print(end="")  # at the import\n')
    again = {"code", "dpo"}
    assert states(clone.posttrain("run", "language")) == {"ran": again, "up-to-date": STAGES - again}
    module.write_text(before)
    assert states(clone.posttrain("run", "language")) == {"restored": again, "up-to-date": STAGES - again}


def test_a_number_re_runs_what_depends_on_it_and_back_again_nothing(clone: Clone, first: dict[str, Any]) -> None:
    below = {"dpo", "evaluate@dpo", "report"}
    changed = states(clone.posttrain("run", "language", "--set", "dpo.beta=0.5"))
    assert changed == {"ran": below, "up-to-date": STAGES - below}
    diff = json.loads(clone.dvc("metrics", "diff", "--json"))
    assert diff
    back = states(clone.posttrain("run", "language", "--set", "dpo.beta=0.1"))
    assert back == {"restored": below, "up-to-date": STAGES - below}


def test_a_reward_in_python_re_runs_the_policies_that_use_it(clone: Clone, first: dict[str, Any]) -> None:
    """Under `posttrain run` and plain `dvc repro`; a file that no policy uses, beside it, runs nothing."""
    mine, other = clone.root / "rewards/mine.py", clone.root / "rewards/other.py"
    mine.write_text("def length(responses, **columns): return [len(one) / 100 for one in responses]\n")
    settings = ('grpo.reward={"rewards/mine.py:length": 1.0}', "grpo.reward_files=rewards/mine.py")
    result = clone.posttrain("run", "language", *(word for one in settings for word in ("--set", one)))
    below = {"grpo", "evaluate@grpo", "report"}
    assert states(result) == {"ran": below, "up-to-date": STAGES - below}
    other.write_text("def other(responses): return [0.0] * len(responses)\n")
    assert states(clone.posttrain("run", "language")) == {"up-to-date": STAGES}
    mine.write_text(mine.read_text() + "# A comment changes no reward.\n")
    assert clone.dvc("status", "grpo").split() == ["grpo:", "changed", "deps:", "modified:", "rewards/mine.py"]
    repro = clone.dvc("repro", "report")
    assert repro.count("Running stage") == 1
    assert "Running stage 'grpo'" in repro
    mine.write_text(mine.read_text().replace("/ 100", "/ 50"))
    assert states(clone.posttrain("run", "language")) == {"ran": below, "up-to-date": STAGES - below}
    back = clone.posttrain(
        "run", "language", "--set", "grpo.reward={verifiable: 1.0}", "--set", "grpo.reward_files=rewards/none"
    )
    assert states(back) == {"restored": below, "up-to-date": STAGES - below}
    mine.unlink()
    other.unlink()


def test_real_problems_and_a_real_model(tmp_path: Path) -> None:
    """GSM8K's own files and a model of 260,000 weights with its own tokenizer, through the same stages."""
    data, model = SHARED / "data/gsm8k", SHARED / "models/stories260K"
    if not (data.is_dir() and model.is_dir()):
        pytest.skip(f"{repository.needs('data/gsm8k')}; {repository.needs('models/stories260K')}")
    short = tmp_path / "short"  # the model has 512 positions, and a character takes at most one
    short.mkdir()
    for name in ("train.jsonl", "test.jsonl"):
        lines = (line for line in (data / name).read_text().splitlines() if len(line) < 450 and line.isascii())
        (short / name).write_text("\n".join(islice(lines, 150)))
    real: dict[str, dict[str, Any]] = {
        **TINY,
        "problems": {"source": "files", "path": str(short), "train": 100, "validation": 8, "test": 8},
        "pretrained": {"init": "directory", "path": str(model)},
        "sft": {"demonstrations": 60, "batch_size": 12},
        "sft_control": {**TINY["sft_control"], "skip": 60, "demonstrations": 30},
        "responses": {"skip": 60, "prompts": 30, "max_new_tokens": 24},
        "mixture": {"skip": 60},
        "evaluate": {**TINY["evaluate"], "problems": 6},
    }
    clone = Clone.of_this(tmp_path / "posttrain", real)
    assert states(clone.posttrain("run", "language")) == {"ran": STAGES}
    outs = [out["path"] for stage in clone.lock.values() for out in stage["outs"]]
    assert [problem for out in outs for problem in check.find_file_problems(clone.root / out)] == []
    assert json.loads((clone.root / "data/dpo/config.json").read_text())["vocab_size"] == 512
    assert states(clone.posttrain("run", "language")) == {"up-to-date": STAGES}
