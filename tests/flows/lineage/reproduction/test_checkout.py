"""A commit's files, byte for byte, while nothing that the repository or the user configured runs."""

import os
import subprocess
from pathlib import Path

import pytest

from flows.lineage.reproduction import checkout
from flows.lineage.reproduction.checkout import CheckoutError

WHO = ["-c", "user.name=test", "-c", "user.email=test@example.org"]


def git(root: Path, *arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(["git", "-C", root, *WHO, *arguments], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    return root


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    target.mkdir()
    return target


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--no-verify", "--message", "x")
    return git(root, "rev-parse", "HEAD")


def test_every_byte_and_mode_is_the_committed_one(root, target):
    files = {"a.py": b"x = 1\r\ny = 2\n", "data/b c\n.bin": bytes(range(256)), "run.sh": b"#!/bin/sh\n", "empty": b""}
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.py")
    made = commit(root)
    for name in files:
        (root / name).write_bytes(b"changed later")
    assert checkout.check_out_commit(root, made, target) == []
    assert {name: (target / name).read_bytes() for name in files} == files
    assert os.access(target / "run.sh", os.X_OK)
    assert not os.access(target / "a.py", os.X_OK)
    assert (target / "link").readlink() == Path("a.py")


def test_no_hook_filter_or_submodule_runs_and_the_repository_stays_as_it_is(root, target, tmp_path):
    (root / ".gitattributes").write_text(
        "*.txt filter=loud text eol=crlf\nleft.py export-ignore\n*.id ident export-subst\n"
    )
    (root / "a.txt").write_bytes(b"one\ntwo\n")
    (root / "left.py").write_text("x = 1\n")
    (root / "b.id").write_text("$Id$ $Format:%H$\n")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    (root / "module").mkdir()
    git(root, "add", ".gitattributes", "left.py", "b.id", "a.txt")
    git(root, "commit", "--quiet", "--message", "x")
    made, trace = git(root, "rev-parse", "HEAD"), tmp_path / "ran"
    for key in ("filter.loud.smudge", "core.fsmonitor"):
        git(root, "config", key, f"touch {trace}; cat")
    hook = root / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {trace}\n")
    hook.chmod(0o755)
    before = sorted((str(file), file.stat().st_mtime_ns) for file in root.rglob("*"))
    assert checkout.check_out_commit(root, made, target) == ["module"]
    assert not trace.exists()
    assert (target / "a.txt").read_bytes() == b"one\ntwo\n"
    assert (target / "left.py").exists()
    assert (target / "b.id").read_text() == "$Id$ $Format:%H$\n"
    assert sorted((str(file), file.stat().st_mtime_ns) for file in root.rglob("*")) == before
    git(root, "worktree", "add", "--quiet", str(tmp_path / "worktree"), made)
    assert trace.exists(), "git's own way runs them"


def test_a_patch_of_changed_binary_and_new_files(root, target):
    (root / "a.py").write_text("x = 1\n")
    (root / "b.bin").write_bytes(bytes(300))
    (root / "gone.py").write_text("")
    made = commit(root)
    (root / "a.py").write_text("x = 2 \n")  # with a space at the end, which git would mend if it were asked to
    (root / "b.bin").write_bytes(bytes(range(256)) * 2)
    (root / "gone.py").unlink()
    (root / "new.py").write_text("y = 1\n")
    git(root, "add", "--intent-to-add", "new.py")
    command = ["git", "-C", root, "diff", "--binary", "HEAD"]
    patch = root.parent / "kept.patch"
    patch.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    checkout.check_out_commit(root, made, target)
    checkout.apply_patch(patch, target)
    found = {file.name: file.read_bytes() for file in target.iterdir()}
    assert found == {"a.py": b"x = 2 \n", "b.bin": bytes(range(256)) * 2, "new.py": b"y = 1\n"}


@pytest.mark.parametrize("path", ["../out.py", "/tmp/out.py", ".git/hooks/x"])
def test_a_patch_cannot_write_elsewhere(target, path):
    patch = target.parent / "hostile.patch"
    patch.write_text(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+bad\n")
    with pytest.raises(CheckoutError, match="cannot be applied"):
        checkout.apply_patch(patch, target)
    assert not (target.parent / "out.py").exists()
    assert not list(target.iterdir())


def test_a_patch_through_a_link_is_refused(root, target):
    (target / "link").symlink_to(target.parent)
    patch = root.parent / "hostile.patch"
    patch.write_text("--- /dev/null\n+++ b/link/out.py\n@@ -0,0 +1 @@\n+bad\n")
    with pytest.raises(CheckoutError, match="cannot be applied"):
        checkout.apply_patch(patch, target)
    assert not (target.parent / "out.py").exists()


def test_a_tree_with_paths_outside_is_refused(root, target):
    blob = git(root, "hash-object", "-w", "--stdin", given=b"bad")
    for name in ("..", ".git"):
        inner = b"100644 out\0" + bytes.fromhex(blob)
        folder = git(root, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=inner)
        tree = f"40000 {name}\0".encode() + bytes.fromhex(folder)
        outer = git(root, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=tree)
        made = git(root, "commit-tree", outer, "-m", "hostile")
        with pytest.raises(CheckoutError, match="outside the repository"):
            checkout.check_out_commit(root, made, target)
    assert not (target.parent / "out").exists()


def test_which_commits_there_are(root):
    (root / "a").write_text("")
    made = commit(root)
    assert checkout.has_commit(root, made)
    assert not any(checkout.has_commit(root, other) for other in ("0" * 40, None, "none", "--help", ""))
    assert not checkout.has_commit(root.parent, made), "no repository"


def test_a_replaced_object_is_not_taken_for_the_commit(root, target):
    (root / "a").write_text("recorded")
    made = commit(root)
    (root / "a").write_text("another")
    git(root, "replace", made, commit(root))
    checkout.check_out_commit(root, made, target)
    assert (target / "a").read_text() == "recorded"


def test_working_files_without_git(root, target):
    (root / "tasks").mkdir()
    for name in ("tasks/a.py", "params.yaml", "data.csv"):
        (root / name).write_text(name)
    (root / "link.py").symlink_to("/etc/hostname")
    subprocess.run(["rm", "-r", root / ".git"], check=True)
    checkout.copy_working_files(root, target, ["data.csv"])
    assert sorted(file.relative_to(target).as_posix() for file in target.rglob("*.*")) == ["params.yaml", "tasks/a.py"]
