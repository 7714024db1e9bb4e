"""The lock in which a policy's programs run: a few system calls, and limits on time, memory and files. Linux alone has
it.

A program that is locked in can compute, use memory, start threads, and read and write what it holds open. The kernel
refuses all else (seccomp): to open a file or a socket, to start a process or a program, to send a signal, to wait for a
time, to change its own limits. The list names what is allowed, so that a system call that nobody thought of is refused.
Python's own files are files too: a module that is not imported before the lock closes cannot be imported.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterator

MEMORY_BYTES = 1 << 30
# The numbers in the kernel's headers; both machines are little-endian. `audit` is the kernel's name for the machine.
SYSTEM_CALLS = {
    "x86_64": {
        "audit": 0xC000003E,
        "read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12,
        "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "readv": 19, "writev": 20,
        "sched_yield": 24, "mremap": 25, "madvise": 28, "getpid": 39, "clone": 56, "exit": 60, "gettimeofday": 96,
        "getrlimit": 97, "getrusage": 98, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
        "getppid": 110, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204,
        "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "exit_group": 231, "newfstatat": 262,
        "set_robust_list": 273, "prlimit64": 302, "getrandom": 318, "rseq": 334, "clone3": 435,
    },
    "aarch64": {
        "audit": 0xC00000B7,
        "close": 57, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "newfstatat": 79,
        "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98, "set_robust_list": 99, "clock_gettime": 113,
        "clock_getres": 114, "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132,
        "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "getrlimit": 163,
        "getrusage": 165, "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175,
        "getgid": 176, "getegid": 177, "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216, "clone": 220,
        "mmap": 222, "mprotect": 226, "madvise": 233, "prlimit64": 261, "getrandom": 278, "rseq": 293, "clone3": 435,
    },
}  # fmt: skip
# instructions of the kernel's filters
LOAD = 0x20
EQUAL = 0x15
ANY_BIT = 0x45
RETURN = 0x06
NUMBER, MACHINE, ARGUMENTS = (
    0,
    4,
    16,
)  # where a filter finds a system call's number, the machine, the arguments of 8 bytes
# EPERM is 1, ENOSYS is 38
ALLOW = 0x7FFF0000
REFUSE = 0x00050001
ABSENT = 0x00050026
KILL = 0x80000000
THREAD = 0x10000  # among clone's flags: a thread of this process, not a new one
# of prctl
SET_PARENT_DEATH_SIGNAL = 1
SET_NO_NEW_PRIVILEGES = 38
SET_SECCOMP = 22
FILTER = 2


class Unprotected(Exception):
    """The machine cannot lock a program in; its text says why."""


def find_lock_fault() -> str | None:
    """Why this machine has no lock, in a line; None where nothing is known against it."""
    if platform.system() != "Linux" or platform.machine() not in SYSTEM_CALLS:
        return (
            f"programs can be locked in on Linux on {' and '.join(SYSTEM_CALLS)} only, not on "
            f"{platform.system()} on {platform.machine()}"
        )
    return None


def lock_process(seconds: int) -> None:
    """Close the lock around this process, for good; it may use `seconds` of processor time from its start on.

    Raises Unprotected where the kernel has no such filters, or the machine's system calls are not in the list.
    """
    calls = SYSTEM_CALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        raise Unprotected(f"there is no lock for {platform.system()} on {platform.machine()}, only for Linux")
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),  # the kernel ends a process that reaches it, on a busy machine no sooner
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 16),
    ):
        resource.setrlimit(limit, (value, value))
    instructions = b"".join(_iterate_filter_instructions(calls))
    code = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(code))
    _call_prctl(SET_NO_NEW_PRIVILEGES, 1)
    _call_prctl(SET_SECCOMP, FILTER, program)


def set_parent_death_signal() -> None:
    """Have the kernel kill this process when the one that started it ends."""
    _call_prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _call_prctl(option: int, value: int, pointer: bytes | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_ulong(value), ctypes.c_char_p(pointer), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if libc.prctl(option, *words):
        raise Unprotected(f"the kernel refuses to lock a process in: {os.strerror(ctypes.get_errno())}")


def _iterate_filter_instructions(calls: dict[str, int]) -> Iterator[bytes]:
    """The filter's instructions, 8 bytes each; a comparison says how many to skip where it holds, and where not."""

    def step(code: int, value: int, skip: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("<HBBI", code, skip, otherwise, value)

    yield from (step(LOAD, MACHINE), step(EQUAL, calls["audit"], 1), step(RETURN, KILL), step(LOAD, NUMBER))
    for name, number in calls.items():
        if name == "clone":
            yield from (step(EQUAL, number, 0, 4), step(LOAD, ARGUMENTS), step(ANY_BIT, THREAD, 0, 1))
            yield from (step(RETURN, ALLOW), step(RETURN, REFUSE))
        elif name == "prlimit64":  # to read a limit, which is to set no new one
            yield step(EQUAL, number, 0, 6)
            for half in (16, 20):
                yield from (step(LOAD, ARGUMENTS + half), step(EQUAL, 0, 0, 3 if half == 16 else 1))
            yield from (step(RETURN, ALLOW), step(RETURN, REFUSE))
        elif name != "audit":  # libc asks for clone where there is no clone3, whose flags a filter cannot read
            yield from (step(EQUAL, number, 0, 1), step(RETURN, ABSENT if name == "clone3" else ALLOW))
    yield step(RETURN, REFUSE)
