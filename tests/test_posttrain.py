"""The Python interface, on a small pipeline of real models and tables; what docs/python.md shows runs as it stands
there.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import create_model

import posttrain
from benchmarks.claims import FENCED
from flows.engine.execute import Execution
from flows.engine.stage_types import PlannedStage, Watcher
from flows.params import checking, rules
from tasks.common import models, tables
from tasks.common.config import Config
from tasks.language.tables.evaluation import Measures
from tasks.language.tables.responses import Responses
from tests import repository
from tests.flows.conftest import make_toy, template  # noqa: F401  # fixtures
from tests.flows.toy_pipeline import environ, make_pipeline, quietly, started
from tests.tasks.chats import chat_tokenizer
from tests.tasks.tiny import llama

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/python.md").read_text()
# Makes its outs by copying them from prepared/; a section with epochs above 90 fails.
GIVE = """
import pathlib, re, shutil, sys
name, *outs = sys.argv[1:]
if name == "sft" and int(re.search("epochs[^0-9]+([0-9]+)", pathlib.Path("params.yaml").read_text())[1]) > 90:
    raise SystemExit("too many epochs")
for out in outs:
    source = pathlib.Path("prepared", out)
    pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, out)
"""
TYPES = {
    name: create_model(name, __base__=Config, **dict.fromkeys(keys, int))
    for name, keys in {
        "sft": ["epochs"],
        "responses": ["n"],
        "grpo": ["steps"],
        "evaluate": ["seed", "bootstrap"],
    }.items()
}
RIGHT = {"sft": [0.0, 1.0, 0.0, 0.0], "grpo": [1.0, 1.0, 0.0, 1.0]}  # on four problems


@contextmanager
def recorded(
    root: Path, planned: list[PlannedStage], *, flow: str, jobs: int | None, watch: Watcher, **more: Any
) -> Iterator[Execution]:
    """What executes a sweep, and records it in MLflow in this process."""
    from flows.engine.mlflow_flow_recorder import FlowRecorder

    with more["owner"](None) as owner:
        owner.recorder = recorder = FlowRecorder(root, flow, more["source"])
        execution = Execution(owner, planned, jobs, watch)
        yield execution
        execution.ended = results = execution.results()
        for result in results:
            result.pipeline_run_id = recorder.parent
        owner.close_record(results, True)


def either(root: Path, planned: list[PlannedStage], **more: Any) -> AbstractContextManager[Execution]:
    """A sweep with its records, any other run without."""
    return (recorded if "owner" in more else started)(root, planned, **more)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A folder with a model of some thousand weights and its tokenizer."""
    words, folder = chat_tokenizer("ChatML"), tmp_path_factory.mktemp("policy")
    models.save_model(llama(vocab_size=len(words)), words, folder)
    return folder


@pytest.fixture
def root(make_toy, policy, monkeypatch):  # noqa: F811
    """sft -> responses, grpo -> evaluate@sft and evaluate@grpo, of which nothing has run; the current folder."""
    toy = make_toy("toy")
    prepared = toy.root / "prepared/data"
    answer = {"prompt_id": "p", "prompt": "?", "response": "x", "ended": True, "tokens": [5], "logps": [-1.0]}
    tables.write_table(Responses, pd.DataFrame([{**answer, "sample": 0}]), prepared / "responses/responses.parquet")
    (prepared / "metrics").mkdir()
    (prepared / "curves").mkdir()
    (prepared / "curves/sft.csv").write_text("step,loss\n1,2.5\n")
    (prepared / "metrics/sft.json").write_text('{"eval_loss": 1.5}')
    for name, right in RIGHT.items():
        shutil.copytree(policy, prepared / name)
        rows = [{"problem_id": f"{n}", "metric": "strict_greedy", "value": value} for n, value in enumerate(right)]
        tables.write_table(Measures, pd.DataFrame(rows), prepared / f"evaluate/{name}/measures.parquet")
        (prepared / f"metrics/evaluate@{name}.json").write_text(
            json.dumps({"strict_greedy": {"mean": sum(right) / 4, "low": 0.0, "high": 1.0}})
        )
    toy.write("give.py", GIVE)
    outs = {
        "sft": ["data/sft", "data/curves/sft.csv", "data/metrics/sft.json"],
        "responses": ["data/responses"],
        "grpo": ["data/grpo"],
    }
    for name, made_here in outs.items():
        needs = [] if name == "sft" else ["data/sft"]
        command = f"python give.py {name} {' '.join(made_here)}"
        toy.stage(name, cmd=command, deps=["give.py", *needs], outs=made_here)
    each = ["data/evaluate/${item.policy}", "data/metrics/evaluate@${item.policy}.json"]
    toy.stages["evaluate"] = {
        "matrix": {"policy": [*RIGHT]},
        "cmd": f"python give.py evaluate {' '.join(each)}",
        "deps": ["give.py", "data/${item.policy}"],
        "params": ["evaluate"],
        "outs": each,
    }
    toy.set(sft={"epochs": 1}, responses={"n": 1}, grpo={"steps": 2}, evaluate={"seed": 0, "bootstrap": 200})
    quietly(monkeypatch)
    monkeypatch.setattr(checking, "load_config_classes", lambda root: TYPES)
    monkeypatch.setattr(rules, "RULES", [])
    monkeypatch.chdir(toy.root)
    return toy.root


