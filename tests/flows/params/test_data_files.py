"""A run reads the user's data files first: a fault in one costs seconds, and nothing of the run has begun."""

import json
import re
import sys
from pathlib import Path

import pytest

from flows.params import data_files
from flows.params.files import ParameterError
from tests import repository
from tests.clone import ROOT, Clone
from tests.flows.toy_pipeline import call, make_pipeline

# A reader that finds a fault in whatever it is asked to read.
READER = "import json, sys; print('a warning', file=sys.stderr); sys.exit(json.dumps(' '.join(sys.argv[1:])))"
SOURCE = {  # section -> where its source stands in params.yaml
    "problems": "source: generated ",
    "demonstrations": "source: problems ",
    "preferences": "source: annotator ",
    "mixture": "source: problems,",
    "evaluate": "source: problems  ",
}


def test_a_fault_is_one_line_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
    root = make_pipeline(tmp_path / "toy")
    (root / "params.yaml").write_text(
        (root / "params.yaml").read_text().replace("problems:\n", "problems:\n  source: generated\n")
    )
    add_reader(root)
    before = (root / "params.yaml").read_text()
    code, out, error = call(root, "run", "sft", "--set", "problems.source=files")
    assert (code, out) == (2, "")
    assert error == "posttrain: --data problems sft\n"
    assert (root / "params.yaml").read_text() == before
    assert not (root / "data/problems").exists()


def test_the_reader_s_last_line_is_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tasks.preflight import __main__ as reader

    repository.write_params(tmp_path)
    choose(tmp_path, "demonstrations", "files")
    text = (tmp_path / "params.yaml").read_text()
    before, heading, after = text.partition("\ndemonstrations:\n")
    (tmp_path / "params.yaml").write_text(before + heading + re.sub(r"  path: \S+", "  path: own", after, count=1))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/train.jsonl").write_text("no JSON\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["preflight", "--data", "demonstrations"])
    with pytest.raises(SystemExit) as ended:
        reader.main()
    assert ended.value.code == 2
    line = capsys.readouterr().err.rstrip("\n").rpartition("\n")[2]
    assert json.loads(line) == "own/train.jsonl: line 1: expected JSON: Expecting value: line 1 column 1 (char 0)"


