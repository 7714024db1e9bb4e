"""`posttrain clean` as a person calls it: what it shows, when it asks, what it refuses; and what `posttrain runs` says
then.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from flows import clean_command
from tests.flows.lineage import audited as audited_toy
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.quick import quick
from tests.flows.toy_pipeline import call


@pytest.fixture(scope="module")
def thrice(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Audited:
    """Three pipeline runs of which only the first one's results are in a commit."""
    with quick():
        once = audited_toy.once(tmp_path_factory, template, empty_mlflow)
        thrice = audited_toy.again(tmp_path_factory, once, "audited_again", beta=0.3)
    toy = thrice.at(tmp_path_factory.mktemp("thrice") / "repository")
    (toy.root / "mlruns/checkpoints").mkdir()
    (toy.root / "mlruns/checkpoints/b.safetensors").write_bytes(b"x" * 1000)
    return toy


@pytest.fixture
def toy(thrice: Audited, tmp_path: Path) -> Audited:
    return thrice.at(tmp_path / "repository")


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield


def files(root: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file() and ".git/" not in str(file)
    }


def test_a_look_changes_nothing_and_says_what_keeps_what(toy: Audited) -> None:
    before = files(toy.root)
    code, out, error = call(toy.root, "clean", "--dry-run", "--keep-runs", "1")
    assert (code, error) == (0, "")
    assert files(toy.root) == before
    [row] = [line.split() for line in out.splitlines() if line.startswith("b ")]
    assert "older commits" not in out
    assert {"now", "branches", "nothing"} <= {*row}
    assert "checkpoints of stopped stages: 1.0 kB in 1 file; --checkpoints removes them" in out
    assert out.splitlines()[-1].startswith("would be removed: 2 files, which frees 0.2 kB")


