"""The state of the code in every layout of git that people have: the truth, or git's own reason why it is unknown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.lineage import git_files
from flows.lineage.git_files import Tree
from flows.lineage.reproduction import checkout
from tasks.common.source_code import CodeState, read_code_state
from tests.tasks.common.sources import git, make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit."""
    return make(tmp_path / "a repository")


def broken_head(root: Path) -> None:
    (root / ".git/HEAD").write_text("garbage\n")


def missing_commit(root: Path) -> None:
    branch = (root / ".git/HEAD").read_text().split()[-1]
    (root / ".git" / branch).write_text("1" * 40 + "\n")


def emptied_branch(root: Path) -> None:
    """As a power cut leaves it: `git status` itself takes it for a branch without commits."""
    branch = (root / ".git/HEAD").read_text().split()[-1]
    (root / ".git" / branch).write_text("")


def broken_index(root: Path) -> None:
    (root / ".git/index").write_bytes(b"DIRC torn")


def bare(root: Path) -> None:
    git(root, "config", "core.bare", "true")


def lost_worktree(root: Path) -> None:
    (root / ".git").rename(root.with_name("moved"))
    (root / ".git").write_text("gitdir: /nowhere/.git/worktrees/x\n")


REFUSING = {
    broken_head: "fatal: not a git repository",
    missing_commit: "fatal: bad object HEAD",
    emptied_branch: "fatal: your current branch appears to be broken",
    broken_index: "",
    bare: "fatal: this operation must be run in a work tree",
    lost_worktree: "fatal: not a git repository: /nowhere",
}


@pytest.mark.parametrize("breaks", REFUSING, ids=lambda breaks: breaks.__name__)
def test_where_git_cannot_say_its_own_reason_is_on_record(root: Path, breaks: Callable[[Path], None]) -> None:
    (root / "a.py").write_text("2\n")
    breaks(root)
    source = read_code_state(root)
    assert (source.commit, source.dirty, source.patch) == ("unknown", "unknown", None)
    assert source.note.startswith(f"git: {REFUSING[breaks]}")
    assert len(source.note) > len("git: fatal: ")
    assert "\n" not in source.note
    assert source.tags() == {
        "posttrain.git_commit": "unknown",
        "posttrain.git_dirty": "unknown",
        "posttrain.git_note": source.note,
    }


