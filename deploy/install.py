"""Set up .venv with the versions of the lock files: `python deploy/install.py [--dev]`, called by every target of the
Makefile.

Needs nothing but the standard library. uv, whose version the lock has too, installs the packages within seconds; pip
does where uv cannot be had or fails. A run needs requirements.lock; tests, documentation and lint also need
requirements-dev.lock (--dev). Every package is checked against the lock's hashes but torch and what torch brings: its
files differ between an index of CPU builds, one of CUDA builds and a local one, so torch comes by its version alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
FREE = ("torch",)  # by its version alone, with what it brings
SECONDS_BETWEEN_LINES = 8.0
PIP_OPTIONS = {  # pip's settings, and uv's variables for the same
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "trusted-host": "UV_INSECURE_HOST",
    "constraint": "UV_CONSTRAINT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
}


class SetupError(Exception):
    """What is missing on this machine, in one line."""


def read_lock_entries(lock: Path) -> list[str]:
    """The entries of a lock file, each in one line: name, version, marker where only some environments need it,
    hashes.
    """
    joined = lock.read_text().replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def parse_package_name(entry: str) -> str:
    """The package that an entry is about."""
    return entry.partition("==")[0]


def remove_hashes(entry: str) -> str:
    """An entry's name, version and marker."""
    return entry.partition(" --hash")[0]


def split_marker(entry: str) -> tuple[str, str]:
    """An entry's name and version, and its marker or nothing."""
    requirement, _, marker = remove_hashes(entry).partition(" ; ")
    return requirement, marker


class Installation:
    """A virtual environment that is made to hold what lock files list."""

    def __init__(self, folder: Path, locks: list[Path]) -> None:
        self.folder, self.locks = folder, locks
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.started = time.monotonic()
        self.packages = [entry for lock in locks for entry in read_lock_entries(lock)]

    @property
    def mark(self) -> Path:
        """The file that says which locks are installed."""
        return self.folder / "installed.json"

    def state(self, project: Path) -> dict[str, str]:
        """The digests of what the installation is made from."""
        files = [*self.locks, project / "pyproject.toml"]
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def is_current(self, project: Path) -> bool:
        """Whether it holds these locks already (and perhaps more)."""
        try:
            installed = json.loads(self.mark.read_text())
        except (OSError, ValueError):
            return False
        return self.python.exists() and self.state(project).items() <= installed.items()

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self.started:3.0f} s] {text}", flush=True)

    def run(
        self, command: list[str | Path], doing: str, environment: dict[str, str] | None = None, quiet: bool = False
    ) -> bool:
        """Run a command, with a line of progress every few seconds and, unless `quiet`, what it prints; whether it
        succeeded.
        """
        self.say(doing)
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(SECONDS_BETWEEN_LINES):
                self.say(f"{doing}: still at it")

        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        try:
            output = subprocess.DEVNULL if quiet else None
            return subprocess.run(command, env=environment, check=False, stdout=output, stderr=output).returncode == 0
        finally:
            ended.set()
            reporter.join()

    def make_environment(self) -> None:
        """Make the virtual environment, unless a working one is there."""
        if self.python.exists() and _can_run_command([self.python, "-m", "pip", "--version"]):
            return
        if not _can_run_command([sys.executable, "-c", "import venv, ensurepip"]):
            name = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
            raise SetupError(
                f"{sys.executable} lacks venv or ensurepip: install them (Debian, Ubuntu: apt install {name})"
            )
        if self.folder.exists():
            self.say(f"{self.folder.name} does not work: making it anew")
            shutil.rmtree(self.folder)
        if not self.run([sys.executable, "-m", "venv", self.folder], f"making {self.folder.name}"):
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SetupError(f"{sys.executable} -m venv {self.folder} failed: see above")

    def run_pip(self, doing: str, *arguments: str | Path) -> bool:
        """Run pip in the environment."""
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        return self.run([*pip, *arguments], doing)

    def install_uv(self) -> Path | None:
        """The environment's uv, installed if it is missing; None where it cannot be had."""
        program = self.python.with_name("uv")
        listed = [entry for entry in self.packages if parse_package_name(entry) == "uv"]
        if not any(
            split_marker(entry)[0].replace("==", " ") in _get_command_output([program, "--version"]) for entry in listed
        ):
            file = self.write("uv.txt", listed)
            self.run_pip("installing uv", "--no-deps", "--require-hashes", "--requirement", file)
        return program if _can_run_command([program, "--version"]) else None

    def write(self, name: str, lines: list[str]) -> Path:
        """Write a file of requirements into the environment."""
        file = self.folder / name
        file.write_text("".join(f"{line}\n" for line in lines))
        return file

    def install_packages(self) -> None:
        """Install what the locks list, by uv if it can be had, else by pip."""
        number = f"{len(self.packages)} packages"
        uv = self.install_uv()
        if uv is not None:
            command = build_uv_command(uv, self.python)
            for lock in self.locks:
                command += ["--requirement", lock]
            if self.run(command, f"installing {number} with uv", build_uv_environment(self.python)):
                return
            self.say("uv failed (see above): installing with pip, which takes some minutes")
        constraints = self.write("constraints.txt", [remove_hashes(entry) for entry in self.packages])
        hashed = self.write("hashed.txt", [entry for entry in self.packages if parse_package_name(entry) not in FREE])
        for requirement in (remove_hashes(entry) for entry in self.packages if parse_package_name(entry) in FREE):
            if not self.run_pip(f"installing {requirement} with pip", requirement, "--constraint", constraints):
                raise SetupError(f"pip could not install {requirement}: see above")
        if not self.run_pip(f"installing {number} with pip", "--no-deps", "--require-hashes", "--requirement", hashed):
            raise SetupError("pip could not install the packages of the lock: see above")

    def install_project(self, project: Path) -> None:
        """Install the repository itself, so that its commands are in the environment and its files stay where they
        are.
        """
        arguments = ["--no-deps", "--no-build-isolation", "--editable", str(project)]
        uv = self.python.with_name("uv")
        if uv.exists():
            command = [*build_uv_command(uv, self.python), *arguments]
            if self.run(command, "installing posttrain", build_uv_environment(self.python)):
                return
        if not self.run_pip("installing posttrain", *arguments):
            raise SetupError("pip could not install the repository: see above")

    def create_prefect_database(self) -> None:
        """Leave an empty database of Prefect's in the environment, a copy of which each repository begins with: to make
        one takes a server half a minute.

        A run does without; then its server makes one.
        """
        version = _get_command_output(
            [self.python, "-c", "from importlib.metadata import version; print(version('prefect'))"]
        ).strip()
        database = self.folder / "share/posttrain" / f"prefect-{version}.db"
        if not version or database.exists():
            return
        database.parent.mkdir(parents=True, exist_ok=True)
        partial = database.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PREFECT_HOME": str(database.parent),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{partial}",
            "DO_NOT_TRACK": "1",
        }
        command = [self.python, "-m", "prefect", "server", "database", "upgrade", "--yes"]
        if (
            self.run(command, "making an empty database for Prefect's server", environment, quiet=True)
            and partial.exists()
        ):
            partial.replace(database)


