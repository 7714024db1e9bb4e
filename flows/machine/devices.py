"""Leases of devices: while a stage may use a device, it holds a lock on that device's file, and no other process gets
the device.

The kernel frees the lock when the last process that has the file open has ended: a lease outlives no holder, however
that was ended, and a process that is only stopped keeps it. One folder has the files of all users of the machine.
"""

import fcntl
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path("/tmp/posttrain-devices")  # unless the variable POSTTRAIN_DEVICES names another
OPEN_TO_ALL = 0o1777  # everybody makes files, and only their owner takes them away
OPEN = os.O_NOFOLLOW | os.O_NONBLOCK  # a stranger's link leads nowhere, and a stranger's pipe does not block
# to open a file that another process makes or takes away at this moment
ATTEMPTS = 20
ATTEMPT_SECONDS = 0.05
SHOWN = 200  # characters shown of what a holder says of itself
SMI_SECONDS = 30.0


class DeviceError(Exception):
    """The locks of devices cannot be used; the message is one line for a person."""


@dataclass(frozen=True)
class Lease:
    """Devices that this process holds, and with it every process that inherits the files."""

    names: tuple[str, ...] = ()  # as in CUDA_VISIBLE_DEVICES
    files: tuple[int, ...] = ()  # descriptors; the lease ends when they are closed in all processes

    def release(self) -> None:
        """Close the files here; a process that inherited them still holds the devices."""
        for file in self.files:
            os.close(file)


def try_lease_devices(names: Sequence[str], count: int, holder: str = "") -> Lease | None:
    """`count` of the devices `names`, the first that are free; None if fewer are, without waiting.

    `holder` says in a line who asks, for others that wait for the device. DeviceError if the locks cannot be used.
    """
    if not count:
        return Lease()
    held: dict[str, int] = {}
    with _open_lock_folder() as folder, ExitStack() as undo:
        for position, name in enumerate(names):
            if len(held) + len(names) - position < count:
                break
            file = _try_lock_device_file(folder, name)
            if file is not None:
                held[name] = file
                undo.callback(os.close, file)
            if len(held) == count:
                for each in held.values():
                    _write_holder(each, holder)
                undo.pop_all()
                return Lease(tuple(held), (*held.values(), _reopen_folder_with_shared_lock(folder)))
    return None


def list_device_holders(names: Sequence[str]) -> dict[str, str]:
    """Those of the devices that are held, each with who holds it, as the holder says."""
    held = {}
    with _open_lock_folder() as folder:
        for name in names:
            file = _open_device_file(folder, name)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = os.pread(file, 4 * SHOWN, 0).decode(errors="replace").partition("\n")[0]
                holder = "".join(char for char in text if char.isprintable())[:SHOWN]
                held[name] = holder or "a process that does not say who it is"
            finally:
                os.close(file)
    return held


def check_device_locks(names: Sequence[str]) -> None:
    """DeviceError unless the lock of every device can be used; locks none."""
    with _open_lock_folder() as folder:
        for name in names:
            os.close(_open_device_file(folder, name))


def build_device_environment(names: Sequence[str]) -> dict[str, str]:
    """The environment in which a command sees these devices only, numbered as nvidia-smi numbers them."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(names), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@contextmanager
def _open_lock_folder() -> Iterator[int]:
    """The folder of the locks, open; made if it is missing."""
    path = Path(os.environ.get("POSTTRAIN_DEVICES") or FOLDER)
    made = False
    try:
        with suppress(FileExistsError):
            path.mkdir()
            made = True
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise DeviceError(_format_lock_error(path, "the folder of the devices' locks", error.strerror or "")) from None
    try:
        status = os.fstat(folder)
        # The first to come, or its next process if it was killed before it had opened the folder to all.
        if made or (path == FOLDER and status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) != OPEN_TO_ALL):
            os.fchmod(folder, OPEN_TO_ALL)
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            why = "everybody may take away what others made in it (`chmod +t` would forbid that)"
            raise DeviceError(_format_lock_error(path, "the folder of the devices' locks", why))
        yield folder
    finally:
        os.close(folder)


def _reopen_folder_with_shared_lock(folder: int) -> int:
    """The folder, open with a shared lock: by that systemd-tmpfiles knows that nothing old in it may be deleted."""
    again = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    with suppress(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return again


def _try_lock_device_file(folder: int, name: str) -> int | None:
    """The device's file, open and locked; None if another process holds the lock."""
    for _ in range(ATTEMPTS):
        file = _open_device_file(folder, name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(
                os.fstat(file), os.stat(_get_lock_file_name(name), dir_fd=folder, follow_symlinks=False)
            ):
                return file
        os.close(file)  # it was deleted in between: the lock on it excludes nobody
    raise DeviceError(f"device {name}: its lock is deleted again and again")


def _open_device_file(folder: int, name: str) -> int:
    """The device's file, made if it is missing and then open to all users. To lock it, reading is enough."""
    file = _get_lock_file_name(name)
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            opened = _open_or_create_file(file, folder)
        except (FileExistsError, FileNotFoundError):
            continue  # another process made it, or took it away
        except PermissionError as error:  # or another user made it, and opens it to all at this moment
            problem = error.strerror or ""
            time.sleep(ATTEMPT_SECONDS)
        except OSError as error:
            problem = error.strerror or ""
            break
        else:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                return opened
            os.close(opened)
            problem = "is no ordinary file"
            break
    path = Path(os.environ.get("POSTTRAIN_DEVICES") or FOLDER) / file
    raise DeviceError(_format_lock_error(path, f"the lock of device {name}", problem))


def _open_or_create_file(file: str, folder: int) -> int:
    # Never O_CREAT on a file that is there: with fs.protected_regular the kernel refuses that for another user's file.
    try:
        return os.open(file, os.O_RDWR | OPEN, dir_fd=folder)
    except PermissionError:
        return os.open(file, os.O_RDONLY | OPEN, dir_fd=folder)
    except FileNotFoundError:
        made = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN, 0o666, dir_fd=folder)
        os.fchmod(made, 0o666)  # whatever the umask is
        return made


def _write_holder(file: int, holder: str) -> None:
    """Say in the file who holds it, if it may be written to and has no second name elsewhere."""
    if os.fstat(file).st_nlink == 1:
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, " ".join(holder.split()).encode() + b"\n", 0)


def _get_lock_file_name(name: str) -> str:
    """The name of a device's file: one for a device, whether it is called by its number or by its UUID."""
    uuids = _query_gpu_uuids()
    whole = [uuid for uuid in uuids.values() if name.startswith("GPU-") and uuid.startswith(name)]
    physical = uuids.get(name, whole[0] if len(whole) == 1 else name)
    return re.sub(r"[^\w.-]", "_", physical) + ".lock"


@cache
def _query_gpu_uuids() -> dict[str, str]:
    """The UUID of each number, as nvidia-smi gives them; empty where there is none, or it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SMI_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = (line.split(",") for line in done.stdout.splitlines())
    return {fields[0].strip(): fields[1].strip() for fields in lines if len(fields) == 2}


def _format_lock_error(path: Path, what: str, why: str) -> str:
    return f"{path}: {what} cannot be used: {why}; POSTTRAIN_DEVICES may name another folder"
