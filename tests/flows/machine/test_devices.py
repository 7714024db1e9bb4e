import os
import stat
import tempfile
import warnings
from pathlib import Path

import pytest

from flows.machine import devices
from flows.machine.devices import DeviceError, Lease, list_device_holders, try_lease_devices


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of locks that no device has used; indices and UUIDs are those of no machine."""
    monkeypatch.setenv("POSTTRAIN_DEVICES", str(tmp_path / "locks"))
    monkeypatch.setattr(devices, "_query_gpu_uuids", dict)
    return tmp_path / "locks"


def test_a_device_has_one_holder(locks: Path) -> None:
    first = try_lease_devices(["0", "1"], 1)
    second = try_lease_devices(["0", "1"], 1)
    assert first is not None
    assert second is not None
    assert (first.names, second.names) == (("0",), ("1",))
    assert try_lease_devices(["0", "1"], 1) is None
    first.release()
    assert try_lease_devices(["1", "0"], 2) is None, "two are asked for, one is free"
    assert try_lease_devices(["0", "1", "2"], 3) is None
    assert not (locks / "2.lock").exists(), "it does not take what others may want when it cannot have all"
    third = try_lease_devices(["1", "0"], 1)
    assert third is not None
    assert third.names == ("0",), "the attempt for two kept none"
    second.release()
    third.release()
    both = try_lease_devices(["1", "0"], 2)
    assert both is not None
    assert both.names == ("1", "0")
    both.release()


def test_who_asks_for_nothing_holds_nothing(locks: Path) -> None:
    assert try_lease_devices(["0"], 0) == Lease() == try_lease_devices([], 0)
    assert not locks.exists()
    assert try_lease_devices([], 1) is None


def test_holders_say_who_they_are_and_only_a_lock_counts(locks: Path) -> None:
    held = try_lease_devices(["0", "1"], 1, "sft of /home/ann (pid 7)\nand more")
    assert held is not None
    assert list_device_holders(["0", "1"]) == {"0": "sft of /home/ann (pid 7) and more"}
    held.release()
    assert list_device_holders(["0", "1"]) == {}
    assert "sft" in (locks / "0.lock").read_text(), "a line alone holds no device"
    other = try_lease_devices(["0"], 1)
    assert list_device_holders(["0"]) == {"0": "a process that does not say who it is"}
    (locks / "0.lock").write_bytes(b"\x1b[2Jred\xff" + b"x" * 4000)
    assert list_device_holders(["0"])["0"].startswith("[2Jred")
    assert len(list_device_holders(["0"])["0"]) == devices.SHOWN
    assert other is not None
    other.release()


def test_the_files_are_for_all_users_whatever_the_umask(locks: Path) -> None:
    before = os.umask(0o077)
    try:
        devices.check_device_locks(["0"])
    finally:
        os.umask(before)
    assert stat.S_IMODE(locks.stat().st_mode) == 0o1777
    assert stat.S_IMODE((locks / "0.lock").stat().st_mode) == 0o666


def test_a_folder_or_file_that_could_mislead_is_refused_in_one_line(locks: Path, tmp_path: Path) -> None:
    locks.symlink_to(tmp_path)
    with pytest.raises(
        DeviceError, match=rf"{locks}: the folder of the devices' locks cannot be used: Not a directory"
    ):
        try_lease_devices(["0"], 1)
    locks.unlink()
    locks.mkdir()
    locks.chmod(0o777)
    with pytest.raises(DeviceError, match="everybody may take away"):
        try_lease_devices(["0"], 1)
    locks.chmod(0o755)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (locks / "0.lock").symlink_to(victim)
    with pytest.raises(DeviceError, match=r"0\.lock: the lock of device 0 cannot be used: Too many levels of symbolic"):
        try_lease_devices(["0"], 1)
    os.mkfifo(locks / "1.lock")
    with pytest.raises(DeviceError, match=r"1\.lock: .* is no ordinary file"):
        try_lease_devices(["1"], 1)
    os.link(victim, locks / "2.lock")
    held = try_lease_devices(["2"], 1, "grpo")
    assert held is not None
    held.release()
    assert victim.read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSTTRAIN_DEVICES", str(tmp_path / "no/folder"))
    with pytest.raises(DeviceError, match="No such file or directory; POSTTRAIN_DEVICES may name another folder"):
        devices.check_device_locks(["0"])


def test_a_lock_on_a_deleted_file_is_no_lease(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = devices._open_device_file
    deleted = []

    def open_before_it_is_deleted(folder: int, name: str) -> int:
        file = opened(folder, name)
        if not deleted:
            deleted.append((locks / "0.lock").unlink())
        return file

    monkeypatch.setattr(devices, "_open_device_file", open_before_it_is_deleted)
    held = try_lease_devices(["0"], 1)
    assert held is not None
    assert os.path.samestat(os.fstat(held.files[0]), (locks / "0.lock").stat())
    assert try_lease_devices(["0"], 1) is None
    held.release()


def test_a_file_that_is_there_is_never_opened_as_if_to_make_it(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fs.protected_regular the kernel refuses O_CREAT on another user's file in a folder like this."""
    devices.check_device_locks(["0"])
    os_open = os.open

    def careful(path: object, flags: int, *more: int, **where: int) -> int:
        assert not flags & os.O_CREAT
        return os_open(path, flags, *more, **where)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "open", careful)
    held = try_lease_devices(["0"], 1)
    assert held is not None
    assert list_device_holders(["0"])
    held.release()


