"""What git does to the repository's files as .gitattributes says: DVC hashes their bytes, and an entry of dvc.lock is
of one run.
"""

import subprocess
from pathlib import Path

import pytest

ATTRIBUTES = Path(__file__).parent.parent / ".gitattributes"
LINES = [f"line {number}\n" for number in range(20)]


def git(root: Path, *arguments: str) -> int:
    """Git's exit status."""
    named = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *named, *arguments], cwd=root, capture_output=True, check=False).returncode


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with the attributes of this one."""
    git(tmp_path, "init", "--template=")
    (tmp_path / ".gitattributes").write_bytes(ATTRIBUTES.read_bytes())
    return tmp_path


@pytest.fixture
def diverged(root: Path) -> Path:
    """Two branches that changed lines of dvc.lock far from each other, which git would join by itself."""

    def commit(name: str, changes: dict[int, str]) -> None:
        text = "".join(changes.get(number, line) for number, line in enumerate(LINES))
        (root / "dvc.lock").write_text(text)
        git(root, "add", "-A")
        assert git(root, "commit", "--message", name) == 0

    commit("base", {})
    git(root, "checkout", "-b", "theirs")
    commit("theirs", {2: "theirs\n"})
    git(root, "checkout", "-b", "ours", "HEAD~")
    commit("ours", {17: "ours\n"})
    return root


def whole(root: Path) -> bool:
    """Whether dvc.lock is that of one branch, without conflict markers."""
    text = (root / "dvc.lock").read_text()
    return "<<<<" not in text and ("ours" in text) != ("theirs" in text)


@pytest.mark.parametrize("way", ["merge", "cherry-pick", "rebase"])
def test_dvc_lock_is_never_joined_by_lines(diverged: Path, way: str) -> None:
    assert git(diverged, way, "theirs") == 1, "a conflict"
    assert whole(diverged)


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_merge_that_prefers_a_side_takes_its_dvc_lock(diverged: Path, side: str) -> None:
    assert git(diverged, "merge", "--strategy-option", side, "theirs") == 0
    assert whole(diverged)
    assert side in (diverged / "dvc.lock").read_text()


def test_a_stash_does_not_mix_with_dvc_lock(diverged: Path) -> None:
    (diverged / "dvc.lock").write_text("".join(LINES).replace("line 9\n", "theirs\n"))
    git(diverged, "stash")
    (diverged / "dvc.lock").write_text("".join(LINES).replace("line 3\n", "ours\n"))
    git(diverged, "commit", "--all", "--message", "more")
    assert git(diverged, "stash", "pop") == 1
    assert whole(diverged)


@pytest.mark.parametrize("setting", ["core.autocrlf=true", "core.autocrlf=input", "core.eol=crlf"])
def test_line_ends_are_those_of_the_commit(root: Path, tmp_path: Path, setting: str) -> None:
    files = {"code.py": b"a = 1\nb = 2\n", "data.csv": b"a,b\r\n1,2\r\n", "both.txt": b"one\r\ntwo\n"}
    for name, content in files.items():
        (root / name).write_bytes(content)
    assert git(root, "-c", setting, "add", "-A") == 0
    git(root, "commit", "--message", "files")
    assert git(root, "clone", "--config", setting, ".", "copy") == 0
    assert {name: (root / "copy" / name).read_bytes() for name in files} == files
