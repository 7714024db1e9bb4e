"""deploy/install.py, which sets up .venv: on a machine without venv, with pip's own settings, from another index than
the lock's.
"""

import base64
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "deploy/install.py"
BACKEND = """
import base64, hashlib, pathlib, zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "toy-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory, name), "w") as wheel:
        wheel.writestr("toy.pth", str(pathlib.Path.cwd()))
        wheel.writestr("toy-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: toy\\nVersion: 1\\n")
        wheel.writestr("toy-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: toy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("toy-1.dist-info/RECORD", "toy.pth,,\\ntoy-1.dist-info/METADATA,,\\ntoy-1.dist-info/WHEEL,,\\ntoy-1.dist-info/RECORD,,\\n")
    return name
"""  # noqa: E501
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "toy"
version = "1"
"""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, name: str, version: str, needs: str = "", text: str = "") -> str:
    """A wheel with one module; its hash."""
    file = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{text}",
        f"{name}-{version}.dist-info/METADATA": metadata,
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
    }
    record = f"{name}-{version}.dist-info/RECORD"
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        for path, content in files.items()
    }
    files[record] = (
        "".join(f"{path},sha256={digests[path]},{len(content)}\n" for path, content in files.items()) + f"{record},,\n"
    )
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose lock was made where torch is another file, which needs nothing; here it needs one package
    more.
    """
    index = tmp_path / "index"
    index.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    wheel(elsewhere, "torch", "2.0")
    wheel(index, "torch", "2.0", needs="onlyhere==3.0")
    wheel(index, "onlyhere", "3.0")
    digest = wheel(index, "plain", "1.5")
    root = tmp_path / "project"
    root.mkdir()
    (root / "requirements.lock").write_text(f"plain==1.5 \\\n    --hash=sha256:{digest}\ntorch==2.0\n")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "backend.py").write_text(BACKEND)
    return root


def set_up(project: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
    (project.parent / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {project.parent / 'index'}\n")
    environment = {
        **kept,
        "PIP_CONFIG_FILE": str(project.parent / "pip.conf"),
        "UV_CACHE_DIR": str(project.parent / "uv"),
        **variables,
    }
    command = [sys.executable, SCRIPT, "--project", project, "--venv", project / ".venv"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def installed(project: Path) -> str:
    code = "import torch, onlyhere, plain; print(torch.VERSION, onlyhere.VERSION, plain.VERSION)"
    return subprocess.run(
        [project / ".venv/bin/python", "-c", code], capture_output=True, text=True, check=False
    ).stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_torch_may_be_another_file_that_needs_more(project: Path, tool: str) -> None:
    if tool == "uv":
        assert subprocess.run([sys.executable, "-m", "venv", project / ".venv"], check=False).returncode == 0
        (project / ".venv/bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
    done = set_up(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("with uv" in done.stdout) == (tool == "uv")
    assert ("with pip" in done.stdout) == (tool == "pip")
    assert installed(project) == "2.0 3.0 1.5"
    again = set_up(project)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", ""), "it is set up already"
    (project / "requirements.lock").write_text((project / "requirements.lock").read_text() + "\n")
    assert "set up" in set_up(project).stdout, "the lock has changed"


@pytest.mark.slow
def test_a_file_with_another_hash_is_not_installed(project: Path) -> None:
    lock = project / "requirements.lock"
    lock.write_text(re.sub("sha256:....", "sha256:0000", lock.read_text()))
    done = set_up(project)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("posttrain: pip could not install the packages of the lock")
    assert not (project / ".venv/installed.json").exists()


def test_a_python_without_venv_is_one_line_twice(project: Path, tmp_path: Path) -> None:
    """Debian's python3 without python3-venv; the second time with what an earlier attempt left."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without/ensurepip.py").write_text("raise ImportError('not here')")
    for _ in range(2):
        done = set_up(project, PYTHONPATH=str(tmp_path / "without"))
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "venv or ensurepip" in done.stderr
        (project / ".venv/bin").mkdir(parents=True, exist_ok=True)


def test_uv_gets_pip_s_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_CERT"))]:
        monkeypatch.delenv(name)
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://index.example.org/simple\nextra-index-url =\n    https://a.example.org\n    "
        "https://b.example.org\n"
        "cert = /etc/ca.pem\ntrusted-host = index.example.org\n[install]\nfind-links = /wheels\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_FIND_LINKS", "/other /wheels")
    install = load()
    environment = install.build_uv_environment(Path(sys.executable))
    settings = install.read_pip_settings(Path(sys.executable))
    expected = {
        "UV_DEFAULT_INDEX": "https://index.example.org/simple",
        "UV_INDEX": "https://a.example.org https://b.example.org",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/other,/wheels",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_INSECURE_HOST": "index.example.org",
    }
    assert {name: environment.get(name) for name in expected} == expected
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example.org")
    monkeypatch.setattr(install, "read_pip_settings", lambda _: settings)
    assert install.build_uv_environment(Path(sys.executable))["UV_DEFAULT_INDEX"] == "https://mine.example.org"


def test_only_torch_is_without_hashes() -> None:
    module = load()
    for name in module.LOCKS:
        entries = module.read_lock_entries(ROOT / name)
        assert len(entries) > 30
        assert {module.parse_package_name(entry) for entry in entries if " --hash=sha256:" not in entry} <= set(
            module.FREE
        )
        assert not [entry for entry in entries if "://" in entry or "@" in entry]