SMI = """#!/bin/sh
echo "0, GPU-aaaa1111-0000-0000-0000-000000000000
1, GPU-aaaa2222-0000-0000-0000-000000000000"
"""


def test_an_index_and_a_uuid_are_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_DEVICES", str(tmp_path / "locks"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    devices._query_gpu_uuids.cache_clear()
    try:
        held = try_lease_devices(["1"], 1, "grpo")
        assert held is not None
        assert held.names == ("1",)
        for same in ("1", "GPU-aaaa2222-0000-0000-0000-000000000000", "GPU-aaaa2"):
            assert try_lease_devices([same], 1) is None
            assert list_device_holders([same]) == {same: "grpo"}
        for other in ("0", "GPU-aaaa1", "GPU-aaaa", "MIG-aaaa2222", "7"):
            free = try_lease_devices([other], 1)
            assert free is not None, other
            free.release()
        held.release()
    finally:
        devices._query_gpu_uuids.cache_clear()


def test_a_broken_nvidia_smi_leaves_the_names_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho Failed to initialize NVML; exit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    devices._query_gpu_uuids.cache_clear()
    try:
        assert devices._get_lock_file_name("0") == "0.lock"
        assert devices._get_lock_file_name("../etc/x y") == ".._etc_x_y.lock"
    finally:
        devices._query_gpu_uuids.cache_clear()


def test_a_file_that_may_only_be_read_can_be_locked(locks: Path) -> None:
    devices.check_device_locks(["0"])
    file = locks / "0.lock"
    file.chmod(0o444)
    if os.getuid() == 0:
        os.chown(file, 12345, 12345)
    held = try_lease_devices(["0"], 1, "grpo")
    assert held is not None
    assert try_lease_devices(["0"], 1) is None
    held.release()


def taken_by_nobody() -> str:
    """What another user gets who asks for device 0: the names, or the error."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads; the child starts none
        child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            held = try_lease_devices(["0"], 1, "nobody")
            os.write(write, str(held and held.names).encode())
        except BaseException as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_users_share_the_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder and a file are root's; the file is first held, then free, then only to read, then closed to others,
    then another user's.
    """
    monkeypatch.setattr(devices, "_query_gpu_uuids", dict)
    monkeypatch.setattr(devices, "ATTEMPT_SECONDS", 0.005)
    with tempfile.TemporaryDirectory(dir="/tmp") as home:  # every folder above pytest's own is closed to others
        Path(home).chmod(0o755)
        monkeypatch.setenv("POSTTRAIN_DEVICES", f"{home}/locks")
        held = try_lease_devices(["0"], 1, "root")
        assert held is not None
        assert taken_by_nobody() == "None"
        held.release()
        assert taken_by_nobody() == "('0',)"
        file = Path(home, "locks/0.lock")
        assert file.read_text() == "nobody\n"
        file.chmod(0o444)
        assert taken_by_nobody() == "('0',)"
        file.chmod(0o600)
        assert "0.lock: the lock of device 0 cannot be used: Permission denied" in taken_by_nobody()
        file.unlink()
        assert taken_by_nobody() == "('0',)", "in the folder of another user a file can be made"
        assert file.stat().st_uid == 65534
        again = try_lease_devices(["0"], 1, "root")
        assert again is not None
        assert file.read_text() == "root\n"
        again.release()
