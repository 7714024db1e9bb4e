"""Results that dvc.lock records and that are not here: they are named, and `--pull` brings them."""

import shutil
from pathlib import Path

import pytest

from tests.flows.toy_pipeline import call, make_pipeline

HINT = "`posttrain run --pull` would bring them from disk"


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """A pipeline as a fresh clone has it, with all its results in DVC's remote."""
    root = make_pipeline(tmp_path / "toy")
    config = f"[core]\n    analytics = false\n    remote = disk\n['remote \"disk\"']\n    url = {tmp_path / 'disk'}\n"
    (root / ".dvc/config").write_text(config)
    assert call(root, "run", "report")[0] == 0
    for kind in ("files", "runs"):
        shutil.copytree(root / ".dvc/cache" / kind, tmp_path / "disk" / kind)
    forget(root)
    return root


def forget(root: Path) -> None:
    for place in (".dvc/cache", ".dvc/tmp", "data", "mlruns"):
        shutil.rmtree(root / place)


def test_a_fresh_clone_says_that_a_pull_would_bring_results(pushed: Path) -> None:
    for command in (["status", "report"], ["run", "report", "--dry-run"]):
        code, out, _ = call(pushed, *command)
        assert code == 0
        assert HINT in out
    code, out, _ = call(pushed, "run", "problems")
    assert HINT in out, "it is said before all of it runs again"


def test_nothing_is_said_of_a_pull_where_it_could_not_help(pushed: Path) -> None:
    (pushed / ".dvc/config").write_text("[core]\n    analytics = false\n")
    assert HINT not in call(pushed, "status", "report")[1], "no remote"
    code, _, error = call(pushed, "run", "report", "--pull", "--set", "dpo.beta=0.3")
    assert code == 2
    assert error.startswith("posttrain: --pull: ")
    assert len(error.splitlines()) == 1
    assert "beta: 0.3" not in (pushed / "params.yaml").read_text()


def test_pull_brings_what_is_recorded_and_runs_the_rest(pushed: Path) -> None:
    code, out, error = call(pushed, "run", "report", "--pull", "--set", "dpo.beta=0.3")
    assert code == 0, error
    assert "2 ran, 3 restored" in out, "dpo and report ran"
    assert (pushed / "data/dpo/result.json").read_text() == "0.3"
    forget(pushed)
    call(pushed, "run", "report", "--set", "dpo.beta=0.1", "--pull")
    code, out, _ = call(pushed, "run", "report", "--pull")
    assert "nothing has changed: 5 stages are up to date" in out
    assert HINT not in out


def test_what_the_remote_does_not_have_runs(pushed: Path, tmp_path: Path) -> None:
    for file in (tmp_path / "disk").rglob("*"):
        if file.is_file() and file.read_bytes() == b"0.1":
            file.unlink()
    code, out, error = call(pushed, "run", "problems", "--pull")
    assert code == 0, error
    assert "1 ran" in out


def test_a_remote_that_is_away_is_one_line_before_anything_runs(pushed: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").rename(tmp_path / "gone")
    before = (pushed / "params.yaml").read_bytes()
    code, _, error = call(pushed, "run", "report", "--pull", "--set", "dpo.beta=0.3")
    assert code == 2
    assert error == f"posttrain: --pull: DVC's remote: {tmp_path / 'disk'} is not there\n"
    assert (pushed / "params.yaml").read_bytes() == before
    assert not (pushed / "data").exists()


def test_a_remote_of_a_kind_that_is_not_installed_is_one_line(pushed: Path) -> None:
    config = (pushed / ".dvc/config").read_text()
    (pushed / ".dvc/config").write_text(config[: config.rindex("url =")] + "url = oss://bucket/results\n")
    assert HINT in call(pushed, "status", "report")[1], "the question needs no network"
    code, _, error = call(pushed, "run", "report", "--pull")
    assert code == 2
    assert error.startswith("posttrain: --pull: DVC's remote")
    assert len(error.splitlines()) == 1
