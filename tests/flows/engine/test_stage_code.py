"""What an edit of the code runs, where the stage `code` says what each stage is made of."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from flows.engine.plan import PlanError
from tests.flows.engine.coded import choosing, edit, write
from tests.flows.engine.toy import Toy
from tests.flows.sweeps.swept import swept
from tests.flows.toy_pipeline import environ

pytestmark = pytest.mark.usefixtures("plain_commands")
CLEAN = "Data and pipelines are up to date."
HELPER = "tasks/toys/helper.py"


@pytest.fixture
def coded(toy: Toy) -> Toy:
    write(toy)
    assert toy.states() == {"code": "ran", "first": "ran", "second": "ran"}
    return toy


@pytest.mark.parametrize(
    ("old", "new"),
    [("COUNT = 3", "COUNT = 3  # so many"), ("+ 1", "+ 2"), ("def text():\n", 'def text():\n    """Text."""\n')],
)
def test_an_edit_that_no_stage_reaches_runs_code_alone(coded: Toy, old: str, new: str) -> None:
    before = coded.read("dvc.lock")
    edit(coded, HELPER, old, new)
    assert coded.reasons() == {"code": "dep tasks changed", "first": None, "second": None}
    assert coded.read("dvc.lock") == before, "a plan writes nothing"
    assert coded.states() == {"code": "ran", "first": "up-to-date", "second": "up-to-date"}
    assert coded.dvc("status").strip() == CLEAN


def test_an_edit_of_what_a_stage_reaches_runs_that_stage(coded: Toy) -> None:
    edit(coded, HELPER, "COUNT = 3", "COUNT = 4")
    assert coded.reasons() == {
        "code": "dep tasks changed",
        "first": "dep data/code/first.json changed",
        "second": "upstream first will run",
    }
    assert coded.states() == {"code": "ran", "first": "ran", "second": "ran"}
    assert coded.read("data/second") == "xxxx!"
    edit(coded, HELPER, "COUNT = 4", "COUNT = 3")
    assert coded.states() == {"code": "restored", "first": "restored", "second": "restored"}, "the run cache has it"


def test_plain_dvc_repro_does_the_same(coded: Toy) -> None:
    edit(coded, HELPER, "+ 1", "+ 2")
    said = coded.dvc("repro")
    assert "Running stage 'code'" in said
    assert "Stage 'first' didn't change, skipping" in said
    edit(coded, "tasks/toys/second.py", "read_text())", 'read_text() + "?")')
    said = coded.dvc("repro")
    assert "Stage 'first' didn't change, skipping" in said
    assert "Running stage 'second'" in said
    assert set(coded.reasons().values()) == {None}


def test_a_module_that_is_no_python_is_one_line(coded: Toy) -> None:
    edit(coded, HELPER, "COUNT = 3", "COUNT = ")
    with pytest.raises(PlanError, match=r"^tasks/toys/helper\.py: invalid syntax \(line 2\)$"):
        coded.plan()


def test_a_stage_with_other_code_than_its_record_would_say_does_not_run(coded: Toy) -> None:
    """As where `code` did not run after an edit, or a worker has another commit."""
    edit(coded, HELPER, "COUNT = 3", "COUNT = 4")
    before = coded.read("dvc.lock")
    command = ["dvc", "repro", "--force", "--single-item", "first"]
    done = subprocess.run(command, cwd=coded.root, env=environ(), capture_output=True, text=True, check=False)
    line = f"{HELPER} is not the one that data/code/first.json was made from: it changed since; run it again"
    assert done.returncode != 0
    assert line in done.stderr
    assert coded.read("dvc.lock") == before
    edit(coded, HELPER, "COUNT = 4", "COUNT = 3 ")
    done = subprocess.run(command, cwd=coded.root, env=environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "its syntax is what it was"


@pytest.mark.parametrize(
    ("path", "old", "new", "state"),
    [
        ("tasks/toys/later.py", "'!'", "'?'", "failed"),
        (HELPER, "COUNT = 3", "COUNT = 5", "ran"),
    ],
)
def test_an_edit_while_a_stage_runs(coded: Toy, path: str, old: str, new: str, state: str) -> None:
    """Of a module that it has still to import, it ends; of one that it has, it is out of date afterwards."""
    wait = coded.write("wait", "")

    def edit_then_go() -> None:
        while wait.read_text() != "waits":
            time.sleep(0.02)
        edit(coded, path, old, new)
        wait.unlink()

    editor = threading.Thread(target=edit_then_go)
    editor.start()
    result = coded.run("first", force=["first"])["first"]
    editor.join()
    assert result.state == state, result.reason
    if state == "failed":
        assert "tasks/toys/later.py is not the one that data/code/first.json was made from" in result.reason
    assert Path(coded.root, "data/first").read_text() == "xxx!", "the outs of before, or those of the code that it had"
    assert coded.reasons()["first"] == "dep data/code/first.json changed"


BY_NAME = "tasks/language/rewards/by_name"


@pytest.fixture
def chosen(coded: Toy) -> Toy:
    choosing(coded, "good")
    assert coded.states() == {"code": "ran", "first": "up-to-date", "second": "up-to-date", "third": "ran"}
    assert coded.read("data/third") == "xxx!good"
    return coded


def test_an_edit_of_code_that_no_section_names_runs_code_alone(chosen: Toy) -> None:
    edit(chosen, f"{BY_NAME}/bad.py", '("bad")', '"worse"')
    edit(chosen, f"{BY_NAME}/good.py", "of good", "explained")
    chosen.write(f"{BY_NAME}/further.py", "TEXT = 'further'\n")
    assert {name for name, reason in chosen.reasons().items() if reason} == {"code"}
    edit(chosen, f"{BY_NAME}/good.py", '("good")', '"better"')
    assert {name: reason for name, reason in chosen.reasons().items() if reason} == {
        "code": "dep tasks changed",
        "third": "dep data/code/third.json changed",
    }
    chosen.dvc("repro")
    assert chosen.read("data/third") == "xxx!better"
    assert set(chosen.reasons().values()) == {None}


def test_another_name_in_the_section_is_other_code(chosen: Toy) -> None:
    """As plain DVC sees it too, by the params of the stage `code`."""
    chosen.set(third={"reward": {"bad": 1.0}})
    assert {name for name, reason in chosen.reasons().items() if reason} == {"code", "third"}
    command = ["dvc", "repro", "--single-item", "third"]
    done = subprocess.run(command, cwd=chosen.root, env=environ(), capture_output=True, text=True, check=False)
    line = f"{BY_NAME}/bad.py is imported, and data/code/third.json does not have it; run stage `code` again"
    assert line in done.stderr
    said = chosen.dvc("repro", "third")
    assert "Running stage 'code'" in said
    assert "Stage 'first' didn't change, skipping" in said
    assert chosen.read("data/third") == "xxx!bad"
    assert set(chosen.reasons().values()) == {None}


def test_points_of_a_sweep_share_what_their_choice_leaves_as_it_is(chosen: Toy) -> None:
    edit(chosen, HELPER, "COUNT = 3", "COUNT = 4")
    done = swept(chosen, "third.reward={good: 1.0},{bad: 1.0}", targets=("second", "third"))
    stages = [name.partition("@")[0] for name in done.states]
    assert sorted(stages) == ["code", "code", "first", "second", "third", "third"]
    assert {*done.states.values()} == {"ran"}
    assert [done.content(chosen, number, "data/third") for number in (1, 2)] == ["xxxx!good", "xxxx!bad"]