def test_a_checkout_of_another_user_is_unknown_until_git_is_told_to_trust_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(root, "rev-parse", "HEAD").strip()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own tests have it so
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    source = read_code_state(root)
    assert (source.commit, source.dirty) == ("unknown", "unknown")
    assert source.note.startswith("git: fatal: detected dubious ownership in repository at ")
    for name, value in {"COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert read_code_state(root) == CodeState(commit, "no")


def test_without_git_installed_a_repository_is_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    assert read_code_state(root) == CodeState(
        "unknown", "unknown", note="git: it cannot be started (No such file or directory)"
    )
    assert read_code_state(root.parent) == CodeState(
        "none", "unknown", note="git: it cannot be started (No such file or directory)"
    )


def moved_into_a_subfolder(root: Path) -> Path:
    below = root / "some/where"
    below.mkdir(parents=True)
    for name in ("a.py", "gone.py", "blob", "dvc.lock"):
        git(root, "mv", name, str(below / name))
    git(root, "commit", "--quiet", "--message", "below")
    (root / "beside.py").write_text("not ours\n")
    return below


def a_worktree(root: Path) -> Path:
    git(root, "worktree", "add", "--quiet", str(root.with_name("worktree")))
    return root.with_name("worktree")


def a_shallow_clone(root: Path) -> Path:
    git(root, "commit", "--quiet", "--allow-empty", "--message", "second")
    git(root, "clone", "--quiet", "--depth=1", root.as_uri(), str(root.with_name("shallow")))
    return root.with_name("shallow")


def a_submodule(root: Path) -> Path:
    above = root.with_name("above")
    above.mkdir()
    git(above, "init", "--quiet")
    git(above, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "module")
    return above / "module"


def a_sparse_checkout(root: Path) -> Path:
    (root / "left out").mkdir()
    (root / "left out/x.py").write_text("x\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "more")
    git(root, "sparse-checkout", "set", "--no-cone", "/*", "!/left out/")
    assert not (root / "left out/x.py").exists()
    return root


def a_locked_index(root: Path) -> Path:
    (root / ".git/index.lock").touch()
    return root


def a_link(root: Path) -> Path:
    root.with_name("link").symlink_to(moved_into_a_subfolder(root))
    return root.with_name("link")


LAYOUTS = (moved_into_a_subfolder, a_worktree, a_shallow_clone, a_submodule, a_sparse_checkout, a_locked_index, a_link)


@pytest.mark.parametrize("lay_out", LAYOUTS, ids=lambda lay_out: lay_out.__name__)
def test_in_every_layout_the_record_makes_the_files_that_ran(
    root: Path, lay_out: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit and the patch, read by those who audit and who make a run again, have the bytes of the working
    files.
    """
    place = lay_out(root)
    commit = git(place, "rev-parse", "HEAD").strip()
    assert read_code_state(place) == CodeState(commit, "no")
    (place / "a.py").write_text("edited\n")
    (place / "blob").write_bytes(b"\0\1\2")
    (place / "gone.py").unlink()
    (place / "new.py").write_text("n\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another repository"))  # as in a hook of another repository
    source = read_code_state(place)
    assert (source.commit, source.dirty, source.note) == (commit, "a.py blob gone.py new.py", "")
    patch = tmp_path / "kept.patch"
    patch.write_bytes(source.patch)
    files = {"a.py": b"edited\n", "blob": b"\0\1\2", "new.py": b"n\n"}
    assert git_files.read_tree_files(place, Tree(commit, patch), ["a.py", "blob", "new.py", "gone.py"]) == files
    assert checkout.has_commit(place, commit)
    again = tmp_path / "again"
    again.mkdir()
    checkout.check_out_commit(place, commit, again)
    checkout.apply_patch(patch, again)
    assert {name: (again / name).read_bytes() for name in files} == files
    assert not (again / "gone.py").exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_repository_above_that_has_nothing_of_the_folder_is_not_its_commit(root: Path, ignored: bool) -> None:
    """A copy without git in a folder of another repository, which says that nothing has changed."""
    if ignored:
        (root / ".gitignore").write_text("/copy\n")
    (root / "copy").mkdir()
    (root / "copy/a.py").write_text("1\n")
    source = read_code_state(root / "copy")
    assert (source.commit, source.patch) == ("unknown", None)
    assert source.note == "git: the repository that it would take tracks nothing of this folder"


def test_a_repository_that_git_dir_names_counts_where_it_has_the_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As people keep it apart from the files; in a hook it may be that of another folder."""
    commit = git(root, "rev-parse", "HEAD").strip()
    (root / ".git").rename(tmp_path / "apart.git")
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.py").write_text("1\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "apart.git"))
    assert read_code_state(root) == CodeState(commit, "no")
    assert read_code_state(other).commit == "none"
    assert read_code_state(other).note.startswith("git: the repository that it would take")


def test_a_patch_that_cannot_be_made_is_said(root: Path) -> None:
    """A filter that the repository asks for is not installed here."""
    (root / ".gitattributes").write_text("*.bin filter=large\n")
    for key, value in {"clean": "no-such-program", "required": "true"}.items():
        git(root, "config", f"filter.large.{key}", value)
    (root / "x.bin").write_text("content\n")
    (root / "a.py").write_text("2\n")
    source = read_code_state(root)
    assert source.commit == git(root, "rev-parse", "HEAD").strip()
    assert source.dirty == ".gitattributes a.py x.bin" or set(source.dirty.split()) == {
        ".gitattributes",
        "a.py",
        "x.bin",
    }
    assert source.patch is None
    assert source.note.startswith("no patch was kept; git: ")
