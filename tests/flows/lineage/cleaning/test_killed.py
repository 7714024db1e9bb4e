"""`posttrain clean` killed in the middle: nothing that is kept is lost, and a second call goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.lineage.cleaning import cache_presence, removal_log
from flows.lineage.history import load_pipeline_runs
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.quick import as_killed
from tests.flows.toy_pipeline import call, environ

KILLED = """
import os, signal, sys
from pathlib import Path
from flows import cli
from flows.lineage.cleaning import removal, removal_log

left, unlink, note = int(sys.argv[1]), Path.unlink, removal_log.append_removal

def end():
    os.kill(os.getpid(), signal.SIGKILL)

def count(self, *arguments, **options):
    global left
    if ".dvc/cache" in str(self):
        if left == 0:
            end()
        left -= 1
    unlink(self, *arguments, **options)

def noted(*arguments):
    if left < 0:  # in the middle of the note
        (Path("mlruns") / "cleaned.jsonl").write_text('{"time": "2026-')
        end()
    note(*arguments)

Path.unlink, removal_log.append_removal = count, noted
removal._tag_cleaned_runs = (lambda *_: end()) if left == 99 else removal._tag_cleaned_runs
cli.run_command_line(["clean", "--yes", "--keep-runs", "1"])
"""


@pytest.fixture(scope="module")
def cleaned(audited_oft: Audited, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository after one `posttrain clean`."""
    root = audited_oft.at(tmp_path_factory.mktemp("whole") / "repository").root
    before = _objects(root)
    assert call(root, "clean", "--yes", "--keep-runs", "1")[0] == 0
    assert len(before - _objects(root)) == 4, (
        "the folders that b made with 0.2 and with 0.3, each with a file of its own"
    )
    return root


@pytest.mark.slow
@pytest.mark.parametrize("objects", [-1, 0, 1, 3, 99])
def test_a_killed_clean_loses_nothing_and_the_next_one_goes_on(
    four_times: Audited, cleaned: Path, objects: int
) -> None:
    before = _objects(four_times.root)
    command = [sys.executable, "-c", KILLED, str(objects)]
    killed = subprocess.run(command, cwd=four_times.root, env=environ(), check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert _objects(cleaned) <= _objects(four_times.root)
    assert len(before) - len(_objects(four_times.root)) == min(max(objects, 0), 4)
    _goes_on(four_times, cleaned, min(max(objects, 0), 2), nothing_left=objects == 99)


def test_a_clean_that_ended_within_a_folder(
    four_times: Audited, cleaned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill leaves when one of the objects is gone."""
    unlink, gone = Path.unlink, []

    def unlinked(file: Path, missing_ok: bool = False) -> None:
        if ".dvc/cache/files" in str(file):
            if len(gone) == 1:
                as_killed(four_times.root, tmp_path / "killed")
            gone.append(file)
        unlink(file, missing_ok)

    before = _objects(four_times.root)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlinked)
        assert call(four_times.root, "clean", "--yes", "--keep-runs", "1")[0] == 0
    assert len(gone) == 4
    four_times.root = tmp_path / "killed"
    assert len(before) - len(_objects(four_times.root)) == 1
    _goes_on(four_times, cleaned, 1)


def test_a_note_that_was_torn_by_a_kill(four_times: Audited, cleaned: Path) -> None:
    """What a kill in the middle of the note leaves, before anything was removed."""
    (four_times.root / "mlruns/cleaned.jsonl").write_text('{"time": "2026-')
    assert four_times.faults(everything=True) == []
    runs = load_pipeline_runs(four_times.root)
    assert "cleaned" not in {
        state.state for state in cache_presence.compute_cache_presence(four_times.root, runs).values()
    }
    assert call(four_times.root, "clean", "--yes", "--keep-runs", "1")[0] == 0
    assert _objects(four_times.root) == _objects(cleaned)
    assert removal_log.load_removal_times(four_times.root).keys() == removal_log.load_removal_times(cleaned).keys()


def _goes_on(audited: Audited, cleaned: Path, gone: int, nothing_left: bool = False) -> None:
    """Nothing is wrong after the kill, of so many runs it is known that they were cleaned, and the next call ends the
    work.
    """
    assert audited.faults(everything=True) == []
    runs = load_pipeline_runs(audited.root)
    states = [cache_presence.compute_cache_presence(audited.root, runs)[run.id].state for run in runs]
    assert (states[0], states[3]) == ("kept", "kept")
    assert states.count("cleaned") == gone, "a folder goes before its files"

    code, out, _ = call(audited.root, "clean", "--yes", "--keep-runs", "1", "--dry-run")
    assert code == 0
    assert ("nothing to remove" in out) == nothing_left, "all was gone, and only the tags were missing"
    assert call(audited.root, "clean", "--yes", "--keep-runs", "1")[0] == 0
    assert _objects(audited.root) == _objects(cleaned)
    audit = audited.audit(everything=True)
    assert audit.faults == []
    lines = [finding.line for finding in audit.remarks]
    when = next(iter(removal_log.load_removal_times(audited.root).values()))
    assert [line for line in lines if f"removed by `posttrain clean` on {when:%Y-%m-%d}" in line]
    assert call(audited.root, "status") == call(cleaned, "status")


def _objects(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in (root / ".dvc/cache/files").rglob("*") if file.is_file()}
