"""What the stage `code` writes, and how a running stage is compared with it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tasks.code import stages
from tests.flows.engine.coded import FIRST, HELPER, SECOND, STAGE
from tests.repository import ROOT

FILES = {
    "tasks/__init__.py": "",
    "tasks/stage.py": STAGE,
    "tasks/toys/__init__.py": "",
    "tasks/toys/first.py": FIRST,
    "tasks/toys/helper.py": HELPER,
    "tasks/toys/later.py": "def more(): return '!'\n",
    "tasks/toys/second.py": SECOND,
}


def made(files=FILES, **edits):
    contents = {path: text.encode() for path, text in {**files, **edits}.items()}
    return {path.as_posix(): json.loads(text) for path, text in stages.build_code_files(contents, {}).items()}


def test_each_stage_has_a_file_with_what_it_reaches():
    found = made()
    assert sorted(found) == ["data/code/first.json", "data/code/second.json", "data/code/sources.json"]
    first = found["data/code/first.json"]
    assert {path for path, hash_ in first.items() if hash_} == {
        "tasks/stage.py",
        "tasks/toys/first.py",
        "tasks/toys/helper.py",
        "tasks/toys/later.py",
    }
    assert first["tasks/toys/__init__.py"] == "", "imported, and nothing in it is reached"
    assert "tasks/toys/later.py" not in found["data/code/second.json"]


def test_files_beside_a_module_count_and_the_python_among_them_without_comments():
    shows = FIRST.replace('Path("data/first")', 'Path(__file__).parent / "pages"; Path("data/first")', 1)
    lists = FIRST.replace('Path("data/first")', 'Path(__file__).parent.glob("*.py"); Path("data/first")', 1)
    page = {"tasks/toys/pages/a.html": "<p>"}

    def of(text, **edits):
        return made({**FILES, **page, "tasks/toys/first.py": text}, **edits)["data/code/first.json"]

    assert of(shows, **{"tasks/toys/pages/a.html": "<b>"}) != of(shows)
    assert of(shows, **{"tasks/toys/other.py": "x = 1"}) == of(shows)
    assert of(lists, **{"tasks/toys/other.py": "x = 1"}) != of(lists)
    other = {**FILES, "tasks/toys/first.py": lists, "tasks/toys/other.py": "x = 1"}
    assert (
        made(other, **{"tasks/toys/other.py": "x = 1  # one"})["data/code/first.json"]
        == (made(other)["data/code/first.json"])
    )


@pytest.mark.parametrize("failure", ["StageError", "ConfigError", "SystemExit", "TrainingError", "WaitingError"])
def test_what_a_failure_says_is_in_no_out(failure):
    def of(text):
        raises = HELPER.replace("    return", f"    if not COUNT:\n        raise {failure}({text})\n    return", 1)
        return made(**{"tasks/toys/helper.py": f"LONG = 1\n{raises}"})["data/code/first.json"]

    assert of('"nothing"') == of('f"{LONG} or nothing"')
    assert of('"nothing"') != made()["data/code/first.json"]


def test_a_status_with_which_a_program_ends_counts():
    def of(status):
        raises = HELPER.replace("    return", f"    if not COUNT:\n        raise SystemExit({status})\n    return", 1)
        return made(**{"tasks/toys/helper.py": raises})["data/code/first.json"]

    assert of("1") != of("0")
    assert of("COUNT") != of("COUNT + 1")


def test_what_another_exception_says_may_be_written():
    def of(text):
        raises = HELPER.replace("    return", f"    if not COUNT:\n        raise DataError({text})\n    return", 1)
        return made(**{"tasks/toys/helper.py": raises})["data/code/first.json"]

    assert of('"nothing"') != of('"none"')


def test_the_files_are_the_same_whatever_order_sets_have(tmp_path):
    found = []
    for seed in "12":
        folder = tmp_path / seed
        shutil.copytree(ROOT / "tasks", folder / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-m", "tasks.code"], cwd=folder, env=environ, check=True)
        found.append({file.name: file.read_text() for file in (folder / "data/code").iterdir()})
    assert found[0] == found[1]
    assert {"sft.json", "tabular_q.json", "agents.json"} <= found[0].keys()


def stage(folder, files=FILES):
    """A folder with the stages and what `code` wrote of them."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    shutil.copytree(ROOT / "tasks/code", folder / "tasks/code", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tasks/common").mkdir()
    for name in ("__init__", "errors", "terminal"):
        shutil.copyfile(ROOT / f"tasks/common/{name}.py", folder / f"tasks/common/{name}.py")
    subprocess.run([sys.executable, "-m", "tasks.code"], cwd=folder, check=True)
    return folder


