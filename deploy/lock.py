"""Write requirements.lock and requirements-dev.lock from pyproject.toml: `make lock`, for Linux and macOS and Python
3.11 to 3.13.

Versions that a lock has already stay, unless pyproject.toml forbids them; `make lock UPGRADE=NAME` takes a package's
newest. torch stands there without hashes and without what it brings to a machine with CUDA: see deploy/install.py.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import install
from packaging.markers import Marker

BROUGHT_BY_TORCH = re.compile(r"(nvidia|cuda)-|triton$")
PYTHONS = ("3.11.0", "3.11.5", "3.12.0", "3.13.0")
MACHINES = (
    ("linux", "Linux", "x86_64"),
    ("linux", "Linux", "aarch64"),
    ("darwin", "Darwin", "arm64"),
    ("darwin", "Darwin", "x86_64"),
)
ENVIRONMENTS = [
    {
        "python_version": version.rpartition(".")[0],
        "python_full_version": version,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine,
    }
    for version in PYTHONS
    for platform, system, machine in MACHINES
]


def compile_lock_entries(output: Path, extras: list[str], upgrade: list[str]) -> list[str]:
    """The entries of a lock for the project with these extras; the versions of `output` stay."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-annotate", "--no-header", "--output-file", output, install.ROOT / "pyproject.toml"]
    for extra in extras:
        command += ["--extra", extra]
    for name in upgrade:
        command += ["--upgrade-package", name]
    subprocess.run(command, env=install.build_uv_environment(Path(sys.executable)), check=True)
    kept = [
        entry
        for entry in install.read_lock_entries(output)
        if not BROUGHT_BY_TORCH.match(install.parse_package_name(entry))
    ]
    return [entry for entry in map(_simplify_marker, kept) if entry]


def _simplify_marker(entry: str) -> str:
    """The entry with its marker where only some environments need it, without it where all do, and nothing where none
    does.
    """
    requirement, marker = install.split_marker(entry)
    hashes = entry.partition(" --hash")[2]
    hashes = f" --hash{hashes}" if hashes and install.parse_package_name(entry) not in install.FREE else ""
    if not marker:
        return requirement + hashes
    needed = [Marker(marker).evaluate(environment) for environment in ENVIRONMENTS]
    if all(needed):
        return requirement + hashes
    return f"{requirement} ; {marker}{hashes}" if any(needed) else ""


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python deploy/lock.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--upgrade", nargs="*", default=[], metavar="NAME", help="packages that may change their version"
    )
    upgrade = parser.parse_args().upgrade
    run, dev = (install.ROOT / name for name in install.LOCKS)
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "all.lock")
        output.write_text("".join(file.read_text() for file in (run, dev) if file.exists()))
        everything = compile_lock_entries(output, ["setup", "dev", "servers"], upgrade)
        needed = set(map(install.parse_package_name, compile_lock_entries(output, ["setup", "servers"], [])))
    files = {run: [entry for entry in everything if install.parse_package_name(entry) in needed]}
    files[dev] = [entry for entry in everything if install.parse_package_name(entry) not in needed]
    for file, listed in files.items():
        file.write_text("".join(entry.replace(" --hash", " \\\n    --hash") + "\n" for entry in listed))


if __name__ == "__main__":
    main()
