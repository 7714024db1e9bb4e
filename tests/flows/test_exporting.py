"""`posttrain export`: the folder loads and answers as before, its card says what the records say, and faults leave
nothing.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from ruamel.yaml import YAML

from flows import exporting
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.lineage.chain import Link
from flows.web.model_card import Card, Made, render_model_card
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import quick
from tests.flows.toy_pipeline import REPOSITORY, call

COPY = """
import json, pathlib, shutil
shutil.copytree("model", "data/sft")
pathlib.Path("data/metrics").mkdir(exist_ok=True)
pathlib.Path("data/metrics/sft.json").write_text(json.dumps({"eval_loss": 1.25, "of": {"a|b": 3}}))
"""
EVALUATE = """
import json, pathlib
pathlib.Path("data/metrics/evaluate@sft.json").write_text(
    json.dumps({"best_temperature": 0.5, "strict_greedy": {"mean": 0.5, "low": 0.25, "high": 0.75}})
)
"""


@pytest.fixture
def trained(toy: Toy, made: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """A pipeline problems -> sft -> evaluate@sft whose model is a copy of a tiny one; all has run and is on record."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    shutil.copytree(made / "pretrained", toy.root / "model")
    toy.write("make_model.py", COPY)
    toy.write("evaluate.py", EVALUATE)
    toy.write("raw.txt", "raw")
    toy.stage("problems", deps=["work.py", "raw.txt"], params=["problems"])
    outs = ["data/sft", "data/metrics/sft.json"]
    toy.stage(
        "sft", cmd="python make_model.py", deps=["make_model.py", "model", "data/problems"], outs=outs, desc="A toy"
    )
    toy.stages["evaluate"] = {
        "matrix": {"policy": ["sft"]},
        "cmd": "python evaluate.py",
        "deps": ["evaluate.py", "data/${item.policy}"],
        "params": ["evaluate"],
        "outs": ["data/metrics/evaluate@${item.policy}.json"],
    }
    toy.set(evaluate={"problems": 20}, sft={"epochs": 3, "rate": 1e-5}, problems={"source": "made: up"})
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    with quick():
        toy.run(recorder=FlowRecorder(toy.root, "language"))
    return toy


def exported(toy: Toy, target: Path) -> tuple[str, list[str]]:
    """The card, and the remarks."""
    remarks = exporting.export_model(toy.root, "sft", target)
    return (target / "README.md").read_text(), remarks


def parameters(card: str) -> Mapping[str, Any]:
    blocks = re.findall("```yaml\n(.*?)```", card, re.DOTALL)
    found: dict[str, Any] = YAML(typ="safe").load("\n".join(blocks))
    return found


