"""A run that knows by the times of files that nothing has changed, and every change that it must see."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows import no_change_check
from tests.flows.toy_pipeline import call, environ, make_pipeline

FAST = """
import sys
from flows import start
sys.argv = ["posttrain", *sys.argv[1:]]
try:
    start.main()
finally:
    print("imported" if "flows.cli" in sys.modules else "at once", file=sys.stderr)
"""


@contextmanager
def clock(now: int) -> Iterator[None]:
    """In these nanoseconds since 1970 the ages of files are judged, so that no test waits until a file is old
    enough.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(no_change_check, "time", SimpleNamespace(time_ns=lambda: now, monotonic=time.monotonic))
        yield


def settled(root: Path) -> int:
    """When the youngest file of a pipeline is old enough to be judged by its times."""
    youngest = max(max(file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in root.rglob("*"))
    return youngest + int((no_change_check.SETTLED + 0.1) * 1e9)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline in which all has run, and a run has noted that nothing has changed."""
    root = make_pipeline(tmp_path_factory.mktemp("unchanged") / "toy")
    assert call(root, "run")[0] == 0
    with clock(settled(root)):
        assert "nothing has changed" in call(root, "run")[1]
    assert (root / no_change_check.NOTE).is_file()
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """A copy of it, and a note of the same files as they are in the copy: their inodes are new."""
    root = tmp_path / "toy"
    subprocess.run(["cp", "-a", template, root], check=True)
    note = json.loads((root / no_change_check.NOTE).read_text())
    (root / no_change_check.NOTE).unlink()
    [text] = note["said"].values()
    files = [path for path in note["files"] if not Path(path).is_absolute()]
    with clock(settled(root)):
        no_change_check.record_command_output(str(root), ["run"], text, files)
    return root


def started(root: Path, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", FAST, *arguments], cwd=root, env=environ(), capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr.strip().splitlines()[-1]


def told(root: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the command is answered at once."""
    monkeypatch.chdir(root)
    return no_change_check.find_remembered_output(arguments, time.monotonic()) is not None


def test_it_says_the_same_and_imports_nothing(template: Path) -> None:
    out, how = started(template, "run")
    assert how == "at once"
    assert out.splitlines()[0].startswith("nothing has changed: 5 stages are up to date (0.")
    code, slow, _ = call(template, "run")
    assert code == 0
    assert out.splitlines()[1:] == slow.splitlines()[1:]
    assert started(template / "data", "run")[1] == "at once", "from a folder below, too"


def test_it_says_again_that_results_came_from_elsewhere_until_that_is_known(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "toy"
    shutil.copytree(template, root, symlinks=True)
    (root / ".dvc/cache/runs").rename(tmp_path / "runs")
    with clock(settled(root)):
        code, out, _ = call(root, "run")
    assert code == 0
    assert out.startswith("problems, sft, dpo, ppo and report: made elsewhere")
    monkeypatch.chdir(root)
    said = no_change_check.find_remembered_output(["run"], time.monotonic())
    assert said is not None
    assert said.splitlines()[0] == out.splitlines()[0]
    (tmp_path / "runs").rename(root / ".dvc/cache/runs")
    assert not told(root, "run", monkeypatch=monkeypatch)


@pytest.mark.parametrize("arguments", [("run", "dpo"), ("status",), ("run", "--json"), ("run", "--force", "dpo"), ()])
def test_another_question_is_another_answer(
    template: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not told(template, *arguments, monkeypatch=monkeypatch)


def grown(path: Path) -> Callable[[Path], None]:
    return lambda root: (root / path).write_text((root / path).read_text() + "\n")


def gone(path: Path) -> Callable[[Path], None]:
    return lambda root: (root / path).unlink()


def cache_object(root: Path) -> Path:
    return next(file for file in sorted((root / ".dvc/cache/files").rglob("*")) if file.is_file())


def same_size(root: Path) -> None:
    file = root / "data/dpo/result.json"
    facts = file.stat()
    file.write_text("9.9")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # only the inode's own time tells


CHANGES: dict[str, Callable[[Path], object]] = {
    "params": grown(Path("params.yaml")),
    "graph": grown(Path("dvc.yaml")),
    "code": grown(Path("stage.py")),
    "lock": grown(Path("dvc.lock")),
    "config": grown(Path(".dvc/config")),
    "out edited": grown(Path("data/sft/result.json")),
    "out edited and its time put back": same_size,
    "out gone": gone(Path("data/report/report.html")),
    "file more": lambda root: (root / "data/ppo/more").write_text("x"),
    "page gone": gone(Path("report.html")),
    "page edited": grown(Path("report.md")),
    "object gone": lambda root: cache_object(root).unlink(),
    "run cache gone": lambda root: shutil.rmtree(root / ".dvc/cache/runs"),
    "same bytes, new file": lambda root: (root / "stage.py").write_text((root / "stage.py").read_text()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(root, "run", monkeypatch=monkeypatch)
    CHANGES[change](root)
    assert not told(root, "run", monkeypatch=monkeypatch)


def test_a_compiled_module_is_no_change(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first import writes such a folder beside the code, at any time and from any process."""
    (root / ".dvcignore").write_text("__pycache__\n")
    with clock(settled(root)):
        assert "nothing has changed" in call(root, "run")[1]
    (root / "data/ppo/__pycache__").mkdir()
    (root / "data/ppo/__pycache__/stage.pyc").write_text("")
    assert told(root, "run", monkeypatch=monkeypatch)
    assert "nothing has changed" in call(root, "run")[1]


def test_another_environment_is_another_answer(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(template, "run", monkeypatch=monkeypatch)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "7")
    assert not told(template, "run", monkeypatch=monkeypatch)


def test_files_that_are_younger_than_the_clock_can_tell_apart_are_not_judged(root: Path) -> None:
    (root / no_change_check.NOTE).unlink()
    youngest = (root / "report.md").stat().st_ctime_ns
    with clock(youngest + int((no_change_check.SETTLED - 0.1) * 1e9)):
        assert "nothing has changed" in call(root, "run")[1]
    assert not (root / no_change_check.NOTE).exists()
    with clock(settled(root)):
        assert "nothing has changed" in call(root, "run")[1]
    assert (root / no_change_check.NOTE).exists()


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"said": {"[\\"run\\"]": 1}}', '{"said": [], "files": 3}', "\x00"]
)
def test_a_broken_note_is_no_answer(
    content: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dvc.yaml").write_text("")
    (tmp_path / no_change_check.NOTE).parent.mkdir(parents=True)
    (tmp_path / no_change_check.NOTE).write_text(content)
    assert not told(tmp_path, "run", monkeypatch=monkeypatch)


def test_links_without_end_are_not_followed(root: Path) -> None:
    note, now = (root / no_change_check.NOTE).read_text(), settled(root)
    (root / "data/up").symlink_to("..")
    (root / "data/circle").symlink_to("circle")
    with clock(now):
        no_change_check.record_command_output(str(root), ["run"], "said", ["stage.py", "data"])
    assert (root / no_change_check.NOTE).read_text() == note, "what cannot be looked at is not noted"
    (root / "data/circle").unlink()
    with clock(now):
        no_change_check.record_command_output(str(root), ["run"], "said", ["stage.py", "data"])
    assert not [
        path for path in json.loads((root / no_change_check.NOTE).read_text())["files"] if path.startswith("data/up/")
    ]