def test_the_page_shows_each_function_and_runs_as_it_stands(root, empty_mlflow, monkeypatch, capsys):
    """One block after the other, as in a notebook, in a pipeline where only what grpo needs has run before."""
    monkeypatch.setattr("flows.engine.run_session.open_recorded_execution", either)
    (root / "mlruns").mkdir()
    shutil.copy(empty_mlflow, root / "mlruns/mlflow.db")
    posttrain.run("grpo", "responses", quiet=True)
    shown: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, shown)
    assert set(re.findall(r"posttrain\.(\w+)", "".join(FENCED.findall(PAGE)))) >= {
        name for name in posttrain.__all__ if name.islower()
    }
    assert all(f"`{name}`" in PAGE for name in posttrain.__all__ if not name.islower())
    out = capsys.readouterr().out
    assert "params.yaml: sft.epochs: 1 -> 2" in out
    assert "grpo is up to date" in out, "sft was made anew to the same bytes"
    assert "difference    0.5" in out
    assert "--set sft.epohcs: unknown parameter; did you mean sft.epochs?" in out
    points = shown["points"]
    assert list(points.index) == [1, 2]
    assert list(points["evaluate.bootstrap"]) == [100, 200]
    assert list(points["grpo/strict_greedy"]) == [0.75, 0.75]
    assert list(points["sft/strict_greedy/high"]) == [1.0, 1.0]
    assert points["run"].nunique() == 2
    assert list(shown["curve"]["loss"]) == [2.5]
    assert list(shown["responses"]["response"]) == ["x"]
    assert shown["model"].num_parameters() > 1000
    assert shown["tokenizer"].decode(shown["tokenizer"]("a b")["input_ids"], skip_special_tokens=True) == "a b"


def test_runs_return_every_stage_and_are_compared_by_problem_and_a_failure_is_raised_and_keeps_the_rest(root, capsys):
    """grpo gains problems 0 and 3 and loses none, so McNemar's statistic is 2, and p 0.157."""
    assert posttrain.evaluate("grpo", quiet=True) == {"strict_greedy": {"mean": 0.75, "low": 0.0, "high": 1.0}}
    with pytest.raises(posttrain.WrongUseError, match=r"^evaluate@sft: neither a path nor a stage that has run$"):
        posttrain.compare("sft", "grpo")
    done = posttrain.run("evaluate", quiet=True)
    before = dict.fromkeys(("sft", "grpo", "evaluate@grpo"), "up-to-date")
    assert {name: result.state for name, result in done.items()} == {**before, "evaluate@sft": "ran"}
    assert {result.state for result in posttrain.run("evaluate", quiet=True).values()} == {"up-to-date"}
    assert capsys.readouterr() == ("", "")
    row = posttrain.compare("sft", "grpo").loc["strict_greedy"].to_dict()
    low, high = row.pop("low"), row.pop("high")
    assert row.pop("p") == pytest.approx(0.1573, abs=1e-4)
    assert row == {"sft": 0.25, "grpo": 0.75, "difference": 0.5, "gained": 2, "lost": 0}
    assert -0.25 < low < 0 < 0.5 < high < 1, "two of four problems are no proof"
    back = posttrain.compare("grpo", "sft").loc["strict_greedy"]
    assert (back["difference"], back["low"], back["high"]) == (-0.5, -high, -low)
    with pytest.raises(posttrain.StageFailed, match=r"^sft failed: too many epochs .*; log: mlruns/logs/sft\.log$"):
        posttrain.run("grpo", params={"sft.epochs": 99})
    assert "epochs: 99" in (root / "params.yaml").read_text().replace('"', ""), "as after `posttrain run`"
    status = posttrain.status("grpo")
    assert status == {"sft": "param sft.epochs changed 1 -> 99", "grpo": "upstream sft will run"}
    assert posttrain.metrics("sft") == {"eval_loss": 1.5}, "of the last good run"


