"""`posttrain clean` killed in the middle: nothing that is kept is lost, and a second call goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.lineage.cleaning import journal, kept
from flows.lineage.history import pipelines
from tests.flows.lineage.audited import Audited
from tests.flows.toy_pipeline import environ, posttrain

KILLED = """
import os, signal, sys
from pathlib import Path
from flows import cli
from flows.lineage.cleaning import journal, removal

left, unlink, note = int(sys.argv[1]), Path.unlink, journal.note

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

Path.unlink, journal.note = count, noted
removal._tag = (lambda *_: end()) if left == 99 else removal._tag
cli.command(["clean", "--yes", "--keep-runs", "1"])
"""


@pytest.mark.parametrize("objects", [-1, 1, *(pytest.param(one, marks=pytest.mark.slow) for one in (0, 3, 99))])
def test_a_killed_clean_loses_nothing_and_the_next_one_goes_on(audited: Audited, objects: int) -> None:
    for beta in (0.3, 0.4):
        audited.change("b", beta=beta)
        audited.pipeline()
    whole = audited.at(audited.root.parent / "whole")
    assert posttrain(whole.root, "clean", "--yes", "--keep-runs", "1").returncode == 0
    kept_after, before = _objects(whole.root), _objects(audited.root)
    assert len(before - kept_after) == 4, "the folders that b made with 0.2 and with 0.3, each with a file of its own"

    command = [sys.executable, "-c", KILLED, str(objects)]
    killed = subprocess.run(command, cwd=audited.root, env=environ(), check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert kept_after <= _objects(audited.root)
    assert len(before) - len(_objects(audited.root)) == min(max(objects, 0), 4)
    assert audited.faults() == audited.faults(everything=True) == []
    runs = pipelines(audited.root)
    states = [kept.of_pipelines(audited.root, runs)[run.id].state for run in runs]
    assert (states[0], states[3]) == ("kept", "kept")
    assert states.count("cleaned") == min(max(objects, 0), 2), "a folder goes before its files"

    again = posttrain(audited.root, "clean", "--yes", "--keep-runs", "1", "--dry-run")
    assert again.returncode == 0
    assert posttrain(audited.root, "clean", "--yes", "--keep-runs", "1").returncode == 0
    if objects == 99:  # all was gone, and only the tags were missing
        assert "nothing to remove" in again.stdout
    assert _objects(audited.root) == kept_after
    assert audited.faults() == audited.faults(everything=True) == []
    lines = [finding.line for finding in audited.audit(everything=True).remarks]
    when = next(iter(journal.removed(audited.root).values()))
    assert [line for line in lines if f"removed by `posttrain clean` on {when:%Y-%m-%d}" in line]
    assert posttrain(audited.root, "status").stdout == posttrain(whole.root, "status").stdout


def _objects(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in (root / ".dvc/cache/files").rglob("*") if file.is_file()}
