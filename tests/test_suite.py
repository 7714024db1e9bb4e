"""The parts of the suite: which tests a change reaches, which slow tests fit, and how a stopped run goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import kept, suite
from tests.reach import Reach, files_of

ROOT = Path(__file__).parent.parent
FILES = {
    "tasks/low.py": "",
    "tasks/high.py": "from tasks import low\n",
    "flows/cli.py": "",
    "docs/page.md": "",
    "tests/conftest.py": "def fixture():\n    import tasks.low\n",
    "tests/test_low.py": "import tasks.low\n",
    "tests/test_high.py": "from tasks.high import something\n",
    "tests/test_process.py": "COMMAND = ['-m', 'flows.cli']\n",
    "tests/test_page.py": "PAGE = 'docs/page.md'\n",
    "notes.txt": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_change_reaches_tests_by_imports_and_names_nearest_first(repository: Path) -> None:
    reach = Reach(repository)
    everything = {"tests/test_low.py", "tests/test_high.py", "tests/test_process.py", "tests/test_page.py"}
    reached = reach.tests_of(["tasks/low.py"])
    assert reached.keys() == everything, "each test below conftest.py may ask for its fixture"
    assert list(reached.items())[:2] == [("tests/test_low.py", 1), ("tests/test_high.py", 2)]
    assert reached["tests/test_page.py"] > 2
    assert reach.tests_of(["tasks/high.py"]) == {"tests/test_high.py": 1}
    assert reach.tests_of(["flows/cli.py"]) == {"tests/test_process.py": 1}
    assert reach.tests_of(["docs/page.md"]) == {"tests/test_page.py": 1}
    assert reach.tests_of(["tests/test_page.py"]) == {"tests/test_page.py": 0}
    assert reach.tests_of(["notes.txt"]) == {}
    assert reach.tests_of(["tests/test_deleted.py"]) == {}, "a test that is no longer there cannot be run"


def test_files_are_those_of_git_or_without_git_all(repository: Path) -> None:
    everything = sorted(FILES)
    assert files_of(repository) == everything
    subprocess.run(["git", "init", "--quiet"], cwd=repository, check=True)
    (repository / ".gitignore").write_text("notes.txt\n")
    assert files_of(repository) == sorted({*everything, ".gitignore"} - {"notes.txt"})


def test_the_slow_tests_of_files_are_listed_as_functions() -> None:
    """With the options that pyproject.toml has for pytest; one of them has parameters."""
    file = "tests/test_install.py"
    names = suite.slow_functions([file, "tests/test_suite.py"])
    assert f"{file}::test_torch_may_be_another_file_that_needs_more" in names
    assert {name.partition("::")[0] for name in names} == {file}
    assert not [name for name in names if "[" in name]


def test_the_cheapest_slow_tests_run() -> None:
    known = {"a": 50.0, "b": 5.0, "c": 90.0}
    assert suite.cheapest(["a", "b", "c", "d"], known, 80.0) == (["b", "a"], ["c", "d"]), "d has not been timed"
    assert suite.cheapest(["a", "c"], known, 49.0) == ([], ["a", "c"])


def test_chosen_tests_run_in_the_order_of_their_file() -> None:
    """The file of the cheapest first; tests of one module may share a fixture that a later one changes."""
    functions = ["x::one", "x::two", "x::three", "y::one", "y::two"]
    assert suite.by_file(["y::two", "x::three", "x::one"], functions) == ["y::two", "x::one", "x::three"]


def test_a_stopped_run_goes_on_behind_what_has_passed(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('n', [0, 1])\ndef test_one(n): pass\ndef test_other(): assert {}\n"
    (tmp_path / "test_toy.py").write_text(text.format(False))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-p", "tests.kept", "--passed", "passed.txt", "--seconds", "seconds.json", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), *options, "test_toy.py"]
    first = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed" in first.stdout
    passed = (tmp_path / "passed.txt").read_text().splitlines()
    assert passed == ["test_toy.py::test_one[0]", "test_toy.py::test_one[1]"]
    (tmp_path / "test_toy.py").write_text(text.format(True))
    second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed, 2 deselected" in second.stdout
    late = [*command, "--passed", "none.txt", "--no-later", "0"]
    third = subprocess.run(late, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 skipped" in third.stdout
    assert suite.seconds(tmp_path / "seconds.json").keys() == {"test_toy.py::test_one", "test_toy.py::test_other"}


def test_slow_tests_go_on_with_the_settings_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of what has passed lies elsewhere, and pytest looks for its settings beside files that are named to
    it.
    """
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  gpu\n")
    text = "import pytest\npytestmark = pytest.mark.slow\ndef test_one(): pass\ndef test_other(request): assert {}\n"
    for name, value in (("ROOT", clone), ("SLOW_SECONDS", clone / "seconds.json"), ("PROCESSES", 0)):
        monkeypatch.setattr(suite, name, value)
    monkeypatch.setattr(suite, "_digest", lambda: "same")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (clone / "test_toy.py").write_text(text.format(False))
    assert suite.slow() == 1
    (clone / "test_toy.py").write_text(text.format(f"str(request.config.rootpath) == {str(clone)!r}"))
    assert suite.slow() == 0
    assert suite.seconds(clone / "seconds.json").keys() == {"test_toy.py::test_one", "test_toy.py::test_other"}


def test_a_function_has_its_parameters_times_together() -> None:
    assert kept.function("tests/test_x.py::test_y[a-b[c]]") == "tests/test_x.py::test_y"
