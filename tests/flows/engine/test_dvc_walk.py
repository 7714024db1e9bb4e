"""What DVC hashes of a folder is what a stage reads of it; anything else is refused in one line before it is opened."""

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.dvc_walk import copy_hashed_files, list_hashed_files
from flows.engine.plan import PlanError
from tests import repository
from tests.flows.engine.toy import Toy
from tests.repository import ROOT

pytestmark = pytest.mark.usefixtures("plain_commands")


@pytest.fixture
def raw(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of raw data, which a stage has read."""
    monkeypatch.chdir(toy.root)
    toy.write("raw/rows/one.txt", "1")
    toy.stage("a", cmd="python work.py data/a raw/rows/one.txt", deps=["work.py", "raw"])
    toy.run()
    assert toy.reasons() == {"a": None}
    return toy.root / "raw"


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


def folder(path: Path) -> Path:
    path.mkdir()
    (path / "two.txt").write_text("2")
    return path


# What lies at a path, how it comes there (with an empty folder elsewhere), and what is said of it.
UNHASHED: dict[str, tuple[str, Callable[[Path, Path], object], str]] = {
    "folder elsewhere": ("raw/mine", lambda at, tmp: at.symlink_to(folder(tmp / "disk")), "link to .*/disk, a folder"),
    "folder within": ("raw/mine", lambda at, tmp: at.symlink_to("rows"), "link to rows, a folder"),
    "deep": ("raw/rows/mine", lambda at, tmp: at.symlink_to(folder(tmp / "disk")), "link to .*/disk, a folder"),
    "itself": ("raw/loop", lambda at, tmp: at.symlink_to("."), "link to ., a folder"),
    "the folder above": ("raw/rows/up", lambda at, tmp: at.symlink_to(".."), "link to .., a folder"),
    "circle": ("raw/circle", lambda at, tmp: at.symlink_to("circle"), "link to circle, which leads nowhere"),
    "nothing": ("raw/gone", lambda at, tmp: at.symlink_to("missing"), "link to missing, which leads nowhere"),
    "pipe": ("raw/rows/pipe", lambda at, tmp: os.mkfifo(at), "a pipe"),
    "link to a pipe": (
        "raw/x",
        lambda at, tmp: (os.mkfifo(tmp / "y"), at.symlink_to(tmp / "y")),
        "link to .*/y, a pipe",
    ),
    "socket": ("raw/socket", lambda at, tmp: a_socket(at), "a socket"),
    "device": ("raw/rows/zero", lambda at, tmp: at.symlink_to("/dev/zero"), "link to /dev/zero, a device"),
    "repository": ("raw/own", lambda at, tmp: folder(at).joinpath(".dvc").mkdir(), "a DVC repository of its own"),
    "all a repository": ("raw", lambda at, tmp: (at / ".dvc").mkdir(), "a DVC repository of its own"),
    "all left out": ("raw", lambda at, tmp: (at.parent / ".dvcignore").write_text("raw"), ".dvcignore leaves it out"),
    "another .dvcignore": (
        "raw/.dvcignore",
        lambda at, tmp: at.write_text("*.txt"),
        "the repository's own folder only",
    ),
    "control characters": ("raw/\x1b[2J", lambda at, tmp: os.mkfifo(at), "a pipe"),
    "no text": ("raw/\udce9", lambda at, tmp: at.write_text("x"), "its name is not UTF-8"),
    "an out": ("data/a", lambda at, tmp: (at.unlink(), os.mkfifo(at)), "a pipe"),
}


@pytest.mark.parametrize("case", UNHASHED)
def test_what_would_not_be_hashed_as_it_is_read_is_refused(
    toy: Toy, raw: Path, tmp_path_factory: pytest.TempPathFactory, case: str
) -> None:
    path, make, what = UNHASHED[case]
    if case == "no text" and sys.platform == "darwin":
        pytest.skip("its file systems have no such names")
    make(toy.root / path, tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(PlanError, match=what) as refused:
        toy.plan()
    line = str(refused.value)
    assert line.startswith(f"{path.encode('unicode_escape').decode()}: ")
    assert line.isprintable()


def test_it_is_refused_for_a_stage_that_never_ran(toy: Toy, raw: Path) -> None:
    os.mkfifo(raw / "pipe")
    toy.stage("b", cmd="python work.py data/b", deps=["work.py", "raw"])
    with pytest.raises(PlanError, match=r"^raw/pipe: a pipe"):
        toy.plan("b")


def test_it_ends_a_stage_during_which_it_comes(toy: Toy, raw: Path) -> None:
    toy.stage("b", cmd="mkfifo raw/pipe && echo 1 > data/b", deps=["raw"])
    result = toy.run("b")["b"]
    assert (result.state, result.reason) == ("failed", "raw/pipe: a pipe; expected files and folders")
    assert not (toy.root / "data/b").exists()


def test_a_folder_that_no_path_reaches_is_refused(toy: Toy, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what lies in it DVC would hash nothing."""
    monkeypatch.chdir(raw)
    for _ in range(25):
        Path("e" * 200).mkdir()
        os.chdir("e" * 200)
    os.chdir(toy.root)
    try:
        with pytest.raises(PlanError, match="too long") as refused:
            toy.plan()
        assert len(str(refused.value)) < 300
    finally:
        subprocess.run(["rm", "-r", raw / ("e" * 200)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
@pytest.mark.parametrize("path", ["raw/rows/one.txt", "raw/rows", "raw"])
def test_what_may_not_be_read_is_refused(toy: Toy, raw: Path, path: str) -> None:
    mode = (toy.root / path).stat().st_mode
    (toy.root / path).chmod(0)
    try:
        with pytest.raises(PlanError, match=f"^{path}: it cannot be read"):
            toy.plan()
    finally:
        (toy.root / path).chmod(mode)


def test_links_to_files_and_a_dep_that_is_a_link_are_followed(
    toy: Toy, raw: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = folder(tmp_path_factory.mktemp("elsewhere") / "disk")
    (raw / "two.txt").symlink_to(disk / "two.txt")
    (raw / "rows/three.txt").hardlink_to(disk / "two.txt")
    assert toy.reasons() == {"a": "dep raw changed"}
    toy.run()
    (disk / "two.txt").write_text("other")
    assert toy.reasons() == {"a": "dep raw changed"}
    toy.run()
    raw.rename(disk / "raw")
    raw.symlink_to(disk / "raw")
    assert toy.reasons() == {"a": None}, "the same bytes"
    (disk / "raw/rows/one.txt").write_text("more")
    assert toy.reasons() == {"a": "dep raw changed"}


def test_a_folder_without_data_is_hashed_as_empty(toy: Toy, raw: Path) -> None:
    """Git keeps the folder by a page that .dvcignore leaves out: an edit of the page runs nothing."""
    toy.write(".dvcignore", "README.md\n")
    toy.write("none/README.md", "No data yet.\n")
    toy.stage("b", deps=["work.py", "none"])
    toy.run("b")
    recorded = {dep["path"]: dep["md5"] for dep in toy.lock["stages"]["b"]["deps"]}
    assert recorded["none"] == f"{hashlib.md5(b'[]', usedforsecurity=False).hexdigest()}.dir"
    assert "up to date" in toy.dvc("status", "b")
    toy.write("none/README.md", "No data yet!\n")
    assert toy.reasons("b") == {"b": None}
    toy.write("none/one.txt", "1")
    assert toy.reasons("b") == {"b": "dep none changed"}


def test_pages_that_explain_a_folder_are_no_data() -> None:
    """Of those that git has, no README.md of raw data, of rewards or of environments is hashed."""
    for folder in ("data/raw", "rewards", "environments"):
        pages = {*repository.files(f"{folder}/**/README.md")}
        hashed = {*list_hashed_files(ROOT, ROOT / folder)}
        assert pages
        assert not pages & hashed


NAMES = st.sampled_from(["a", "b", "c", ".hidden", "x.pyc"])
ENTRIES = st.recursive(
    st.one_of(
        st.binary(max_size=3),
        st.sampled_from(["pipe", "link to a", "link to ../b", "link to ..", "link to nothing"]),
    ),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.dictionaries(NAMES, ENTRIES, max_size=4))
def test_the_files_that_are_hashed_are_those_that_a_reader_finds(entries: dict[str, Any]) -> None:
    """A reader goes into every linked folder.

    Where that leads to more than is hashed, or never ends, the folder is refused.
    """
    with TemporaryDirectory() as home:
        root, data = Path(home), Path(home, "data")
        (root / ".dvcignore").write_text("*.pyc\n")
        lay_out(data, entries)
        if any(map(unhashed, walk(data, follow=False))):
            with pytest.raises(PlanError) as refused:
                copy_hashed_files(root, data, root / "copy")
            assert unhashed(root / str(refused.value).partition(":")[0])
            assert not (root / "copy").exists()
        else:
            assert {*list_hashed_files(root, data)} == {path for path in walk(data, follow=True) if path.is_file()}
            copy_hashed_files(root, data, root / "copy")
            assert {*list_hashed_files(root, root / "copy")} == {
                root / "copy" / file.relative_to(data) for file in list_hashed_files(root, data)
            }


def walk(folder: Path, *, follow: bool) -> Iterator[Path]:
    """All files and folders that .dvcignore does not leave out."""
    for parent, folders, files in os.walk(folder, followlinks=follow):
        folders[:] = [name for name in folders if name != "x.pyc"]
        yield from (Path(parent, name) for name in (*folders, *files) if name != "x.pyc")


def unhashed(path: Path) -> bool:
    return path.is_symlink() if path.is_dir() else not path.is_file()


def lay_out(place: Path, entry: Any) -> None:
    if isinstance(entry, dict):
        place.mkdir()
        for name, inner in entry.items():
            lay_out(place / name, inner)
    elif isinstance(entry, bytes):
        place.write_bytes(entry)
    elif entry == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(entry.removeprefix("link to "))
