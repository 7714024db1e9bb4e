"""The benchmark of memory at toy size: everything runs, and its tables say what was measured."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import memory, result_files, tables
from benchmarks.rl_cases import OURS, THEIRS

ROOT = Path(__file__).parent.parent.parent
FOUND = {"DPO": {OURS: [(10.0, 1.0, 4.0)] * 3, memory.WHOLE: [(40.0, 1.0, 2.0)] * 3, THEIRS: [(8.0, 1.0, 5.0)] * 3}}


def test_tables_and_sentences_by_hand():
    assert memory.render_sides_table("Peak memory, MB", FOUND, 0, 0) == [
        "## Peak memory, MB",
        "",
        f"| | {OURS} | {memory.WHOLE} | {THEIRS} |",
        "|---|---|---|---|",
        "| DPO | 10 (10 to 10) | 40 (40 to 40) | 8 (8 to 8) |",
        "",
    ]
    assert memory.format_median_comparison(FOUND)[-1] == (
        f"- DPO: ours takes 0.25 times the memory and 2.00 times the processor's time of {memory.WHOLE}, and 1.25 "
        "times the memory and 0.80 times "
        f"the processor's time of {THEIRS}."
    )


@pytest.mark.slow
def test_the_command(tmp_path):
    out = tmp_path / "memory.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--quick", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = tables.page(result_files.load_result(out))
    for title in ("Peak memory, MB", "Before the first step, MB", "A step, processor seconds"):
        [table] = re.findall(rf"## {title}\n\n(.*?)\n\n", written, re.DOTALL)
        rows = table.splitlines()[2:]
        assert [row.split(" | ")[0] for row in rows] == ["| GRPO", "| DPO"]
        numbers = [float(number) for row in rows for number in re.findall(r"\| ([\d.]+) \(", row)]
        assert len(numbers) == 2 * len(memory.SIDES)
        assert "MB" not in title or min(numbers) > 100, "torch alone is larger; a toy's step takes hardly any time"


def test_the_logits_are_large_enough_to_be_computed_in_chunks():
    """Otherwise both of our own sides would be the same; DPO's batch and GRPO's."""
    from tasks.algorithms.language import lm_head

    size = memory.SIZE
    for responses in (2 * size.pairs, size.prompts * size.samples):
        assert responses * size.response * memory.VOCABULARY >= lm_head.LARGE
