"""The state of the code, as commit, list of files and patch."""

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.common import source_code
from tasks.common.source_code import LARGEST, CodeState, read_code_state
from tests.tasks.common.sources import git, make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit."""
    return make(tmp_path / "a repository")


def rebuilt(root, source, tmp_path):
    """The files that the commit and the patch make, by path."""
    again = tmp_path / "again"
    git(tmp_path, "clone", "--quiet", str(root), str(again))
    git(again, "checkout", "--quiet", source.commit)
    git(again, "apply", "--binary", "-", given=source.patch)
    return {
        file.relative_to(again).as_posix(): file.read_bytes()
        for file in again.rglob("*")
        if file.is_file() and ".git" not in file.relative_to(again).parts
    }


def test_a_clean_tree_has_a_commit_and_no_patch(root):
    (root / "ignored").write_text("not seen")
    (root / "dvc.lock").write_text("its content is recorded with the runs")
    assert read_code_state(root) == CodeState(git(root, "rev-parse", "HEAD").strip(), "no")


def test_commit_and_patch_make_the_working_files(root, tmp_path):
    (root / "a.py").write_text("2\n")
    (root / "gone.py").unlink()
    (root / "blob").write_bytes(b"\0\xff" * 400)
    (root / "new folder").mkdir()
    (root / "new folder/é.py").write_text("n\n")
    before = git(root, "status", "--porcelain")
    source = read_code_state(root)
    assert source.dirty == "a.py blob gone.py new folder/é.py"
    assert git(root, "status", "--porcelain") == before, "the index is as it was"
    made = rebuilt(root, source, tmp_path)
    assert made.pop("dvc.lock") == b"x\n"
    assert made == {
        ".gitignore": b"/ignored\n",
        "a.py": b"2\n",
        "blob": b"\0\xff" * 400,
        "new folder/é.py": b"n\n",
    }


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), staged=st.booleans())
def test_any_bytes_come_back(root, tmp_path_factory, content, staged):
    (root / "a.py").write_bytes(content)
    (root / "untracked").write_bytes(content[::-1] + b"!")
    if staged:
        git(root, "add", "a.py")
    made = rebuilt(root, read_code_state(root), tmp_path_factory.mktemp("made"))
    assert (made["a.py"], made["untracked"]) == (content, content[::-1] + b"!")


def test_what_is_large_or_a_link_is_named_and_not_kept(root, monkeypatch):
    (root / "large").write_bytes(b"0" * (LARGEST + 1))
    (root / "link").symlink_to("/etc/passwd")
    (root / "small.py").write_text("s\n")
    source = read_code_state(root)
    assert source.dirty == "large link small.py"
    assert b"small.py" in source.patch
    assert b"large" not in source.patch
    assert b"passwd" not in source.patch
    source_code._last.clear()
    monkeypatch.setattr(source_code, "ALTOGETHER", 1)
    assert read_code_state(root).patch is None


def test_the_users_settings_of_git_change_no_patch(root, tmp_path):
    (root / "a.py").write_text("2\n")
    plain = read_code_state(root)
    for setting in ("diff.external=false", "diff.noprefix=true", "color.ui=always", "diff.mnemonicPrefix=true"):
        git(root, "config", *setting.split("="))
        source_code._last.clear()
        assert read_code_state(root) == plain


def test_without_git_or_a_commit_only_the_hashes_tell(tmp_path):
    assert read_code_state(tmp_path) == CodeState("none", "unknown", note=read_code_state(tmp_path).note)
    assert "not a git repository" in read_code_state(tmp_path).note
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.py").write_text("1\n")
    assert read_code_state(tmp_path) == CodeState("none", "a.py")
    assert read_code_state(tmp_path).digest is None


def test_files_of_any_name_and_state_are_named_as_git_names_them(root):
    """Against git's older format, with files that are staged, moved, in conflict or new, and names with spaces and line
    ends.
    """
    git(root, "checkout", "--quiet", "-b", "other")
    (root / "a.py").write_text("other\n")
    git(root, "commit", "--quiet", "--all", "--message", "other")
    git(root, "checkout", "--quiet", "-")
    (root / "a.py").write_text("ours\n")
    git(root, "commit", "--quiet", "--all", "--message", "ours")
    subprocess.run(["git", "-C", root, "merge", "--quiet", "other"], capture_output=True, check=False)
    git(root, "mv", "gone.py", "moved to.py")
    for name in ("two  spaces ", "new\nline", "? 1 a", "é"):
        (root / name).write_text(name)
    git(root, "add", "é")
    older = git(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all").split("\0")
    last = {"UU": 1, "??": 2}  # the order of the newer format
    ordered = sorted(filter(None, older), key=lambda line: last.get(line[:2], 0))
    assert read_code_state(root).dirty == " ".join(line[3:] for line in ordered)
    assert last.keys() < {line[:2] for line in older}
    assert read_code_state(root).commit == git(root, "rev-parse", "HEAD").strip()


def test_while_nothing_changes_the_difference_is_made_once(root, monkeypatch):
    asked = []
    ask = source_code.read_git_output
    monkeypatch.setattr(
        source_code, "read_git_output", lambda root, *words, **more: asked.append(words[0]) or ask(root, *words, **more)
    )
    (root / "a.py").write_text("2\n")
    time.sleep(2 * source_code.YOUNG / 1e9)
    first = read_code_state(root)
    asked.clear()
    assert read_code_state(root) == first
    assert asked == ["status"]
    (root / "a.py").write_text("3\n")
    assert b"+3" in read_code_state(root).patch, "of the same size, and a moment later"
    (root / "new.py").write_text("n\n")
    assert read_code_state(root).dirty == "a.py new.py"
    git(root, "commit", "--quiet", "--message", "second", "a.py")
    assert read_code_state(root) == CodeState(
        git(root, "rev-parse", "HEAD").strip(), "new.py", read_code_state(root).patch
    )


def test_files_that_go_meanwhile_and_the_records_of_runs_do_no_harm(root, monkeypatch):
    (root / "mlruns").mkdir()
    (root / "mlruns/events").write_text("a record")
    for name in ("here.py", "gone soon.py"):
        (root / name).write_text("n\n")
    ask = source_code.read_git_output

    def git_and_gone(root, *words, **more):
        said = ask(root, *words, **more)
        (root / "gone soon.py").unlink(missing_ok=True)
        return said

    monkeypatch.setattr(source_code, "read_git_output", git_and_gone)
    source = read_code_state(root)
    assert source.dirty == "gone soon.py here.py"
    assert b"here.py" in source.patch
    assert b"a record" not in source.patch
