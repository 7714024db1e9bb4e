"""Tab completion: it reads files alone, and offers nothing where they cannot be read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows import cli, running
from flows.console import completion
from tests import repository

REPOSITORY = Path(__file__).parents[3]
DVC = """\
vars:
  - params.yaml
stages:
  sft:
    cmd: train
  evaluate:
    matrix:
      policy: [sft]
"""
LOCK = "schema: '2.0'\nstages:\n  evaluate@sft:\n    cmd: evaluate\n"
PARAMS = "sft:\n  steps: 3\n  reward: {exact: 1.0}\nevaluate: {samples: [1, 2]}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two stages, as the current folder."""
    files = {"dvc.yaml": DVC, "dvc.lock": LOCK, "params.yaml": PARAMS, "presets/tiny.yaml": ""}
    files |= {"data/sft/config.json": "{}", "data/problems/train.parquet": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_of_flows_stages_keys_and_presets(root: Path) -> None:
    assert completion.complete_targets("") == ["language", "offline", "agents", "sft", "evaluate", "evaluate@sft"]
    assert completion.complete_stages("eval") == ["evaluate", "evaluate@sft"]
    assert completion.complete_param_edits("") == ["sft.steps=", "sft.reward.exact=", "evaluate.samples="]
    assert completion.complete_param_keys("sft.r") == ["sft.reward", "sft.reward.exact"]
    assert completion.complete_presets("t") == ["tiny"]
    assert completion.complete_checkpoints("") == ["sft", "data/sft"]
    assert completion.complete_checkpoints("data") == ["data/sft"]


@pytest.mark.parametrize("broken", ["dvc.yaml", "params.yaml"])
def test_a_repository_that_cannot_be_read_offers_nothing(root: Path, broken: str) -> None:
    (root / "params.yaml").write_text("sft: [")
    (root / broken).unlink()
    assert completion.complete_param_edits("") == completion.complete_param_keys("") == []
    assert (completion.complete_presets("") == []) == (broken == "dvc.yaml")


def test_outputs_are_stages_and_the_paths_that_they_read_and_made(root: Path) -> None:
    deps = "    deps:\n    - path: tasks/stage.py\n      md5: 1\n    - path: data/sft\n      md5: 2\n"
    outs = "    outs:\n    - path: data/evaluate/sft\n      md5: 3\n    - path: data/sft\n      md5: 2\n"
    (root / "dvc.lock").write_text(LOCK + deps + outs)
    assert completion.complete_outputs("") == ["sft", "evaluate", "evaluate@sft", "data/sft", "data/evaluate/sft"]
    assert completion.complete_outputs("data/e") == ["data/evaluate/sft"]
    (root / "dvc.lock").unlink()
    assert completion.complete_outputs("data") == []


def test_flows_are_those_of_the_command() -> None:
    assert (*running.FLOWS,) == completion.FLOWS


OFFERED = {
    "posttrain run --set dpo.be": ["dpo.beta="],
    "posttrain run --force pref": ["preferences"],
    "posttrain explain grpo.aggr": ["grpo.aggregation"],
    "posttrain preset simp": ["simpo"],
    "posttrain lineage reward": ["reward_model"],
    "posttrain st": ["status"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """This repository's own stages, parameters and presets."""
    repository.write_params(tmp_path)
    for file in repository.files("dvc.yaml", "presets/*.yaml"):
        (tmp_path / file.relative_to(REPOSITORY)).parent.mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / file.relative_to(REPOSITORY))
    return tmp_path


@pytest.mark.parametrize("line", OFFERED)
def test_what_a_shell_is_offered(
    line: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    for name, value in completing(line).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.app([], prog_name="posttrain", standalone_mode=False)
    assert (ended.value.code, capsys.readouterr().out.split()) == (0, OFFERED[line])


def test_a_shell_asks_without_anything_heavy_being_imported(project: Path) -> None:
    done = shell(project, **completing("posttrain lineage reward"))
    assert (done.stdout.split(), done.stderr) == (["reward_model"], "[]\n")
    done = shell(project, **completing("posttrain run --set dpo.be"))
    assert (done.stdout.split(), done.stderr) == (["dpo.beta="], "[]\n")


def test_the_script_for_a_shell_names_the_command(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("_POSTTRAIN_COMPLETE", "source_bash")
    with pytest.raises(SystemExit):
        cli.app([], prog_name="posttrain", standalone_mode=False)
    assert "complete -o default -F _posttrain_completion posttrain" in capsys.readouterr().out


def completing(line: str) -> dict[str, str]:
    """The variables by which bash asks how this line may go on."""
    return {"_POSTTRAIN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}


ASKED = """
import sys
sys.argv = ["posttrain"]
from flows import cli
try:
    cli.main()
finally:
    print(sorted({"torch", "mlflow", "prefect", "dvc"} & {*sys.modules}), file=sys.stderr)
"""


def shell(root: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call the command as a shell does; the last line of standard error names the slow modules that it imported."""
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}
    command = [sys.executable, "-c", ASKED]
    return subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=True)
