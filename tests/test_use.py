"""`posttrain use FILE` with the real command, in a clone: what it prints, and what params.yaml says afterwards."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.clone import Clone

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone.of_this(tmp_path_factory.mktemp("use") / "posttrain", {})


def write(clone: Clone, name: str, rows: list[dict[str, Any]]) -> None:
    (clone.root / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def posttrain(clone: Clone, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    command = [sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, cwd=clone.root, env=clone.environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def load_params(root: Path) -> Any:
    return YAML(typ="safe").load(root / "params.yaml")


def test_pairs_are_shown_as_they_are_learned_and_can_be_taken_back(clone: Clone) -> None:
    rows = [{"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": "No.", "from": "me"} for n in range(60)]
    write(clone, "pairs.jsonl", rows)
    before = (clone.root / "params.yaml").read_bytes()
    code, out, error = posttrain(clone, "use", "pairs.jsonl")
    assert (code, error) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "pairs.jsonl: pairs (columns chosen, prompt, rejected); preset pairs"
    assert "preferences: not read: from (60 rows)" in lines
    assert sum("chosen: [[It is" in line and "rejected: [[No.]]" in line for line in lines) == 3
    assert any(line.startswith("pairs: 60 rows: enough to see that everything runs") for line in lines)
    assert any(line.startswith("time: about ") and "sft, reward_model, dpo" in line for line in lines)
    assert lines[-2:] == ["back: posttrain preset --undo, or posttrain preset default", "next: posttrain run"]
    params = load_params(clone.root)
    assert (params["preferences"]["source"], params["preferences"]["path"]) == ("files", "pairs.jsonl")
    assert posttrain(clone, "run", "--dry-run")[0] == 0
    assert posttrain(clone, "preset", "--undo")[0] == 0
    assert (clone.root / "params.yaml").read_bytes() == before


def test_prompts_with_answers_are_the_mixture_and_only_what_reads_them_would_run_again(clone: Clone) -> None:
    write(clone, "prompts.jsonl", [{"prompt": f"{n} + 1?", "answer": str(n + 1)} for n in range(40)])
    code, out, error = posttrain(clone, "use", "prompts.jsonl")
    assert code == 0
    assert error == "mixture: prompts: 39 prompts, not the 4000 that its weight asks for: it has no more\n"
    assert out.endswith("next: posttrain run grpo\n")
    params = load_params(clone.root)
    assert [dataset["name"] for dataset in params["mixture"]["datasets"]] == ["prompts"]
    code, out, error = posttrain(clone, "run", "grpo", "--dry-run")
    assert (code, error) == (0, "")
    assert posttrain(clone, "preset", "--undo")[0] == 0


@pytest.mark.parametrize(
    ("name", "rows", "error"),
    [
        ("absent.jsonl", None, "absent.jsonl: no such file or folder"),
        ("odd.jsonl", [{"colour": "red"}], "odd.jsonl: line 1: columns colour; expected rows of conversations"),
        ("half.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "b"}], "half.jsonl"),
        ("who.jsonl", [{"prompt": "Who are you?"}], "who.jsonl: not every row has an answer"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_changes_nothing(
    clone: Clone, name: str, rows: list[dict[str, Any]] | None, error: str
) -> None:
    if rows is not None:
        write(clone, name, rows)
    before = (clone.root / "params.yaml").read_bytes()
    code, _, told = posttrain(clone, "use", name)
    assert code == 2
    assert told.startswith(f"posttrain: {error}")
    assert (clone.root / "params.yaml").read_bytes() == before


def test_a_file_elsewhere_is_named_by_its_whole_path(clone: Clone, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "One."}]
    file = tmp_path / "chats.jsonl"
    rows = [{"messages": [{**turns[0], "content": f"{n}?"}, turns[1]]} for n in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, error = posttrain(clone, "use", str(file), "--dry-run")
    assert (code, error) == (0, "")
    assert "chats, row 1: user: " in out
    assert "params.yaml: would change in " in out
    assert load_params(clone.root)["demonstrations"]["source"] == "problems"