@pytest.mark.slow
def test_a_sweep_of_which_a_point_fails_raises_that_and_keeps_the_others(root, empty_mlflow, monkeypatch):
    monkeypatch.setattr("flows.engine.run_session.open_recorded_execution", either)
    (root / "mlruns").mkdir()
    shutil.copy(empty_mlflow, root / "mlruns/mlflow.db")
    with pytest.raises(posttrain.StageFailed, match=r"^sweep: some points did not get to their end"):
        posttrain.sweep({"sft.epochs": [2, 99]}, "evaluate", quiet=True)
    assert '"epochs": 1' in (root / "params.yaml").read_text(), "the workspace stays as it was"
    points = posttrain.sweep({"sft.epochs": [2]}, "evaluate", quiet=True)
    assert points.loc[1, "sft/strict_greedy"] == 0.25
    assert len(points.loc[1, "run"]) == 32


@pytest.mark.parametrize(
    ("values", "seeds", "said"),
    [
        ({"sft.epochs": [2, 2]}, [], "^sft.epochs: 2 stands there twice$"),
        ({"sft.epochs": []}, [], r"^sft.epochs: expected a list of values, got \[\]$"),
        ({"sft.epochs": "23"}, [], "^sft.epochs: expected a list of values, got '23'$"),
        ({"sft.epochs": [2]}, [0, 0], "^--seeds: 0 stands there twice$"),
        ({"sft.epochs": [2]}, [-1], "^--seeds -1: expected whole numbers from 0 on"),
    ],
)
def test_a_sweep_refuses_what_the_command_refuses(root, values, seeds, said):
    with pytest.raises(posttrain.ParameterError, match=said):
        posttrain.sweep(values, "evaluate", seeds=seeds)


def test_what_is_not_there_or_not_whole_is_one_line(root):
    posttrain.run("responses", quiet=True)
    for call, message in (
        (lambda: posttrain.run("sfd"), "dvc.yaml: no stage 'sfd'; did you mean 'sft'?"),
        (lambda: posttrain.metrics("grpo"), "grpo: no stage of this name has run"),
        (lambda: posttrain.metrics("responses"), "responses: this stage has no file of metrics"),
        (lambda: posttrain.table("data"), "data: expected one table, there are 2: data/curves/sft.csv, data/resp"),
        (lambda: posttrain.model("responses"), "responses: this stage makes no model; its outs are data/responses"),
        (lambda: posttrain.lineage("grpo"), "grpo: nothing here is named so"),
    ):
        with pytest.raises(posttrain.WrongUseError) as error:
            call()
        assert str(error.value).startswith(message)
    table = root / "data/responses/responses.parquet"
    frame = pd.read_parquet(table).drop(columns="ended")
    table.unlink()  # it may be a link into DVC's cache
    frame.to_parquet(table)
    with pytest.raises(
        posttrain.DataError,
        match=r"responses\.parquet: not a Responses table: column Responses: column_in_dataframe fails for 'ended'",
    ):
        posttrain.table("responses")


@pytest.mark.tree
def test_importing_it_costs_little_and_nothing_imports_it():
    heavy = "{'torch', 'pandas', 'dvc', 'prefect', 'mlflow'} & {*sys.modules}"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, posttrain; print({heavy})"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"
    files = repository.files("flows/**/*.py", "tasks/**/*.py")
    assert not [file for file in files if re.search(r"^\s*(import|from) posttrain\b", file.read_text(), re.MULTILINE)]


IN_A_LOOP = """
import asyncio, json
import posttrain
async def cell():
    return [posttrain.run("dpo", quiet=True), posttrain.run("dpo", params={"dpo.beta": beta}, quiet=True)]
for beta in (0.1, 0.2):
    print(json.dumps([{name: (result.state, result.mlflow_run_id) for name, result in run.items()} for run in asyncio.run(cell())]))
"""  # noqa: E501


@pytest.mark.slow
def test_in_a_notebook_an_event_loop_runs_already_and_prefect_and_mlflow_work_in_it(tmp_path):
    root = make_pipeline(tmp_path / "toy")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_LOOP], cwd=root, env=environ(), capture_output=True, text=True, check=True
    )
    runs = [run for line in done.stdout.splitlines() for run in json.loads(line)]
    states = [[state for state, _ in run.values()] for run in runs]
    same = ["up-to-date"] * 3
    assert states == [["ran"] * 3, same, same, ["up-to-date", "up-to-date", "ran"]]
    ids = [run["dpo"][1] for run in runs]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert all(len(run_id) == 32 for run_id in ids)
