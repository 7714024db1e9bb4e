"""A small repository whose state of the code is asked for."""

import subprocess
from pathlib import Path


def git(root: Path, *arguments: str, given: bytes | None = None) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    done = subprocess.run(["git", "-C", root, *who, *arguments], input=given, capture_output=True, check=True)
    return done.stdout.decode()


def make(root: Path) -> Path:
    """A repository with one commit."""
    root.mkdir()
    git(root, "init", "--quiet")
    for name, content in {"a.py": "1\n", "gone.py": "g\n", "dvc.lock": "x\n", ".gitignore": "/ignored\n"}.items():
        (root / name).write_text(content)
    (root / "blob").write_bytes(bytes(range(256)))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    return root
