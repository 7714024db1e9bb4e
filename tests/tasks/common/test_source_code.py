import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.lineage import git_files
from flows.lineage.git_files import Tree
from flows.lineage.reproduction import checkout
from tasks.common import source_code
from tasks.common.source_code import LARGEST, Source, state
from tests import repository


def git(root: Path, *arguments: str, given: bytes | None = None) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    done = subprocess.run(["git", "-C", root, *who, *arguments], input=given, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.fixture
def root(tmp_path):
    """A repository with one commit."""
    root = tmp_path / "a repository"
    root.mkdir()
    git(root, "init", "--quiet")
    for name, content in {"a.py": "1\n", "gone.py": "g\n", "dvc.lock": "x\n", ".gitignore": "/ignored\n"}.items():
        (root / name).write_text(content)
    (root / "blob").write_bytes(bytes(range(256)))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    return root


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
    assert state(root) == Source(git(root, "rev-parse", "HEAD").strip(), "no")


def test_commit_and_patch_make_the_working_files(root, tmp_path):
    (root / "a.py").write_text("2\n")
    (root / "gone.py").unlink()
    (root / "blob").write_bytes(b"\0\xff" * 400)
    (root / "new folder").mkdir()
    (root / "new folder/é.py").write_text("n\n")
    before = git(root, "status", "--porcelain")
    source = state(root)
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
    made = rebuilt(root, state(root), tmp_path_factory.mktemp("made"))
    assert (made["a.py"], made["untracked"]) == (content, content[::-1] + b"!")


def test_what_is_large_or_a_link_is_named_and_not_kept(root, monkeypatch):
    (root / "large").write_bytes(b"0" * (LARGEST + 1))
    (root / "link").symlink_to("/etc/passwd")
    (root / "small.py").write_text("s\n")
    source = state(root)
    assert source.dirty == "large link small.py"
    assert b"small.py" in source.patch
    assert b"large" not in source.patch
    assert b"passwd" not in source.patch
    source_code._last.clear()
    monkeypatch.setattr(source_code, "ALTOGETHER", 1)
    assert state(root).patch is None


def test_the_users_settings_of_git_change_no_patch(root, tmp_path):
    (root / "a.py").write_text("2\n")
    plain = state(root)
    for setting in ("diff.external=false", "diff.noprefix=true", "color.ui=always", "diff.mnemonicPrefix=true"):
        git(root, "config", *setting.split("="))
        source_code._last.clear()
        assert state(root) == plain


def test_without_git_or_a_commit_only_the_hashes_tell(tmp_path):
    assert state(tmp_path) == Source("none", "unknown", note=state(tmp_path).note)
    assert "not a git repository" in state(tmp_path).note
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.py").write_text("1\n")
    assert state(tmp_path) == Source("none", "a.py")
    assert state(tmp_path).digest is None


def test_files_of_any_name_and_state_are_named_as_git_names_them(root):
    """Against git's older format, with files that are staged, moved, in conflict or new, and names with spaces and line ends."""
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
    assert state(root).dirty == " ".join(line[3:] for line in ordered)
    assert last.keys() < {line[:2] for line in older}
    assert state(root).commit == git(root, "rev-parse", "HEAD").strip()


def test_while_nothing_changes_the_difference_is_made_once(root, monkeypatch):
    asked = []
    ask = source_code.git
    monkeypatch.setattr(
        source_code, "git", lambda root, *words, **more: asked.append(words[0]) or ask(root, *words, **more)
    )
    (root / "a.py").write_text("2\n")
    time.sleep(2 * source_code.YOUNG / 1e9)
    first = state(root)
    asked.clear()
    assert state(root) == first
    assert asked == ["status"]
    (root / "a.py").write_text("3\n")
    assert b"+3" in state(root).patch, "of the same size, and a moment later"
    (root / "new.py").write_text("n\n")
    assert state(root).dirty == "a.py new.py"
    git(root, "commit", "--quiet", "--message", "second", "a.py")
    assert state(root) == Source(git(root, "rev-parse", "HEAD").strip(), "new.py", state(root).patch)


def test_files_that_go_meanwhile_and_the_records_of_runs_do_no_harm(root, monkeypatch):
    (root / "mlruns").mkdir()
    (root / "mlruns/events").write_text("a record")
    for name in ("here.py", "gone soon.py"):
        (root / name).write_text("n\n")
    ask = source_code.git

    def git_and_gone(root, *words, **more):
        said = ask(root, *words, **more)
        (root / "gone soon.py").unlink(missing_ok=True)
        return said

    monkeypatch.setattr(source_code, "git", git_and_gone)
    source = state(root)
    assert source.dirty == "gone soon.py here.py"
    assert b"here.py" in source.patch
    assert b"a record" not in source.patch


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
    source = state(root)
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
    source = state(root)
    assert (source.commit, source.dirty) == ("unknown", "unknown")
    assert source.note.startswith("git: fatal: detected dubious ownership in repository at ")
    for name, value in {"COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert state(root) == Source(commit, "no")


def test_without_git_installed_a_repository_is_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    assert state(root) == Source("unknown", "unknown", note="git: it cannot be started (No such file or directory)")
    assert state(root.parent) == Source("none", "unknown", note="git: it cannot be started (No such file or directory)")


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
    """The commit and the patch, read by those who audit and who make a run again, have the bytes of the working files."""
    place = lay_out(root)
    commit = git(place, "rev-parse", "HEAD").strip()
    assert state(place) == Source(commit, "no")
    (place / "a.py").write_text("edited\n")
    (place / "blob").write_bytes(b"\0\1\2")
    (place / "gone.py").unlink()
    (place / "new.py").write_text("n\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another repository"))  # as in a hook of another repository
    source = state(place)
    assert (source.commit, source.dirty, source.note) == (commit, "a.py blob gone.py new.py", "")
    patch = tmp_path / "kept.patch"
    patch.write_bytes(source.patch)
    files = {"a.py": b"edited\n", "blob": b"\0\1\2", "new.py": b"n\n"}
    assert git_files.contents(place, Tree(commit, patch), ["a.py", "blob", "new.py", "gone.py"]) == files
    assert checkout.has_commit(place, commit)
    again = tmp_path / "again"
    again.mkdir()
    checkout.check_out(place, commit, again)
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
    source = state(root / "copy")
    assert (source.commit, source.patch) == ("unknown", None)
    assert source.note == "git: the repository above tracks nothing of this folder"


def test_a_patch_that_cannot_be_made_is_said(root: Path) -> None:
    """A filter that the repository asks for is not installed here."""
    (root / ".gitattributes").write_text("*.bin filter=large\n")
    for key, value in {"clean": "no-such-program", "required": "true"}.items():
        git(root, "config", f"filter.large.{key}", value)
    (root / "x.bin").write_text("content\n")
    (root / "a.py").write_text("2\n")
    source = state(root)
    assert source.commit == git(root, "rev-parse", "HEAD").strip()
    assert source.dirty == ".gitattributes a.py x.bin" or set(source.dirty.split()) == {
        ".gitattributes",
        "a.py",
        "x.bin",
    }
    assert source.patch is None
    assert source.note.startswith("no patch was kept; git: ")


# Put together here, so that no tool takes this file for one with secrets.
TOKEN = "hf_" + "aB3" * 12
BY_NAME = (
    ".env",
    ".env.local",
    "prod.env",
    "conf/.envrc",
    "server.pem",
    "tls/host.key",
    "id_rsa",
    "keys/id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "credentials.json",
    "Secrets.toml",
    "client_secret_1.json",
    "service-account.json",
    ".aws/config",
    ".ssh/known",
    ".kube/config",
    "kubeconfig.yaml",
    "token",
    "hf_token.txt",
    ".huggingface/stored",
    "wandb-api-key",
    "mirror/.dvc/config.local",
    "passwords.csv",
)
BY_CONTENT = {
    "notes.txt": f"the token is {TOKEN}.",
    "run.sh": "#!/bin/sh\nexport HF_TOKEN=hf_SECRET123\n",
    "reward.py": f'KEY = "sk-{"proj-" + "x9" * 15}"\n',
    "aws.yaml": "id: " + "AKIA" + "A1B2" * 4,
    "git.cfg": "url = https://me:" + "l0ng-enough@host/x",
    "hub.py": 'login("' + "ghp_" + "a1B2" * 9 + '")',
    "key.txt": "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nabc\n",
    "client.json": '{"api_key": "' + "9f" * 12 + '"}',
}
OPEN = (
    "tokenizer.py",
    "tokenizer.json",
    "special_tokens_map.json",
    "end-token.yaml",
    "secrets.py",
    ".env.example",
    "environment.yaml",
    "key.py",
    "monkey.csv",
)


@pytest.mark.parametrize("tracked", [False, True])
def test_no_secret_is_in_the_patch_or_the_list_and_the_record_says_so(root: Path, tracked: bool) -> None:
    """New, or tracked and edited; by the name, or by the content; the other files are all there."""
    secrets = {**dict.fromkeys(BY_NAME, "the-secret-itself\n"), **BY_CONTENT}
    for path in (*secrets, *OPEN):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("before\n")
    if tracked:
        git(root, "add", "--force", ".")
        git(root, "commit", "--quiet", "--message", "all")
    for path, content in secrets.items():
        (root / path).write_text(content)
    for path in OPEN:
        (root / path).write_text("open\n")
    source = state(root)
    assert set(source.dirty.split()) == set(OPEN)
    for path in OPEN:
        assert path.encode() in source.patch
    for path, content in secrets.items():
        assert f" b/{path}\n".encode() not in source.patch, path
        assert content.strip().encode() not in source.patch, path
    assert source.note.startswith(f"{len(secrets)} files that differ are neither named nor kept")


def test_a_secret_that_was_committed_and_is_taken_out_is_not_in_the_patch(root: Path) -> None:
    (root / "conf.py").write_text(f'TOKEN = "{TOKEN}"\n')
    (root / ".env").write_text("x=the-secret-itself\n")
    git(root, "add", "--force", ".")
    git(root, "commit", "--quiet", "--message", "oh")
    (root / "conf.py").write_text("TOKEN = None\n")
    (root / ".env").unlink()
    (root / "a.py").write_text("2\n")
    source = state(root)
    assert source.dirty == "a.py"
    assert TOKEN.encode() not in source.patch
    assert b"the-secret-itself" not in source.patch


def test_where_only_a_secret_differs_the_code_is_the_commit_s(root: Path) -> None:
    (root / ".env").write_text("HF_TOKEN=hf_SECRET123\n")
    source = state(root)
    assert source == Source(git(root, "rev-parse", "HEAD").strip(), "no", None, source.note)
    assert source.note.startswith("1 file that differs is neither named nor kept")


@pytest.mark.tree
def test_no_file_of_the_project_s_own_is_taken_for_a_secret() -> None:
    folders = ("flows", "tasks", "rewards", "environments", "presets", "docs", "benchmarks", "deploy", "data")
    files = [file for folder in folders for file in repository.files(f"{folder}/**/*")]
    files += repository.files("*")
    assert len(files) > 500
    names = [str(file.relative_to(repository.ROOT)) for file in files]
    assert [name for name in names if source_code.is_secret(name)] == []
    assert [name for name in names if source_code.SECRET.search((repository.ROOT / name).read_bytes())] == []
