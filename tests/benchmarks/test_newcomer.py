"""The newcomer's clock notes each step once it has happened, on a toy repository with README's commands."""

import os
import subprocess

import pytest

from benchmarks import newcomer

MAKEFILE = """run:
\t@mkdir -p .venv/bin && cp posttrain .venv/bin/posttrain
\t@echo "setting up"
\t@echo "problems                running     never run"
\t@echo "problems                ran         1 s"
\t@touch report.md
"""
COMMAND = """#!/bin/sh
test -f report.md && echo "$@" >> commands.txt
"""


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "source"
    root.mkdir()
    (root / "Makefile").write_text(MAKEFILE)
    (root / "posttrain").write_text(COMMAND)
    (root / "posttrain").chmod(0o755)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "toy"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def test_each_step_is_noted_after_the_one_before(repository, tmp_path):
    seconds = newcomer.measure_newcomer_seconds(repository, tmp_path / "clone", os.environ, "answer")
    assert list(seconds) == [*newcomer.STEPS, newcomer.LONGEST_SILENCE]
    times = [seconds[step] for step in newcomer.STEPS]
    assert times == sorted(times)
    expected = [" ".join(newcomer.CHANGE), " ".join(newcomer.QUESTION)]
    assert (tmp_path / "clone/commands.txt").read_text().splitlines() == expected


def test_it_may_stop_at_the_report(repository, tmp_path):
    seconds = newcomer.measure_newcomer_seconds(repository, tmp_path / "clone", os.environ, "report")
    assert "report" in seconds
    assert "answer" not in seconds
    assert not (tmp_path / "clone/commands.txt").exists()


def test_a_run_that_fails_ends_the_measurement(repository, tmp_path):
    (repository / "Makefile").write_text("run:\n\t@false\n")
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "f"],
        cwd=repository,
        check=True,
    )
    with pytest.raises(SystemExit, match="make run ended with"):
        newcomer.measure_newcomer_seconds(repository, tmp_path / "clone", os.environ, "report")


def test_the_page_has_a_row_for_each_run():
    seconds = {"clone": 0.4, "first stage": 31.2, newcomer.LONGEST_SILENCE: 8.0}
    result = {"machine": "2 cores", "commit": "0123456789", "load": [0.1, 0.2, 0.3], "seconds": seconds}
    page = newcomer.render({"warm": result})
    assert "| warm | 0 | 31 |  |  |  | 8 |" in page
    assert "warm: 2 cores, commit 0123456" in page


def test_the_sentence_names_the_caches_the_seconds_and_the_processor():
    result = {"machine": "2 cores (EPYC, family 25), Linux, Python 3.11", "seconds": {"first stage": 36.9}}
    sentence = newcomer.until_first_stage(
        {"cold caches, to the first stage": result}, "cold caches, to the first stage"
    )
    assert sentence == (
        "With cold caches of pip and uv the first stage started 37 s after the beginning of `git clone`, "
        "on 2 cores (EPYC, family 25).\n"
    )
