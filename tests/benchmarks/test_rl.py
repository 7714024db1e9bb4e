"""The benchmark against TRL at toy size: everything runs, both sides do the same work, and a difference would be
noticed.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import result_files, rl, rl_report, tables
from benchmarks.rl_cases import QUICK, Case

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # TRL needs it
]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def agreement(one_thread, monkeypatch):
    """benchmarks/rl_agreement.py, imported only when a test is about to run."""
    for variable, value in rl.QUIET.items():
        monkeypatch.setenv(variable, value)
    from benchmarks import rl_agreement

    return rl_agreement


def test_both_sides_agree(agreement, tmp_path):
    agreement.check_losses_and_gradients(QUICK, 8, 1, tmp_path)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [("DPO_BETA", lambda beta: 2 * beta), ("group_advantages", lambda ours: lambda *given: 1.01 * ours(*given))],
)
def test_another_loss_would_be_noticed(agreement, tmp_path, monkeypatch, part, wrong):
    monkeypatch.setattr(agreement, part, wrong(getattr(agreement, part)))  # on TRL's side only
    with pytest.raises(AssertionError):
        agreement.check_losses_and_gradients(QUICK, 8, 1, tmp_path)


def test_the_command(tmp_path):
    out = tmp_path / "rl.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rl", "--quick", "--out", str(out)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    written = tables.page(result_files.load_result(out))
    both = QUICK.prompts * QUICK.samples * QUICK.response
    assert f"6 tokens each: {both} and {both} tokens |" in written
    [natural] = re.findall(r"natural lengths: (\d+) and (\d+) tokens \|", written)
    assert all(QUICK.prompts * QUICK.samples <= int(count) < both for count in natural)
    for title in ("Rollouts", "A GRPO step", "A DPO step", "Peak memory"):
        [table] = re.findall(rf"## {title}.*?\n\n(.*?)(?:\n\n|$)", written, re.DOTALL)
        assert len(table.splitlines()) > 2, title
        assert all(float(number) > 0 for row in table.splitlines()[2:] for number in re.findall(r"\| ([\d.]+)", row))


def test_a_line_of_a_table():
    assert rl_report.format_comparison_row("x", [1.0, 2.0, 4.0], [3.0, 3.0, 9.0], 1, False).endswith(
        "| 3.0 (3.0 to 9.0) | 1.50 |"
    )
    assert rl_report.format_comparison_row("x", [6.0], [3.0], 0, True) == "| x | 6 (6 to 6) | 3 (3 to 3) | 2.00 |"
    assert rl_report.format_case_name(Case("dpo", 64, True, QUICK, "cpu", 1, 1)) == "prompt 64, natural lengths"
    times = rl_report.Times(steps=[2.0], sampling=[0.5], tokens=[100])
    assert times.rates == [200.0]
