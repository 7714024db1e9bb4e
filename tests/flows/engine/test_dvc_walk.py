"""Files that DVC would not hash as a stage reads them."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.engine.plan import PlanError
from tests.flows.engine.toy import Toy

pytestmark = pytest.mark.usefixtures("plain_commands")


@pytest.fixture
def raw(toy: Toy) -> Path:
    """A folder of raw data, which a stage has read."""
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


UNHASHED: dict[str, tuple[str, Callable[[Path, Path], object], str]] = {
    "a folder elsewhere": (
        "raw/mine",
        lambda at, tmp: at.symlink_to(folder(tmp / "disk")),
        "a link to .*/disk, a folder",
    ),
    "a folder within": ("raw/mine", lambda at, tmp: at.symlink_to("rows"), "a link to rows, a folder"),
    "deep": ("raw/rows/mine", lambda at, tmp: at.symlink_to(folder(tmp / "disk")), "a link to .*/disk, a folder"),
    "itself": ("raw/loop", lambda at, tmp: at.symlink_to("."), "a link to ., a folder"),
    "the folder above": ("raw/rows/up", lambda at, tmp: at.symlink_to(".."), "a link to .., a folder"),
    "a circle": ("raw/circle", lambda at, tmp: at.symlink_to("circle"), "a link to circle, which leads nowhere"),
    "nothing": ("raw/gone", lambda at, tmp: at.symlink_to("missing.txt"), "a link to missing.txt, which leads nowhere"),
    "a pipe": ("raw/rows/pipe", lambda at, tmp: os.mkfifo(at), "a pipe"),
    "a socket": ("raw/socket", lambda at, tmp: a_socket(at), "a socket"),
    "a device": ("raw/rows/zero", lambda at, tmp: at.symlink_to("/dev/zero"), "a link to /dev/zero, a device"),
    "a repository": ("raw/own", lambda at, tmp: folder(at).joinpath(".dvc").mkdir(), "a DVC repository of its own"),
    "all a repository": ("raw", lambda at, tmp: (at / ".dvc").mkdir(), "a DVC repository of its own"),
    "all left out": ("raw", lambda at, tmp: (at.parent / ".dvcignore").write_text("raw"), ".dvcignore leaves it out"),
    "another .dvcignore": (
        "raw/.dvcignore",
        lambda at, tmp: at.write_text("*.txt"),
        "the repository's own folder only",
    ),
    "control characters": ("raw/\x1b[2J", lambda at, tmp: os.mkfifo(at), "a pipe"),
}


@pytest.mark.parametrize("case", UNHASHED)
def test_what_dvc_would_not_hash_as_it_is_read_is_refused(
    toy: Toy, raw: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    path, make, what = UNHASHED[case]
    monkeypatch.chdir(toy.root)
    make(toy.root / path, tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(PlanError, match=f"^{path.replace(chr(27), r'.x1b').replace('[', r'.')}: .*{what}") as refused:
        toy.plan()
    assert str(refused.value).isprintable()
