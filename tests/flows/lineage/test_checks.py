"""The parts of an audit, by cases that can be followed by hand."""

import hashlib
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flows.console.audit_text import format_audit_summary, print_audit
from flows.engine.dvc_lock import get_entry_hashes
from flows.lineage.checks import database
from flows.lineage.checks.content_hashes import compute_folder_hash
from flows.lineage.checks.findings import Audit
from flows.lineage.checks.lock_differences import EntryDifference, format_entry_value, list_entry_differences
from flows.lineage.checks.origins import list_swapped_paths
from flows.lineage.git_files import Tree, compute_tree_file_hashes
from tests.flows.lineage.audited import Audited

ENTRY: dict[str, Any] = {
    "cmd": "python x.py --a 1",
    "deps": [{"path": "data/a", "hash": "md5", "md5": "a" * 32, "size": 3}],
    "params": {"params.yaml": {"x": {"rate": 0.1, "sizes": [1, 2], "sets": {"one": 1}}}},
    "outs": [{"path": "data/x", "hash": "md5", "md5": "b" * 32 + ".dir", "size": 5, "nfiles": 2}],
}


def test_two_entries_differ_in_these_values() -> None:
    other: dict[str, Any] = {
        "cmd": "python x.py \n  --a 1",  # wrapped by YAML
        "deps": [{"path": "data/a", "md5": "c" * 32}, {"path": "data/b", "md5": "d" * 32}],
        "params": {"params.yaml": {"x": {"rate": 0.2, "sizes": [1, 2], "sets": {"one": 1, "two": 2}}}},
        "outs": [{"path": "data/x", "md5": "b" * 32 + ".dir", "size": 6, "nfiles": 2}],
    }
    assert list_entry_differences(ENTRY, ENTRY) == []
    assert list_entry_differences(ENTRY, other) == [
        EntryDifference("param", "x.rate", 0.1, 0.2),
        EntryDifference("param", "x.sets.two", None, 2),
        EntryDifference("dep", "data/a", "a" * 32, "c" * 32),
        EntryDifference("dep", "data/b", None, "d" * 32),
        EntryDifference("out's size of", "data/x", (5, 2), (6, 2)),
    ]
    assert [one.label for one in list_entry_differences(ENTRY, other)][:3] == ["x.rate", "x.sets.two", "dep data/a"]
    assert format_entry_value(None) == "missing"
    assert len(format_entry_value("x" * 100)) == 60


def test_swapped_are_pairs_that_have_each_other_s_bytes() -> None:
    expected = {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert list_swapped_paths({"a": "2", "b": "1", "c": "3", "d": "4"}, expected) == [("a", "b")]
    assert list_swapped_paths({"a": "2", "b": "3", "c": "1", "d": "4"}, expected) == [], "turned in a circle"
    assert list_swapped_paths({"a": "2", "b": "2", "c": "3", "d": "4"}, expected) == [], "copied"
    assert list_swapped_paths({"a": "2", "b": "1", "c": "4", "d": "3"}, expected) == [("a", "b"), ("c", "d")]
    assert list_swapped_paths(expected, expected) == []


def test_the_hash_of_a_folder_is_dvc_s(audited: Audited) -> None:
    audited.write("data/c/\N{SNOWMAN} b/x.txt", "x")
    audited.write("data/c/B.txt", "y")
    audited.dvc("commit", "--force", "c")
    folder = audited.root / "data/c"
    files = {
        file.relative_to(folder).as_posix(): hashlib.md5(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert len(files) == 4
    assert compute_folder_hash(files) == get_entry_hashes(audited.lock["stages"]["c"], "outs")["data/c"]


@pytest.mark.parametrize("within", ["", "inner/"])
def test_the_files_of_commits_and_patches(tmp_path: Path, within: str) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.autocrlf=false"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    def md5(text: str) -> str:
        return hashlib.md5(text.encode()).hexdigest()

    root = tmp_path / within
    root.mkdir(exist_ok=True)
    git("init", "--quiet")
    (root / "a.py").write_text("1\n")
    (root / "b c.py").write_text("same\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "x")
    commit = git("rev-parse", "HEAD").strip()
    (root / "a.py").write_text("2\n")
    (root / "new.py").write_text("new\n")
    git("add", "--intent-to-add", ".")
    patch = tmp_path / "kept.patch"
    patch.write_text(git("-C", str(root), "diff", "--binary", "--relative", "HEAD"))
    wrong = tmp_path / "wrong.patch"
    wrong.write_text(patch.read_text().replace("-1\n", "-7\n"))
    names = ["a.py", "b c.py", "new.py", "none.py"]
    trees = Tree(commit), Tree(commit, patch), Tree("0" * 40), Tree(commit, wrong)
    before = sorted(tmp_path.rglob("*"))
    assert compute_tree_file_hashes(root, dict.fromkeys(trees, names)) == {
        trees[0]: {"a.py": md5("1\n"), "b c.py": md5("same\n")},
        trees[1]: {"a.py": md5("2\n"), "b c.py": md5("same\n"), "new.py": md5("new\n")},
    }
    assert sorted(tmp_path.rglob("*")) == before, "no object and no index was written"


def test_numbers_of_a_metrics_file() -> None:
    content = {"a": {"mean": 0.5, "of": {"n": 3}}, "b": 1, "text": "x", "none": None, "right": True}
    assert dict(database.iterate_metric_numbers(content)) == {"a/mean": 0.5, "a/of/n": 3.0, "b": 1.0, "right": 1.0}
    assert database.is_same_metric_number(float("nan"), float("nan"))
    assert database.is_same_metric_number(float("inf"), 1.7976931348623157e308)
    assert not database.is_same_metric_number(0.1, 0.1 + 1e-16 * 2)
    assert database.parse_metrics_json(b"{") == {}


def test_what_a_person_reads() -> None:
    audit = Audit(seconds=1.234, read=5_000_000)
    audit.counts["outs"] = 1200
    for index in range(20):
        audit.remark("bytes", f"data/{index}", "is not in the cache")
    assert format_audit_summary(audit).startswith("no faults, 20 remarks: 1,200 outs, 0 files, ")
    audit.fault("run", "MLflow's run of [red]x", "tag a\x1b[31m is b\nc", "x", "0123456789abcdef")
    audit.fault("run", "MLflow's run of [red]x", "tag a\x1b[31m is b\nc", "x", "0123456789abcdef")
    screen = StringIO()
    print_audit(Console(file=screen, width=200), audit)
    lines = screen.getvalue().splitlines()
    assert lines[0] == "fault   MLflow's run of [red]x: tag a?[31m is b c (x, run 01234567)"
    assert lines[12] == "remark  bytes: 9 more remarks; --json has them all"
    assert lines[13].startswith("1 fault, 20 remarks: 1,200 outs, ")
    assert lines[13].endswith("checked in 1.2 s (5.0 MB read)")
    assert len(audit.build_audit_document()["remarks"]) == 20