@pytest.mark.slow
def test_how_many_judgements_are_missing_is_said_before_anything_runs(tmp_path: Path) -> None:
    root = Clone.of_this(tmp_path / "posttrain", {}).root
    people = ["--set", "preferences.source=people", "--set", "preferences.judgements=data/raw/judgements"]
    code, out, _ = call(root, "run", "preferences", *people, "--set", "preferences.minimum=30", "--dry-run")
    missing = "preferences: 0 judgements by 0 people in data/raw/judgements; waiting for 30 more: posttrain label\n"
    assert (code, out.count(missing)) == (0, 1)
    call(root, "preset", "people")
    steps = ["--set", "solutions.source=people", "--set", "solutions.judgements=data/raw/judgements"]
    code, out, _ = call(root, "run", "solutions", *steps, "--set", "solutions.minimum=7", "--dry-run")
    assert code == 0
    assert (
        "solutions: 0 judged step by step in data/raw/judgements; waiting for 7 more: posttrain label --mode steps\n"
        in out
    )
    code, out, _ = call(root, "status", "preferences")
    assert code == 0
    assert out.endswith("in data/raw/judgements; waiting for 40 more: posttrain label\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The params of this repository beside READER."""
    repository.write_params(tmp_path)
    add_reader(tmp_path)
    return tmp_path


def add_reader(root: Path) -> None:
    """Give a repository READER as its tasks.preflight."""
    (root / "tasks/preflight").mkdir(parents=True)
    (root / "tasks/__init__.py").touch()
    (root / "tasks/preflight/__main__.py").write_text(READER)


def choose(root: Path, section: str, source: str) -> None:
    """Give a section of params.yaml, or the data set of the mixture, another source."""
    file = root / "params.yaml"
    before, heading, after = file.read_text().partition(f"\n{section}:\n")
    assert SOURCE[section] in after.partition("\n\n")[0]
    changed = SOURCE[section].replace(SOURCE[section].split()[1].strip(","), source)
    file.write_text(before + heading + after.replace(SOURCE[section], changed, 1))


@pytest.mark.parametrize("section", SOURCE)
def test_files_are_read_if_a_stage_that_reads_them_will_run(root: Path, section: str) -> None:
    choose(root, section, "file" if section == "mixture" else "files")
    data_files.check_data_files(root, {"report"})
    with pytest.raises(ParameterError, match=f"^--data {section}@one report$"):
        data_files.check_data_files(root, {f"{section}@one", "report"})


@pytest.mark.parametrize("trained", ["pretrained", "dpo"])
@pytest.mark.parametrize("section", SOURCE)
def test_files_are_read_before_a_model_is_trained(root: Path, section: str, trained: str) -> None:
    """Whatever has been made before: the stage that reads them may be up to date, or no part of this run."""
    choose(root, section, "file" if section == "mixture" else "files")
    with pytest.raises(ParameterError, match=f"^--data {trained} report$"):
        data_files.check_data_files(root, {"report", trained})


def test_pairs_to_be_judged_and_imports_are_files_too(root: Path) -> None:
    """A folder without any is none, and neither is what a stage makes."""
    text = (root / "params.yaml").read_text()
    folder = root / "data/raw/test_pairs"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("No pairs yet.")
    data_files.check_data_files(root, {"sft", "evaluate@sft", "behaviour@graph", "transitions@graph-60"})
    (folder / "pairs.jsonl").touch()
    with pytest.raises(ParameterError, match=r"^--data sft$"):
        data_files.check_data_files(root, {"sft"})
    made = root / "data/preferences/test.parquet"
    made.parent.mkdir()
    made.touch()
    (root / "tasks/language").mkdir()
    (root / "tasks/language/preferences.py").touch()
    (root / "params.yaml").write_text(text.replace("data/raw/test_pairs", "data/preferences"))
    data_files.check_data_files(root, {"sft"})
    (root / "params.yaml").write_text(
        text.replace("source: random, episodes: 60", "source: minari, location: a, episodes: 60")
    )
    (folder / "pairs.jsonl").unlink()
    with pytest.raises(ParameterError, match=r"^--data behaviour@graph transitions@graph-60$"):
        data_files.check_data_files(root, {"behaviour@graph", "transitions@graph-60"})


@pytest.mark.parametrize("source", ["people", "mixture"])
def test_a_record_of_judgements_is_read_as_files_are(root: Path, source: str) -> None:
    choose(root, "preferences", source)
    with pytest.raises(ParameterError, match=r"^--data preferences$"):
        data_files.check_data_files(root, {"preferences"})


@pytest.mark.parametrize("section", SOURCE)
def test_without_files_no_process_is_started(root: Path, section: str) -> None:
    data_files.check_data_files(root, [*SOURCE, "sft", "grpo"])
    choose(root, section, "hub")
    data_files.check_data_files(root, {section, "report"})


@pytest.mark.parametrize("section", ["problems", "demonstrations", "mixture"])
def test_rows_of_a_hub_that_lie_here_are_read_before_a_model_is_trained(root: Path, section: str) -> None:
    choose(root, section, "hub")
    data_files.check_data_files(root, {"grpo", "sft"})
    (root / "data" / section).mkdir(parents=True)
    data_files.check_data_files(root, {"report"})
    with pytest.raises(ParameterError, match=r"^--data --needed grpo sft$"):
        data_files.check_data_files(root, {"grpo", "sft"}, later=False)


@pytest.mark.parametrize("section", ["responses", "mixture"])
def test_a_hub_is_asked_how_many_problems_it_has_where_some_are_passed_over(root: Path, section: str) -> None:
    choose(root, "problems", "hub")
    data_files.check_data_files(root, {section, "report"})
    with pytest.raises(ParameterError, match=f"^--data {' '.join(sorted({section, 'problems'}))}$"):
        data_files.check_data_files(root, {section, "problems"})


def test_environments_and_imports_of_the_offline_flow(root: Path) -> None:
    """Gymnasium's own and ours are known to be there; what others hold, and what has arguments or wrappers, is made for
    a look.
    """
    file = root / "params.yaml"
    text, first = file.read_text(), "    graph: {<<: *environment"
    assert first in text
    stages = {"behaviour@graph", "behaviour@CartPole-v1", "transitions@graph-60"}
    data_files.check_data_files(root, stages)
    for name in (
        '"FrozenLake-v1 {is_slippery: false}"',
        '"CartPole-v1 | ClipReward {max_reward: 1}"',
        '"minigrid:A-v0"',
        "Unheard-v0",
    ):
        file.write_text(text.replace(first, f"{first}, id: {name}"))
        with pytest.raises(ParameterError, match=f"^--data {' '.join(sorted(stages))}$"):
            data_files.check_data_files(root, stages)
        data_files.check_data_files(root, stages - {"behaviour@graph"})
    for name in ("CartPole-v1", '"tasks.agents.environments.as_gymnasium:data/agent_episodes/rooms-mixed"'):
        file.write_text(text.replace(first, f"{first}, id: {name}"))
        data_files.check_data_files(root, stages)
    data = "environment: graph, source: random, episodes: 60"
    for source in ("minari", "minari-remote", "d4rl"):
        file.write_text(text.replace(data, f"environment: graph, source: {source}, location: walks"))
        with pytest.raises(ParameterError, match=r"^--data"):
            data_files.check_data_files(root, stages)
        data_files.check_data_files(root, {"transitions@graph-1000"})


@pytest.mark.slow
def test_more_problems_are_passed_over_than_a_hub_set_has(tmp_path: Path) -> None:
    """By the reader itself, from the card of a set that lies here."""
    repository.write_params(tmp_path)
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    card = "---\ndataset_info: {splits: [{name: train, num_examples: 7473, num_bytes: 1}]}\n---\n"
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/README.md").write_text(card)
    (tmp_path / "sums/train.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    choose(tmp_path, "problems", "hub")
    text = (tmp_path / "params.yaml").read_text()
    text = text.replace("hub_id: openai/gsm8k", f"hub_id: {tmp_path}/sums").replace(
        "hub_config: main", "hub_config: default"
    )
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParameterError) as caught:
        data_files.check_data_files(tmp_path, {"problems", "responses"})
    line = "responses.skip: expected less than the 6,973 training problems that there are, got 8000"
    assert str(caught.value) == f"params.yaml: {line}"


@pytest.mark.parametrize(
    ("reader", "told"),
    [
        ("raise SystemExit(3)", "reading the data files ended with exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "reading the data files ended with exit status -9"),
        ("raise MemoryError('no more')", "MemoryError: no more"),
    ],
)
def test_a_reader_that_dies_is_one_line(root: Path, reader: str, told: str) -> None:
    choose(root, "problems", "files")
    (root / "tasks/preflight/__main__.py").write_text(reader)
    with pytest.raises(ParameterError) as caught:
        data_files.check_data_files(root, {"problems"})
    assert str(caught.value) == told