def test_without_a_terminal_nothing_goes_unless_it_is_said(toy: Audited) -> None:
    before = files(toy.root)
    code, _, error = call(toy.root, "clean", "--keep-runs", "1")
    said = "nothing was removed: there is no terminal to ask on; --yes removes it, --dry-run only shows it"
    assert (code, error) == (2, f"posttrain: {said}\n")
    assert files(toy.root) == before
    code, out, error = call(toy.root, "clean", "--keep-runs", "1", "--yes")
    assert (code, error) == (0, "")
    assert out.splitlines()[-1].startswith("removed: 2 files")
    assert call(toy.root, "clean", "--keep-runs", "1")[1].splitlines()[-1] == "nothing to remove"


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_asks(toy: Audited, answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(clean_command, "_is_terminal", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda text, default: asked.append(text) or answer)
    code, out, _ = call(toy.root, "clean", "--keep-runs", "1")
    assert (code, len(asked)) == (0, 1)
    assert ("\nremoved: 2 files" in out) == answer


def test_runs_say_of_each_run_whether_it_is_kept(toy: Audited) -> None:
    first, second, third = (run.split("\n")[0] for run in _runs(toy))
    assert [line.endswith("  kept") for line in (first, second, third)] == [True] * 3
    assert call(toy.root, "clean", "--keep-runs", "1", "--yes")[0] == 0
    newest, middle, oldest = _runs(toy)
    assert newest.split("\n")[0].endswith("  kept")
    assert "  cleaned on 20" in middle.split("\n")[0]
    assert middle.split("\n")[0].endswith(": b")
    assert oldest.split("\n")[0].endswith("  kept")
    told = json.loads(call(toy.root, "runs", "--json")[1])
    assert [run["outs"]["state"] for run in told] == ["kept", "cleaned", "kept"]
    assert told[1]["outs"]["stages"] == ["b"]
    toy.change("b", beta=0.2)
    assert toy.pipeline()["b"].state == "ran", "the run cache still names it, and the bytes are gone"
    assert [run["outs"]["state"] for run in json.loads(call(toy.root, "runs", "--json")[1])] == ["kept"] * 4
    assert toy.faults(everything=True) == []


def test_other_losses_are_not_put_down_to_clean(toy: Audited) -> None:
    toy.cached("data/b/model.bin").unlink()
    newest = _runs(toy)[0].split("\n")[0]
    assert newest.endswith("  not all in the cache: b")


def test_files_of_runs_and_checkpoints_go_where_asked_and_proofs_stay(toy: Audited) -> None:
    records = {name for name in files(toy.root) if name.endswith(("record.json", "uncommitted.patch"))}
    code, out, _ = call(toy.root, "clean", "--keep-runs", "1", "--artifacts", "--checkpoints", "--yes")
    assert code == 0
    left = files(toy.root)
    assert records <= left.keys()
    assert "mlruns/checkpoints/b.safetensors" not in left
    assert toy.faults(everything=True) == []
    logs = {name.split("/")[2] for name in left if name.startswith("mlruns/artifacts") and name.endswith(".log")}
    assert toy.run_of("b") in logs
    assert toy.run_of("a") in logs, "the last run used what it made"
    assert "removed: " in out


def test_a_run_that_runs_list_as_kept_keeps_its_pages(toy: Audited) -> None:
    assert call(toy.root, "clean", "--keep-runs", "0", "--artifacts", "--yes")[0] == 0
    states = {run["id"]: run["outs"]["state"] for run in json.loads(call(toy.root, "runs", "--json")[1])}
    pages = {file.parent.parent.name for file in (toy.root / "mlruns/artifacts").glob("*/artifacts/report.html")}
    assert {run for run, state in states.items() if state == "kept"} <= pages
    assert len(states) == len(pages) + 1


def test_a_cache_elsewhere_is_left_alone_unless_asked(toy: Audited, tmp_path: Path) -> None:
    shutil.move(toy.root / ".dvc/cache", tmp_path / "shared")
    with (toy.root / ".dvc/config").open("a") as config:
        config.write(f"[cache]\n    dir = {tmp_path / 'shared'}\n")
    before = files(tmp_path / "shared")
    code, out, _ = call(toy.root, "clean", "--keep-runs", "1", "--yes")
    assert code == 0
    assert "is not in this repository, and others may use it: --shared-cache removes from it all the same" in out
    assert out.splitlines()[-1] == "nothing to remove"
    assert files(tmp_path / "shared") == before
    assert call(toy.root, "clean", "--keep-runs", "1", "--yes", "--shared-cache")[0] == 0
    assert len(before) - len(files(tmp_path / "shared")) == 2


def test_the_remote_is_named_and_left_alone(toy: Audited, tmp_path: Path) -> None:
    with (toy.root / ".dvc/config").open("a") as config:
        config.write(f"['remote \"away\"']\n    url = {tmp_path / 'away'}\n")
    toy.dvc("push", "--remote", "away")
    before = files(tmp_path / "away")
    out = call(toy.root, "clean", "--keep-runs", "0", "--old-models", "--yes")[1]
    assert "nothing is removed from the remote away; what was not pushed there is gone for good" in out
    assert files(tmp_path / "away") == before


def test_beside_a_run_or_a_command_of_dvc_nothing_goes(toy: Audited) -> None:
    before = files(toy.root)
    with (toy.root / ".dvc/tmp/posttrain/run.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, error = call(toy.root, "clean", "--keep-runs", "1", "--yes")
        assert (code, error) == (
            2,
            "posttrain: another `posttrain run` is at work in this repository; wait for it, or stop it\n",
        )
    sleeping = subprocess.Popen(["sleep", "60"])
    held = {"write": {str(toy.root / "data/b"): {"pid": sleeping.pid, "cmd": "dvc repro"}}, "read": {}}
    (toy.root / ".dvc/tmp/rwlock").write_text(json.dumps(held))
    code, _, error = call(toy.root, "clean", "--keep-runs", "1", "--yes")
    sleeping.kill()
    sleeping.wait()
    assert (code, error) == (2, "posttrain: `dvc repro` is at work in this repository; wait for it, or stop it\n")
    assert {name for name in files(toy.root) if "cache/files" in name} == {
        name for name in before if "cache/files" in name
    }
    assert call(toy.root, "clean", "--keep-runs", "1", "--yes")[0] == 0, "it was killed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--older-than", "soon"],
            "--older-than: 'soon': expected a number of hours, days or weeks such as 12h, 30d or 4w",
        ),
        (
            ["--older-than", "0d"],
            "--older-than: '0d': expected a number of hours, days or weeks such as 12h, 30d or 4w",
        ),
        (["--stage", "reprot"], "--stage: nothing here was made by a stage 'reprot'; did you mean 'report'?"),
        (
            ["--keep-runs", "-1"],
            "Invalid value for '--keep-runs': Input should be greater than or equal to 0 (posttrain --help lists "
            "what there is)",
        ),
    ],
)
def test_wrong_use_is_one_line(thrice: Audited, arguments: list[str], said: str) -> None:
    assert call(thrice.root, "clean", *arguments) == (2, "", f"posttrain: {said}\n")


def test_by_age_and_stage(toy: Audited) -> None:
    assert call(toy.root, "clean", "--keep-runs", "1", "--older-than", "1000h", "--yes")[1].endswith(
        "nothing to remove\n"
    )
    assert call(toy.root, "clean", "--keep-runs", "1", "--stage", "c", "--yes")[1].endswith("nothing to remove\n")
    code, out, _ = call(toy.root, "clean", "--keep-runs", "1", "--stage", "b", "--json", "--dry-run")
    told = json.loads(out)
    assert (code, len(told["would_remove"]["objects"]), told["removed"]) == (0, 2, None)
    assert {row["stage"] for row in told["stages"]} >= {"a", "b", "c", "report"}


def test_a_repository_in_which_nothing_ran(make_toy, tmp_path: Path) -> None:
    empty = make_toy("empty")
    empty.stage("a")
    code, out, error = call(empty.root, "clean", "--yes")
    assert (code, error) == (0, "")
    assert out.splitlines()[-1] == "nothing to remove"
    assert not os.path.lexists(empty.root / "mlruns")


def _runs(toy: Audited) -> list[str]:
    out = call(toy.root, "runs")[1]
    runs: list[str] = []
    for line in out.splitlines():
        if line.startswith("  "):
            runs[-1] += f"\n{line}"
        else:
            runs.append(line)
    return runs
