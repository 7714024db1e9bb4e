"""`posttrain merge-runs` as it is typed: what it says, what it changes, its exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.lineage.merging.merge_cases import Repository
from tests.flows.toy_pipeline import call, make_pipeline


@pytest.fixture
def theirs(tmp_path: Path, empty_mlflow: Path) -> Repository:
    return Repository(tmp_path / "theirs", empty_mlflow)


@pytest.fixture
def ours(tmp_path: Path, empty_mlflow: Path) -> Callable[..., tuple[int, str, str]]:
    """The command in a repository with a database of its own."""
    root = make_pipeline(tmp_path / "ours")
    Repository(root, empty_mlflow)
    return lambda *arguments: call(root, "merge-runs", *arguments)


def test_it_says_what_it_took_and_what_not(ours: Callable[..., tuple[int, str, str]], theirs: Repository) -> None:
    parent = theirs.run("")
    stages = [theirs.run(stage, parent) for stage in ("sft", "dpo")]
    running = theirs.run("ppo", parent, status="RUNNING")
    theirs.model(stages[1], "a")
    for arguments, taken in ((["--dry-run"], "would take"), ([], "took")):
        assert ours("../theirs", *arguments) == (
            0,
            f"{taken} 3 runs from theirs: 1 of a pipeline, 2 of stages\n"
            f"{taken} 6 files of runs, 54 bytes\n"
            f"{taken} 1 experiment that no run had here: language\n"
            f"{taken} 1 version of models: language.dpo 1\n"
            "1 run is still running there, or killed: not taken\n",
            "",
        )
    theirs.client.set_terminated(running)
    theirs.client.set_tag(stages[0], "note", "new")
    assert ours("../theirs") == (
        1,
        "took 1 run from theirs: 0 of a pipeline, 1 of stages\ntook 2 files of runs, 19 bytes\n"
        "2 runs are here already\n"
        f"{stages[0]} has another content there, and stays as it is here: tag note\n",
        "",
    )


def test_json_is_one_object(ours: Callable[..., tuple[int, str, str]], theirs: Repository) -> None:
    run_id = theirs.run("dpo")
    theirs.sql("UPDATE runs SET start_time = NULL")
    code, out, error = ours("../theirs", "--json")
    facts = json.loads(out)
    assert (code, error, facts["taken"], facts["whole"]) == (1, "", {}, False)
    assert facts["refused"] == {run_id: "its times are none"}


def test_wrong_use_is_one_line(ours: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    code, out, error = ours("../text")
    assert (code, out) == (2, "")
    assert error == f"posttrain: {tmp_path / 'text'}: file is not a database\n"
    assert ours("../nowhere")[2].endswith(
        "nowhere: no MLflow database; expected a repository, its mlruns folder or an mlflow.db\n"
    )
