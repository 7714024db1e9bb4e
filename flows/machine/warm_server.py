"""The program that forks for stages (warm_start.py has the other side): `python warm_server.py SOCKET MODULE ..`.

A fork does what `python -m MODULE` does in a new process: with the stage's own environment, folder and log, and under a
supervisor of its own. The bits are those of a cold start, since nothing is computed before the fork. Or it becomes
another program.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

if __name__ == "__main__":  # run by its path, so that it has the supervisor beside it wherever the stages are
    sys.path[0] = str(Path(__file__).parents[2])

from flows.machine import supervisor

PR_SET_NAME = 15  # linux/prctl.h
MOST_FILES = 64  # that one request hands over


def serve_fork_requests(control: socket.socket, modules: Sequence[str]) -> tuple[str, list[str]]:
    """Import the modules and fork for each request, until the other end is closed.

    Returns in a fork only: module and arguments.
    """
    import_modules_or_exit_on_close(modules, control)
    gc.collect()
    gc.freeze()  # what a collection in a fork would touch would be copied
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended supervisors need nobody to ask for them
    while True:
        received, files, *_ = socket.recv_fds(control, 1, MOST_FILES)
        if not received:
            sys.exit()
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return fork_and_supervise_stage(socket.socket(fileno=files[0]), files[1], files[2:])
        for file in files:
            os.close(file)


def import_modules_or_exit_on_close(modules: Sequence[str], control: socket.socket) -> None:
    """Import the modules, and end this process as soon as the other end of `control` is closed, which a killed run does
    too.
    """
    finished, finish = os.pipe()
    ends = select.poll()
    ends.register(control, 0)  # its end, and not what is sent until then
    ends.register(finished, select.POLLIN)

    def watch() -> None:
        if any(file == control.fileno() for file, _ in ends.poll()):
            os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)
    os.close(finish)
    watcher.join()  # a fork has one thread
    os.close(finished)


def fork_and_supervise_stage(line: socket.socket, output: int, keep: Sequence[int]) -> tuple[str, list[str]]:
    """Become the supervisor of a stage, and fork the stage. Returns in the stage only: module and arguments."""
    os.setsid()
    with line.makefile("rb") as lines:
        request = json.loads(lines.readline())
    if select.select([line], [], [], 0)[0]:  # nobody waits for it any more
        os._exit(0)
    line.sendall(f"{os.getpid()}\n".encode())
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    supervisor.become_child_subreaper()
    stage = os.fork()
    if stage:
        memory = supervisor.PeakMemory(request["environ"].get(supervisor.PEAK_MEMORY))
        supervisor.stop_descendants_on_signals()
        supervisor.stop_descendants_when_closed(line.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(stage, 0)[1])
        supervisor.stop_descendants()
        memory.write()
        for file in keep:
            os.close(file)
        _send_status_and_exit(line, 128 - status if status < 0 else status)
    line.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in supervisor.STOPS - {
        signal.SIGINT
    }:  # nohup has them ignored, which a cold stage's supervisor undoes too
        signal.signal(number, signal.SIG_DFL)
    for file in keep:
        os.set_inheritable(file, True)
    os.chdir(request["folder"])
    if "program" in request:
        _exec_program(request["program"], request["environ"])
    sys.path[0] = str(Path.cwd())
    os.environ.clear()
    os.environ.update(request["environ"])
    name = request["environ"].get("DVC_STAGE", request["module"])
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    return request["module"], request["arguments"]


def _exec_program(program: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Be a program, with the signals as a shell would have it."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environ)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


def _send_status_and_exit(line: socket.socket, status: int) -> NoReturn:
    with suppress(OSError):
        line.sendall(f"{status}\n".encode())
    os._exit(0)


def main() -> None:
    """Serve, and in a fork run the stage as `python -m` would."""
    sys.path[0] = str(Path.cwd())
    for name in [name for name in sys.modules if name.partition(".")[0] == "flows"]:
        del sys.modules[name]  # a stage finds none of the project's modules loaded
    module, arguments = serve_fork_requests(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
