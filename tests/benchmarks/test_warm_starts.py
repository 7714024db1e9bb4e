"""The benchmark of warm starts at toy size."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import result_files, tables
from benchmarks.warm_starts import render_warm_starts_page

ROOT = Path(__file__).parent.parent.parent


def test_the_tables_by_hand() -> None:
    times = {"language.sft": {"cold": [4.0, 6.0, 5.0], "warm": [0.5, 0.4, 0.6]}}
    text = render_warm_starts_page({"tasks.language": 7.25}, times, {"tasks.language": (500.0, 250.4)}, 3, 0.0)
    assert "| sft | 5.00 | 0.50 | 10.0 | cold 4.00 to 6.00; warm 0.40 to 0.60 |" in text
    assert "| tasks.language | 7.2 | 500 | 250 |" in text


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.warm_starts", "--rounds", "1", "--stages", "offline.cql"]
    subprocess.run([*command, "--out", str(tmp_path / "page.json")], cwd=ROOT, check=True, capture_output=True)
    said = tables.page(result_files.load_result(tmp_path / "page.json"))
    assert re.search(r"\| cql \| \d+\.\d\d \| \d+\.\d\d \|", said)
    assert re.search(r"\| tasks\.offline \| \d+\.\d \| \d+ \| \d+ \|", said)
