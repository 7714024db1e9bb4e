"""A repository whose stages' code is known to DVC by the stage `code`, as in this one."""

import shutil

from tests.flows.engine.toy import Toy
from tests.repository import ROOT

STAGE = """
import sys
from pathlib import Path

from tasks.code import import_check
from tasks.common.errors import StageError


def main(run):
    name = sys.modules["__main__"].__spec__.name.rpartition(".")[2]
    try:
        import_check.check_and_watch_imports(name, Path())
        run()
    except StageError as error:
        sys.exit(str(error))
"""
FIRST = """
import time
from pathlib import Path

from tasks.stage import main
from tasks.toys.helper import text


def run():
    Path("data/first").write_text(text())
    wait = Path("wait")
    while wait.exists() and time.monotonic() < 1e9:
        wait.write_text("waits")
        time.sleep(0.02)
    from tasks.toys import later

    Path("data/first").write_text(text() + later.more())


if __name__ == "__main__":
    main(run)
"""
SECOND = """
from pathlib import Path

from tasks.stage import main


def run():
    Path("data/second").write_text(Path("data/first").read_text())


if __name__ == "__main__":
    main(run)
"""
HELPER = """
COUNT = 3


def text():
    return "x" * COUNT


def unused():
    return COUNT + 1
"""


def write(toy: Toy) -> None:
    """The repository: `first`, and `second` that reads what it makes."""
    for name in ("code", "common"):
        toy.write(f"tasks/{name}/__init__.py", "")
    for file in (ROOT / "tasks/code").glob("*.py"):
        shutil.copyfile(file, toy.root / "tasks/code" / file.name)
    for name in ("errors", "terminal"):
        shutil.copyfile(ROOT / f"tasks/common/{name}.py", toy.root / f"tasks/common/{name}.py")
    files = {"__init__": "", "stage": STAGE, "toys/__init__": "", "toys/first": FIRST, "toys/second": SECOND}
    files |= {"toys/helper": HELPER, "toys/later": "def more():\n    return '!'\n"}
    for name, content in files.items():
        toy.write(f"tasks/{name}.py", content)
    toy.write(".dvcignore", "__pycache__\n")
    toy.stages["code"] = {"cmd": "python -m tasks.code", "deps": ["tasks"], "outs": ["data/code"]}
    for name, ins in (("first", []), ("second", ["data/first"])):
        toy.stages[name] = {
            # -B: Python takes a compiled module for current where an edit within a second leaves the size as it was
            "cmd": f"python -B -m tasks.toys.{name}",
            "deps": [*ins, f"data/code/{name}.json"],
            "outs": [f"data/{name}"],
        }
    toy.save()


def edit(toy: Toy, path: str, old: str, new: str) -> None:
    """Replace a text in a module."""
    content = toy.read(path)
    assert old in content
    (toy.root / path).write_text(content.replace(old, new))


THIRD = """
import json
from pathlib import Path

from tasks.language.rewards.reward import load
from tasks.stage import main


def run():
    names = json.loads(Path("params.yaml").read_text())["third"]["reward"]
    text = "".join(load(name) for name in names)
    Path("data/third").write_text(Path("data/first").read_text() + text)


if __name__ == "__main__":
    main(run)
"""
LOAD = """
from importlib import import_module


def load(name):
    return getattr(import_module(f"tasks.language.rewards.by_name.{name}"), name)()
"""


def choosing(toy: Toy, name: str) -> None:
    """A further stage `third`, whose section chooses the rewards `good` or `bad` by their names."""
    for folder in ("language", "language/rewards", "language/rewards/by_name"):
        toy.write(f"tasks/{folder}/__init__.py", "")
    toy.write("tasks/language/rewards/reward.py", LOAD)
    toy.write("tasks/toys/third.py", THIRD)
    for reward in ("good", "bad"):
        text = f'METRICS = "of {reward}"\n\ndef {reward}():\n    return ("{reward}")\n'
        toy.write(f"tasks/language/rewards/by_name/{reward}.py", text)
    toy.stages["code"]["params"] = ["third.reward"]
    toy.stages["third"] = {
        "cmd": "python -B -m tasks.toys.third",
        "deps": ["data/first", "data/code/third.json"],
        "params": ["third"],
        "outs": ["data/third"],
    }
    toy.set(third={"reward": {name: 1.0}})
