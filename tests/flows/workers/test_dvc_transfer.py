"""Objects between cache and remote: no more than are named, and none that is not whole."""

import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.engine.dvc_repository import PlanError
from flows.workers import dvc_transfer
from flows.workers.dvc_transfer import TransferError
from tests.flows.engine.toy import Toy

pytestmark = pytest.mark.usefixtures("plain_commands")


@pytest.fixture
def remote(toy: Toy) -> Path:
    place = toy.root.parent / "remote"
    place.mkdir()
    with (toy.root / ".dvc/config").open("a") as config:
        config.write(f"    remote = store\n['remote \"store\"']\n    url = {place}\n")
    return place


@pytest.fixture
def folder(toy: Toy) -> str:
    """The hash of a folder with two files, in the cache."""
    toy.write("data/f/a", "one")
    toy.write("data/f/in/b", "two")
    return str(dvc_transfer.store_in_cache(toy.root, toy.root / "data/f")["md5"])


def objects(place: Path) -> set[str]:
    return {"".join(file.parts[-2:]) for file in place.rglob("*") if file.is_file()}


def test_what_is_kept_has_dvcs_own_hashes(toy: Toy) -> None:
    toy.write("data/f/a", "one")
    toy.write("data/f/in/b", "two")
    toy.stage("made", cmd="mkdir -p data/made && cp -r data/f/. data/made", outs=["data/made"])
    toy.run()
    [out] = toy.lock["stages"]["made"]["outs"]
    assert dvc_transfer.store_in_cache(toy.root, toy.root / "data/f") == {
        key: out[key] for key in ("hash", "md5", "size", "nfiles")
    }
    assert dvc_transfer.store_in_cache(toy.root, toy.root / "data/f/a") == {
        "hash": "md5",
        "md5": "f97c5d29941bfb1b2fdab0874906ab82",  # md5sum of `one`
        "size": 3,
    }


def test_a_folder_with_more_than_is_hashed_is_not_kept(toy: Toy) -> None:
    toy.write("data/f/a", "one")
    (toy.root / "data/f/more").symlink_to(toy.root)
    with pytest.raises(PlanError, match=r"^data/f/more: a link to .*, a folder"):
        dvc_transfer.store_in_cache(toy.root, toy.root / "data/f")


def test_a_folder_goes_there_and_back(toy: Toy, remote: Path, folder: str) -> None:
    toy.write("data/other", "not asked for")
    dvc_transfer.store_in_cache(toy.root, toy.root / "data/other")
    dvc_transfer.push_objects(toy.root, [folder])
    there = objects(remote)
    assert len(there) == 3
    shutil.rmtree(toy.root / ".dvc/cache")
    dvc_transfer.fetch_objects(toy.root, [folder])
    assert objects(toy.root / ".dvc/cache/files") == there
    dvc_transfer.push_objects(toy.root, [folder])
    assert objects(remote) == there


def test_a_torn_object_in_the_remote_is_found_by_its_bytes(toy: Toy, remote: Path, folder: str) -> None:
    dvc_transfer.push_objects(toy.root, [folder])
    shutil.rmtree(toy.root / ".dvc/cache")
    one = remote / "files/md5/f9/7c5d29941bfb1b2fdab0874906ab82"
    one.chmod(0o644)
    one.write_text("on")
    with pytest.raises(TransferError, match="does not have the bytes of f97c5d29"):
        dvc_transfer.fetch_objects(toy.root, [folder])
    assert "f97c5d29941bfb1b2fdab0874906ab82" not in objects(toy.root / ".dvc/cache"), "the cache has no torn object"


def test_what_the_remote_lacks_is_named(toy: Toy, remote: Path) -> None:
    with pytest.raises(TransferError, match=r"^DVC's remote does not have 0123456789abcdef0123456789abcdef$"):
        dvc_transfer.fetch_objects(toy.root, ["0123456789abcdef0123456789abcdef"])


def test_a_push_that_fails_leaves_nothing_under_the_objects_name(
    toy: Toy, remote: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dvc_objects.fs.local import LocalFileSystem

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "move", full)
        with pytest.raises(TransferError, match="No space left on device"):
            dvc_transfer.push_objects(toy.root, [folder])
    assert objects(remote) == set()
    dvc_transfer.push_objects(toy.root, [folder])
    assert len(objects(remote)) == 3


def test_a_remote_that_comes_back_is_tried_again_and_one_that_stays_away_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(seconds / 20))
    monkeypatch.setattr(dvc_transfer, "time", quick)
    said, times = [], []

    def fails_twice() -> None:
        times.append(1)
        if len(times) < 3:
            raise TransferError("DVC's remote store: away")

    dvc_transfer.retry_transfer(fails_twice, said.append, waits=(0.01, 0.01))
    assert len(times) == 3
    assert set(said) == {"DVC's remote store: away; tries again"}
    times.clear()
    with pytest.raises(TransferError, match="away"):
        dvc_transfer.retry_transfer(fails_twice, said.append, waits=(0.01,))


def test_whether_there_is_a_remote(toy: Toy) -> None:
    assert not dvc_transfer.has_dvc_remote(toy.root)
    toy.dvc("remote", "add", "store", "/tmp/nowhere")
    assert not dvc_transfer.has_dvc_remote(toy.root), "no default one"
    assert dvc_transfer.has_dvc_remote(toy.root, "store")
