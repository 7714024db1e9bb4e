"""Preset people with the real command: it waits for judgements, goes on when they have come, and says what more of them
changed.
"""

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tasks.common import mlflow_database, tables
from tasks.extensions.labelling.command import read_wanted_judgements
from tasks.language.tables.responses import Responses
from tests import prefect_server
from tests.clone import Clone, states
from tests.tasks.language import judged
from tests.test_pipeline import TINY

pytestmark = pytest.mark.slow
BELOW = {"preferences", "reward_model", "dpo", "evaluate@sft", "evaluate@dpo", "report"}
BEFORE = {"code", "problems", "corpus", "tokenizer", "pretrained", "demonstrations", "sft", "responses"}
POLICIES: dict[str, Any] = {"policies": ["sft", "dpo"], "baseline": "sft"}
SECONDS = 900.0  # within which a busy machine has done a run
PAUSED = ("PAUSED", "Waiting for people")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    clone = Clone.of_this(tmp_path_factory.mktemp("people") / "posttrain", {**TINY, "report": POLICIES})
    clone.call(sys.executable, "-m", "flows.cli", "preset", "people")
    clone.edit({"preferences": {"minimum": 20}})
    return clone


def judge(clone: Clone, first: int, count: int) -> None:
    """Two people by turns judge one pair of answers to each of these prompts, and like the longer one."""
    table = tables.read_table(Responses, clone.root / "data/responses/responses.parquet").sort_values(
        ["prompt_id", "sample"]
    )
    pairs = [tables.list_records(group)[:2] for _, group in table.groupby("prompt_id")]
    different = [pair for pair in pairs if pair[0]["response"] != pair[1]["response"]]
    for number, pair in enumerate(different[first : first + count], first):
        longer = "a" if len(pair[0]["response"]) >= len(pair[1]["response"]) else "b"
        said = judged.pair(pair, f"{longer} better", ("anna", "ben")[number % 2])
        judged.write(clone.root / "data/raw/judgements/people.jsonl", said)


def statuses(clone: Clone) -> dict[str, set[str]]:
    """The statuses of each stage's runs in MLflow."""
    found: dict[str, set[str]] = {}
    with closing(mlflow_database.connect_database(clone.root)) as records:
        for name, status in records.execute("SELECT name, status FROM runs"):
            found.setdefault(name, set()).add(status)
    return found


def test_the_loop_of_judging_and_training(clone: Clone) -> None:
    """It waits without a failure; then it stays and goes on by itself; then ten more judgements run what depends on
    them.
    """
    command = [sys.executable, "-m", "flows.cli", "run", "language"]
    first = clone.posttrain("run", "language")
    assert states(first) == {"ran": BEFORE, "paused": BELOW}
    assert first["preferences"]["reason"] == "waiting for 20 more: posttrain label"
    assert read_wanted_judgements(clone.root, "pairwise") == 20
    assert not any("FAILED" in of for of in statuses(clone).values())
    assert statuses(clone)["preferences"] == {"KILLED"}

    log = clone.root.parent / "wait.log"
    with log.open("w") as output:
        waiting = subprocess.Popen(
            [*command, "--wait"], cwd=clone.root, env=clone.environ, stdout=output, stderr=output
        )
    try:
        until(lambda: prefect_server.flow_states(clone.root).count(PAUSED) == 1, log)
        judge(clone, 0, 12)
        until(lambda: prefect_server.flow_states(clone.root).count(PAUSED) == 2, log)
        judge(clone, 12, 10)
        assert waiting.wait(SECONDS) == 0, log.read_text()
    finally:
        waiting.kill()
    assert states(clone.posttrain("run", "language")) == {"up-to-date": BEFORE | BELOW}
    assert prefect_server.flow_states(clone.root) == [
        *(("PENDING", "Pending"), ("RUNNING", "Running"), ("CANCELLED", "Waiting for people")),
        *(("PENDING", "Pending"), ("RUNNING", "Running"), PAUSED, ("RUNNING", "Running")),
        *(PAUSED, ("RUNNING", "Running"), ("COMPLETED", "Completed")),
    ]
    counted = json.loads((clone.root / "data/metrics/preferences.json").read_text())
    assert (counted["judgements"]["pairwise"], counted["people"]) == (22, 2)

    judge(clone, 22, 10)
    said = clone.call(*command)
    lines = said.splitlines()
    assert {line.split()[0] for line in lines if line.split()[1:2] == ["ran"]} <= BELOW
    assert "what 10 new judgements changed: there are 32 now, by 2 people, where there were 22" in lines
    table = {line[2:].split("  ")[0]: line.split() for line in lines if line.startswith("  ")}
    assert int(table["pairs to learn from"][-1]) > int(table["pairs to learn from"][-2])
    assert "dpo: strict_greedy" in table
    assert "  the same models as before: sft" in lines
    assert states(clone.posttrain("run", "language")) == {"up-to-date": BEFORE | BELOW}


def until(holds: Any, log: Path) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