@pytest.mark.slow
def test_the_folder_answers_token_for_token_and_its_card_is_that_of_the_records(
    trained: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "new" / "my-model"
    code, out, error = call(trained.root, "export", "data/sft", str(target))
    assert (error, code) == ("", 0)
    assert out.startswith(f"{target}: model and card; choose a license in its README.md\nto upload it: hf upload ")
    before, after = (AutoModelForCausalLM.from_pretrained(path) for path in (trained.root / "data/sft", target))
    assert all(torch.equal(weight, before.state_dict()[name]) for name, weight in after.state_dict().items())
    answers = []
    for path, model in ((trained.root / "data/sft", before), (target, after)):
        words = AutoTokenizer.from_pretrained(path)
        asked = words.apply_chat_template(
            [{"role": "user", "content": "How many?"}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        answers.append(model.generate(**asked, do_sample=False, max_new_tokens=20).tolist())
    assert answers[0] == answers[1]
    assert not (target.stat().st_mode & 0o077) ^ 0o055, "others may read it as they may any new folder"

    card = (target / "README.md").read_text()
    head = YAML(typ="safe").load(card.split("---\n")[1])
    tags = ["posttrain", "sft"]
    assert ModelCard.load(target / "README.md").data.to_dict() == head, "as the hub's own reader has it"
    assert head == {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": tags}
    assert "# license: none was chosen" in card
    assert parameters(card) == {
        "problems.source": "made: up",
        "sft.epochs": 3,
        "sft.rate": 1e-5,
        "evaluate.problems": 20,
    }
    assert "| `strict_greedy` | 0.5 | 0.25 to 0.75 | The share of the problems whose greedy answer is right by" in card
    assert "| `eval_loss` | 1.25 |" in card
    assert "| `of/a\\|b` | 3 |" in card
    hashes = {out["path"]: out["md5"] for stage in trained.lock["stages"].values() for out in stage["outs"]}
    for stage in ("problems", "sft"):
        assert f"| `data/{stage}` | {hashes[f'data/{stage}']} | {stage} |" in card
    assert len(set(re.findall(r"\| ([0-9a-f]{32}) \|$", card, re.MULTILINE))) == 2, "two runs"
    assert "- `raw.txt` " in card

    monkeypatch.chdir(target.parent)
    said: list[object] = []
    exec(re.findall("```python\n(.*?)```", card, re.DOTALL)[0], {"print": said.append})
    assert said


@pytest.mark.slow
def test_a_model_that_is_out_of_date_says_with_what_it_was_made(trained: Toy, tmp_path: Path) -> None:
    trained.set(sft={"epochs": 4, "rate": 1e-5})
    card, remarks = exported(trained, tmp_path / "model")
    assert remarks == ["sft is out of date (param sft.epochs changed 3 -> 4); the card says so"]
    assert (
        "> **Out of date.** When this was exported, `sft` would have run again: param sft.epochs changed 3 -> 4."
        in card
    )
    assert parameters(card)["sft.epochs"] == 3


@pytest.mark.slow
def test_an_evaluation_of_another_version_is_not_shown(trained: Toy, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tmp_path / "elsewhere")
    trained.write("model/generation_config.json", "{}")
    trained.run("sft")
    card, remarks = exported(trained, tmp_path / "model")
    assert remarks == ["the card has no evaluation: evaluate@sft has not run on this model"]
    assert "`evaluate@sft` has not run on this model." in card
    assert "strict_greedy" not in card
    assert "the chain breaks here: dvc.lock says that sft made it, but no MLflow run is on record" in card


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(trained: Toy, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    cases = {
        "full": ("sft", "not empty; expected a folder to make"),
        "link": ("sft", f"{tmp_path / 'full'}: not empty; expected a folder to make"),
        str(trained.root / "data/sft/inner"): ("sft", "inner: within data/sft, which belongs to the pipeline"),
        "a": ("nosuch", "nosuch: neither a folder nor a stage that has run"),
        "b": ("problems", "problems: this stage makes no model; its outs are data/problems"),
        "c": (str(trained.root / "model"), "model: no stage's model; expected a stage"),
    }
    for name, (of, message) in cases.items():
        code, out, error = call(trained.root, "export", of, str(tmp_path / name))
        assert (code, out, error.count("\n")) == (2, "", 1)
        assert message in error
    weights = trained.root / "data/sft/model.safetensors"
    content = weights.read_bytes()
    weights.unlink()  # it may be a link into DVC's cache
    weights.write_bytes(content[:-1] + b"x")
    with pytest.raises(PlanError, match=r"^data/sft: not as sft made it, so a model card would not be true; run sft"):
        exported(trained, tmp_path / "d")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "link", "toy"]
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["file"]


@pytest.mark.slow
def test_a_model_that_does_not_load_leaves_nothing(trained: Toy, tmp_path: Path) -> None:
    (trained.root / "model/tokenizer.json").unlink()
    (trained.root / "model/tokenizer_config.json").unlink()
    trained.run("sft")
    with pytest.raises(PlanError, match=r"^data/sft: cannot be loaded \("):
        exported(trained, tmp_path / "d")
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


FACTS = {"architecture": "A", "weights": 1, "dtype": "bfloat16", "context": None, "meanings": {}, "beta": 2.0}


@pytest.mark.parametrize(
    ("kind", "task"),
    [("policy", "text-generation"), ("log_probability", "text-generation"), ("classifier", "text-classification")],
)
def test_the_head_names_the_kind_of_model_and_what_it_began_from(kind: str, task: str) -> None:
    first, link = Link("data/pretrained", "1", "pretrained"), Link("data/m", "2", "m", dirty="no")
    params = {"pretrained.init": "hub", "pretrained.hub_id": "some/base"}
    made = [Made(first, "", params), Made(link, "A model", {})]
    card = render_model_card(Card('x"y\n---\nz: 1', "m", link, {**FACTS, "kind": kind}, made, {}, None, {}, None))
    head = YAML(typ="safe").load(card.split("---\n")[1])
    assert '\n# x"y --- z: 1\n' in card
    assert 'AutoTokenizer.from_pretrained("x\\"y\\n---\\nz: 1")' in card
    assert (head["pipeline_tag"], head["base_model"]) == (task, "some/base")
    assert ("reward-model" in head["tags"]) == (kind != "policy")
    assert ("AutoModelForSequenceClassification" in card) == (kind == "classifier")
    assert ("`evaluate@m` has not run on this model." in card) == (kind == "policy")
    assert ("2 times the mean log-probability" in card) == (kind == "log_probability")
    for objective, said in (
        ("process", "a step a probability of not being bad"),
        ("outcome", "an answer a probability of being right"),
    ):
        facts = {**FACTS, "kind": kind, "objective": objective, "threshold": 0.3}
        found = render_model_card(Card("x", "m", link, facts, made, {}, None, {}, None))
        assert (f"{said}: sigmoid(2 (m + 0.3))" in found) == (kind == "log_probability")
    compile(re.findall("```python\n(.*?)```", card, re.DOTALL)[0], "card", "exec")
    scratch = [Made(first, "", {**params, "pretrained.init": "scratch"}), *made[1:]]
    assert "base_model" not in render_model_card(
        Card("x", "m", link, {**FACTS, "kind": kind}, scratch, {}, None, {}, None)
    )
    assert json.dumps(params) not in card