def said(folder):
    done = subprocess.run(
        [sys.executable, "-m", "tasks.toys.first"], cwd=folder, capture_output=True, text=True, check=False
    )
    return (folder / "data/first").read_text() if not done.returncode else done.stderr.strip()


def test_a_running_stage_is_compared_with_its_file(tmp_path):
    folder = stage(tmp_path)
    assert said(folder) == "xxx!"
    (folder / "data/code/sources.json").unlink()
    assert said(folder) == "xxx!", "by syntax, as on a worker that has the stage's file alone"
    (folder / "tasks/toys/helper.py").write_text(HELPER.replace("3", "4"))
    line = "tasks/toys/helper.py is not the one that data/code/first.json was made from: it changed since; run it again"
    assert said(folder) == line
    (folder / "tasks/toys/helper.py").write_text(HELPER)
    (folder / "data/code/first.json").write_text("{")
    assert said(folder) == "data/code/first.json: expected what `python -m tasks.code` writes"


def test_a_module_that_the_file_does_not_have_ends_the_stage(tmp_path):
    folder = stage(tmp_path)
    file = folder / "data/code/first.json"
    hashes = json.loads(file.read_text())
    del hashes["tasks/toys/later.py"]
    file.write_text(json.dumps(hashes))
    wanted = "tasks/toys/later.py is imported, and data/code/first.json does not have it; run stage `code` again"
    assert said(folder) == wanted


def test_hashes_of_another_clone_do_not_pass_by_this_one_s_files(tmp_path):
    """A worker has its own sources.json, of its own commit, beside the stage's file of the clone that asked."""
    folder = stage(tmp_path / "one")
    other = stage(tmp_path / "two", {**FILES, "tasks/toys/helper.py": HELPER.replace("3", "4")})
    shutil.copyfile(other / "data/code/first.json", folder / "data/code/first.json")
    assert "tasks/toys/helper.py is not the one that data/code/first.json was made from" in said(folder)


CHILD = {
    "tasks/toys/child.py": "from tasks.toys import later\nif __name__ == '__main__':\n    print(later.more())\n",
    "tasks/toys/first.py": FIRST.replace("from tasks.toys import later", "import subprocess, sys").replace(
        "later.more()",
        "subprocess.run([sys.executable, '-m', 'tasks.toys.child'], capture_output=True, text=True).stdout.strip()",
    ),
}


@pytest.mark.parametrize(("name", "old", "new"), [("child", "later.more()", "'?'"), ("later", "'!'", "'?'")])
def test_a_child_is_compared_before_it_starts(tmp_path, name, old, new):
    folder = stage(tmp_path, {**FILES, **CHILD})
    assert said(folder) == "xxx!"
    file = folder / f"tasks/toys/{name}.py"
    file.write_text(file.read_text().replace(old, new))
    line = (
        f"tasks/toys/{name}.py is not the one that data/code/first.json was made from: it changed since; run it again"
    )
    assert said(folder).splitlines()[-1] == line


def test_a_stage_that_is_started_by_hand_is_not_compared(tmp_path):
    folder = stage(tmp_path)
    shutil.rmtree(folder / "data/code")
    assert said(folder) == "xxx!"
