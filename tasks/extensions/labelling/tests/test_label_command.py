"""What `posttrain label` starts, in its own place, and what it refuses."""

import os
import sys
from pathlib import Path

import pytest

from flows import cli
from flows.engine.dvc_lock import Entry
from flows.params.files import parse_params
from tasks.extensions.labelling import __main__ as label
from tasks.extensions.labelling import command
from tests.repository import ROOT


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of what would take this process's place, in a repository in which stages have run."""
    found: list[list[str]] = []
    for stage in ("responses", "evaluate/sft", "evaluate/grpo"):
        (tmp_path / "data" / stage).mkdir(parents=True)
        (tmp_path / "data" / stage / "table.parquet").touch()
    monkeypatch.setattr(command, "find_root", lambda: tmp_path)
    monkeypatch.setattr(command, "read_wanted_judgements", lambda root, mode: {"steps": 30}.get(mode))
    entries: dict[str, Entry] = {
        name: {"outs": [{"path": f"data/{name.replace('@', '/')}", "md5": "0" * 32}]}
        for name in ("responses", "evaluate@sft", "evaluate@grpo")
    }
    monkeypatch.setattr("flows.stage_outputs.read_lock_entries", lambda root: entries)
    monkeypatch.setattr(
        "flows.stage_outputs.get_entry_hashes", lambda entry, kind: {one["path"]: "" for one in entry.get(kind, ())}
    )
    monkeypatch.setenv(command.VARIABLE, "")
    monkeypatch.chdir(tmp_path)

    def become(program: str, arguments: list[str]) -> None:
        assert program == sys.executable
        found.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", become)
    return found


def given(started: list[list[str]], *words: str) -> dict[str, object]:
    """The options that tasks.extensions.labelling would get."""
    with pytest.raises(SystemExit):
        cli.run_command_line(["label", *words])
    _, _, module, *arguments = started.pop()
    assert module == "tasks.extensions.labelling"
    return vars(label.build_parser().parse_args(arguments))


def test_without_options_it_asks_about_the_responses(started: list[list[str]]) -> None:
    found = given(started)
    assert found["responses"] == Path("data/responses")
    assert found["record"] == Path("data/raw/judgements/people.jsonl")
    assert (found["mode"], found["host"], found["overlap"], found["items"]) == ("pairwise", "127.0.0.1", 2, None)
    token = Path("mlruns/label-token")
    assert os.environ[command.VARIABLE] == token.read_text()
    assert len(token.read_text()) > 40
    assert token.stat().st_mode & 0o077 == 0
    assert given(started) | {"port": 0} == found | {"port": 0}, "the token stays the same"


def test_every_option_arrives(started: list[list[str]], tmp_path: Path) -> None:
    asked = (
        "--mode ranking --name anna --items 7 --overlap 3 --gold gold.jsonl --repeats 0.2 --seed 5 --host "
        "0.0.0.0 --port 4399"
    )
    found = given(started, "--file", "mine.jsonl", *asked.split())
    assert {name: value for name, value in found.items() if value is not None} == {
        "command": "serve", "record": Path("data/raw/judgements/anna.jsonl"), "mode": "ranking", "file": tmp_path / "mine.jsonl",  # noqa: E501
        "gold": tmp_path / "gold.jsonl", "items": 7, "overlap": 3, "repeats": 0.2, "seed": 5, "host": "0.0.0.0", "port": 4399,  # noqa: E501
    }  # fmt: skip


def test_the_page_learns_how_many_judgements_the_pipeline_waits_for(started: list[list[str]]) -> None:
    assert given(started, "--mode", "steps")["wanted"] == 30
    assert given(started)["wanted"] is None


@pytest.mark.parametrize(
    ("edits", "pairs", "steps"),
    [
        ({}, None, None),
        ({"preferences": {"source": "people", "judgements": "data/raw/judgements", "minimum": 25}}, 25, None),
        ({"preferences": {"source": "people", "judgements": "data/raw/judgements/anna.jsonl"}}, None, None),
        ({"preferences": {"source": "mixture", "judgements": "data/raw/judgements"}}, None, None),
        (
            {
                "preferences": {
                    "source": "mixture",
                    "judgements": "data/raw/judgements",
                    "mixture": {"annotator": 0.5, "people": 0.5, "files": 0.0, "hub": 0.0},
                }
            },
            40,
            None,
        ),
        ({"solutions": {"source": "people", "judgements": "data/raw/judgements", "minimum": 7}}, None, 7),
    ],
)
def test_the_pipeline_waits_by_params(
    edits: dict[str, dict[str, object]], pairs: int | None, steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = parse_params((ROOT / "params.yaml").read_text())
    edited = {**params, **{name: {**params[name], **values} for name, values in edits.items()}}
    monkeypatch.setattr(command, "parse_params", lambda text: edited)
    assert command.read_wanted_judgements(ROOT, "pairwise") == command.read_wanted_judgements(ROOT, "edit") == pairs
    assert command.read_wanted_judgements(ROOT, "steps") == steps


def test_an_arena_is_between_two_stages(started: list[list[str]]) -> None:
    expected = [Path("data/evaluate/sft"), Path("data/evaluate/grpo")]
    assert given(started, "--arena", "sft", "grpo")["arena"] == expected
    assert given(started, "--arena", "evaluate@sft", "data/evaluate/grpo")["arena"] == expected


def test_other_tools_and_statistics(started: list[list[str]], tmp_path: Path) -> None:
    record = Path("data/raw/judgements/people.jsonl")
    told = {"record": record, "tool": "trl", "path": tmp_path / "x"}
    assert given(started, "--import", "trl", "x") == {"command": "import", **told}
    assert given(started, "--export", "trl", "x") == {"command": "export", **told}
    assert given(started, "--statistics", "--name", "people") == {"command": "statistics", "record": record}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--name", "../x"], "--name ../x: expected the name of a file"),
        (["--name", ""], "expected the name of a file"),
        (["--export", "csv", "x"], "--export csv: expected trl, trl-chat, argilla, potato"),
        (["--statistics", "--arena", "sft", "grpo"], "choose one of"),
        (
            ["--arena", "sft", "ppo"],
            "evaluate@ppo: neither a path nor a stage that has run; `posttrain run evaluate@ppo` makes them",
        ),
        (["--mode", "vote"], "vote"),
        (["--repeats", "0.9"], "--repeats"),
        (["--overlap", "0"], "--overlap"),
    ],
)
def test_wrong_use_is_one_line(
    started: list[list[str]], wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command_line(["label", *wrong]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("posttrain: ")
    assert message in line
    assert not started


def test_tab_offers_the_records_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_root", lambda: tmp_path)
    assert command.list_record_names("") == []
    (tmp_path / "data/raw/judgements").mkdir(parents=True)
    for name in ("people.jsonl", "anna.jsonl", "README.md"):
        (tmp_path / "data/raw/judgements" / name).touch()
    assert command.list_record_names("") == ["anna", "people"]
    assert command.list_record_names("p") == ["people"]