def _can_run_command(command: list[str | Path]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _get_command_output(command: list[str | Path]) -> str:
    try:
        return subprocess.run(command, capture_output=True, check=False, text=True).stdout
    except OSError:
        return ""


def read_pip_settings(python: Path) -> dict[str, str]:
    """pip's settings for an installation, from its files and its variables, by the names of its options."""
    settings: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}  # later sections win, as with pip
    for line in _get_command_output([python, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in settings:
            settings[section][option] = " ".join(value.strip().strip("'\"").replace("\\n", " ").split())
    return {**settings["global"], **settings["install"], **settings[":env:"]}


def build_uv_environment(python: Path) -> dict[str, str]:
    """The environment for uv: pip's index, certificates, links and constraints, under the names that uv has for
    them.
    """
    environment = {**os.environ, "UV_NO_PROGRESS": "1"}
    settings = read_pip_settings(python)
    for option, variable in PIP_OPTIONS.items():
        value = settings.get(option, "")
        if value and variable not in os.environ:
            environment[variable] = value.replace(" ", ",") if variable == "UV_FIND_LINKS" else value
    if "UV_INDEX" in environment:
        environment.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # pip looks at all indexes, too
    return environment


def build_uv_command(uv: Path, python: Path) -> list[str | Path]:
    """The beginning of uv's command that installs into an environment."""
    no_index = read_pip_settings(python).get("no-index", "").lower() in ("1", "true", "yes", "on")
    return [uv, "pip", "install", "--quiet", "--python", python, *(["--no-index"] if no_index else [])]


def main() -> int:
    """Set up what is missing; 1 with one line if that is not possible."""
    parser = argparse.ArgumentParser(prog="python deploy/install.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dev", action="store_true", help="what tests, documentation and lint need, too")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the virtual environment")
    parser.add_argument("--project", type=Path, default=ROOT, help="the folder with pyproject.toml and the locks")
    arguments = parser.parse_args()
    locks = [arguments.project / name for name in (LOCKS if arguments.dev else LOCKS[:1])]
    installation = Installation(arguments.venv, locks)
    if installation.is_current(arguments.project):
        return 0
    try:
        installation.make_environment()
        installation.mark.unlink(missing_ok=True)
        installation.install_packages()
        installation.install_project(arguments.project)
        installation.create_prefect_database()
    except SetupError as error:
        print(f"posttrain: {error}", file=sys.stderr)
        return 1
    installation.mark.write_text(json.dumps(installation.state(arguments.project)))
    installation.say("set up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
