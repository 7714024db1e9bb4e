"""Commands that a server forks: stages start warm, and others without a new supervisor's start.

A stage's server has imported what stages need of other people's packages, and forks for each stage.

Importing torch and transformers costs a stage four CPU seconds. The server (warm_server.py) imports third-party modules
only, never the project's own, whose change must count. Whatever it cannot do starts cold: a command that is not one
`python -m` of a stage, a stage with a GPU, a stage whose environment differs from the server's in more than what
posttrain sets for each stage.

A command that starts cold is a new program in any case. A server without modules forks its supervisor, which takes a
ninth of the time of a new Python (LOG.md).
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

PLAIN = re.compile(r"(?:[\w@%+=:./ -]|'[^']*')*", re.ASCII)  # what a shell passes on as it is, but for the quotes
OWN = ("POSTTRAIN_", "DVC_", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI")  # variables that may differ from stage to stage
NEVER_BEGAN = -1  # the status of a stage whose server ended before it forked
SERVER = Path(__file__).with_name("warm_server.py")


def parse_python_module_command(
    command: str | list[str], path: str, packages: Container[str]
) -> tuple[str, list[str]] | None:
    """Module and arguments of a command, if it is one `python -m MODULE ..` of these packages without anything for a
    shell to do.
    """
    if not isinstance(command, str):
        return None
    words = shlex.split(command) if PLAIN.fullmatch(command) else []
    if words[:2] != ["python", "-m"] or len(words) < 3 or get_package_name(words[2]) not in packages:
        return None
    program = next(
        (Path(folder, "python") for folder in path.split(os.pathsep) if Path(folder, "python").exists()), None
    )
    interpreter = Path(sys.executable).parent / "python"
    return (words[2], words[3:]) if program == interpreter else None


def get_package_name(module: str) -> str:
    """The package that a stage's module stands in."""
    return module.rpartition(".")[0]


class WarmCommand:
    """The parent's handle on a stage that is started by a fork: `line` is to it what standard input is to a supervisor.

    The supervisor says its process id on it, and at the end the exit status.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._said = b""
        self._reading = threading.Lock()
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status (128 + n after signal n), None if it still runs after `timeout` seconds; NEVER_BEGAN without
        a server.
        """
        with self._reading:
            while self._status is None:
                self._line.settimeout(timeout)
                try:
                    received = self._line.recv(64)
                except TimeoutError:
                    return None
                except OSError:
                    received = b""
                self._said += received
                *lines, _ = self._said.split(b"\n")
                if len(lines) == 2:
                    self._status = int(lines[1])
                elif not received:
                    self._status = self._kill_and_get_status(lines)
            self._line.close()
            return self._status

    def _kill_and_get_status(self, lines: Sequence[bytes]) -> int:
        """The status where nobody is there to say one; if the supervisor was killed, its process group is."""
        if not lines:
            return NEVER_BEGAN
        with suppress(ProcessLookupError):
            os.killpg(int(lines[0]), signal.SIGKILL)
        return 128 + signal.SIGKILL

    def stop(self) -> None:
        """End the command and all that it started, and wait for that (at most a little over
        supervisor.GRACE_SECONDS).
        """
        with suppress(OSError):  # it has ended
            self._line.shutdown(socket.SHUT_WR)
        self.wait()


class WarmStarts:
    """Starts stages from a server for each package of them. The first stage starts the server, and all wait until it
    has its modules.

    `modules` has by package what its stages import of other people's, in the order in which the server imports it.
    """

    def __init__(self, modules: Mapping[str, Sequence[str]]) -> None:
        self.modules = modules
        self._changing = threading.Lock()
        self._servers: dict[str, _Server] = {}
        self._programs: _Server | None = None
        self._closed = False

    def prepare(self) -> Self:
        """Have the server of programs started while the first command is prepared."""
        with self._changing, suppress(OSError):
            self._programs = self._programs or _Server((), os.environ)
        return self

    def start(
        self, command: str | list[str], folder: Path, environ: Mapping[str, str], log: Path, keep: Sequence[int]
    ) -> WarmCommand | None:
        """Start a stage's command with its output at the end of `log`; None where it must start cold."""
        invocation = parse_python_module_command(command, environ.get("PATH", ""), self.modules)
        if invocation is None or any(value for name, value in environ.items() if name.endswith("_VISIBLE_DEVICES")):
            return None
        module, arguments = invocation
        with self._changing:
            if self._closed:
                return None
            name = get_package_name(module)
            with suppress(OSError):  # the server was killed, or the machine has no room for it
                if name not in self._servers:
                    self._servers[name] = _Server(self.modules[name], environ)
                server = self._servers[name]
                if server.environ == select_shared_variables(environ):
                    request = {
                        "module": module,
                        "arguments": arguments,
                        "folder": str(folder),
                        "environ": dict(environ),
                    }
                    return server.request(request, log, keep)
            return None

    def program(
        self, program: Sequence[str], folder: Path, environ: Mapping[str, str], log: Path, keep: Sequence[int]
    ) -> WarmCommand | None:
        """Start a program, a new process in all but its supervisor, with its output at the end of `log`; None without a
        server.
        """
        request = {"program": list(program), "folder": str(folder), "environ": dict(environ)}
        with self._changing, suppress(OSError):  # it was killed
            if self._programs is not None and not self._closed:
                return self._programs.request(request, log, keep)
        return None

    def close(self) -> None:
        """End the servers; stages that still run are not theirs to end."""
        with self._changing:
            self._closed = True
            for server in (*self._servers.values(), *filter(None, [self._programs])):
                server.close()
            self._servers.clear()
            self._programs = None


def select_shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a stage must have in common with its server."""
    return {name: value for name, value in environ.items() if not name.startswith(OWN)}


class _Server:
    def __init__(self, modules: Sequence[str], environ: Mapping[str, str]) -> None:
        self.environ = select_shared_variables(environ)
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self.environ,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def request(self, what: Mapping[str, Any], log: Path, keep: Sequence[int]) -> WarmCommand:
        """Have the server fork for a stage once it has imported its modules; OSError if it does not live."""
        with ExitStack() as stack:
            line, theirs = map(stack.enter_context, socket.socketpair())
            output = stack.enter_context(log.open("ab"))
            line.sendall(json.dumps(what).encode() + b"\n")
            socket.send_fds(self._control, [b"+"], [theirs.fileno(), output.fileno(), *keep])
            return WarmCommand(line.dup())

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()
