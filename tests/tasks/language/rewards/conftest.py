"""Rewards in Python, each in a file of its own."""

from pathlib import Path

import pytest

from tasks.language.rewards.python_functions import PythonFunction


@pytest.fixture
def make(tmp_path, monkeypatch):
    """`make(text)` is the function `f` of a file with this text; its process ends with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    made = []

    def written(text, files="rewards/mine.py", seconds=60.0):
        (tmp_path / "rewards").mkdir(exist_ok=True)
        (tmp_path / "rewards/mine.py").write_text(text)
        made.append(PythonFunction("rewards/mine.py:f", Path(files), seconds))
        return made[-1]

    yield written
    for function in made:
        function.close()
