"""A number on a page that differs from its measurement is noticed."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import seeds
from benchmarks.claims import agrees, faults, rendered, tables

ROOT = Path(__file__).parent.parent.parent
SOURCE = "seeds.json: runs / 0 / evaluate@grpo / strict_greedy / mean"
ESTIMATE = {"mean": 0.8136, "low": 0.7, "high": 0.9}
CHANGED = {"mean": 0.05, "low": 0.01, "high": 0.1, "gained": 40, "lost": 15, "p": 0.001}
ORDERED = {"all": 0.85, "both_show_steps": 0.8}
RUN = {
    "seed": 0,
    "seconds": 639.2,
    "outs": {},
    "reward_model": {"accuracy": 0.75, "against_rubric": ORDERED, "untrained": {"against_rubric": ORDERED}},
    "reinforce": {f"grad_variance/{name}": 1.0 for name in seeds.BASELINES},
    "report": {"grpo": {"change": dict.fromkeys((seeds.GREEDY, seeds.BEST, seeds.HOT), CHANGED)}},
    **{
        f"evaluate@{policy}": {"best_temperature": 0.3, **dict.fromkeys(seeds.COLUMNS, ESTIMATE)}
        for policy in seeds.POLICIES
    },
}
README = f"""# Title

It took 10 min 39 s; grpo solves 81.4 % (95 % intervals).
<!-- claim: 10 min 39 s = seeds.json: runs / 0 / seconds -->
<!-- claim: 81.4 % = {SOURCE} --> <!-- given: 95 % -->

Sampling is 2.2 to 3.8 times as fast, and the other flow took 24 min 55 s.
<!-- claim: 2.2 = min rl.md: Rollouts / * / times as fast --> <!-- claim: 3.8 times = max rl.md: Rollouts / * / times as fast -->
<!-- logged: 24 min 55 s -->

<!-- made: seeds.headline -->
<!-- end -->
"""
PAGE = f"""# GRPO

It solves 81.4 % after 24 min 55 s. <!-- claim: 81.4 % = {SOURCE} --> <!-- logged: 24 min 55 s -->

<!-- quoted: benchmarks/rl.md -->
| | ours | times as fast |
|---|---|---|
| b | 1,234 | 3.81 |
"""


@pytest.fixture
def root(tmp_path):
    """A repository in which every number agrees with its source."""
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "docs/algorithms").mkdir(parents=True)
    (tmp_path / "docs/algorithms/grpo.md").write_text(PAGE)
    (tmp_path / "LOG.md").write_text(f"It took 24 min 55 s.\n\nThen 81 %. <!-- claim: 81 % = {SOURCE} -->\n")
    table = (
        "## Rollouts\n\n| | ours | times as fast |\n|---|---|---|\n| a | 4 (3 to 5) | 2.19 |\n| b | 1,234 | 3.81 |\n"
    )
    (tmp_path / "benchmarks/rl.md").write_text(table)
    (tmp_path / "benchmarks/results/seeds.json").write_text(json.dumps({"runs": [RUN]}))
    for page, text in rendered(tmp_path).items():
        page.write_text(text)
    assert faults(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("page", "old", "new", "fault"),
    [
        ("README.md", "solves 81.4 %", "solves 82.4 %", "81.4 % is claimed and not said"),
        ("README.md", "81.4 %", "82.4 %", "82.4 %, but seeds.json says 0.8136"),
        ("README.md", "10 min 39 s", "10 min 38 s", "10 min 38 s, but seeds.json says 639.2"),
        ("README.md", "2.2", "2.3", "2.3, but rl.md says 2.19"),
        ("README.md", "(95 %", "(95 % of 70 %", "nothing backs 70 %"),
        ("README.md", "| grpo | 81.4 %", "| grpo | 81.5 %", "README.md: not what is made of its result"),
        ("README.md", "rl.md: Rollouts / *", "rl.md: Rollouts / c", "rl.md has 0 values at Rollouts / c"),
        ("README.md", "= min rl.md", "= rl.md", "rl.md has 2 values"),
        ("README.md", "= seeds.json: runs / 0 / seconds", "seeds.json", "a claim cannot be read"),
        ("LOG.md", "81 %", "80 %", "LOG.md: 80 %, but seeds.json says 0.8136"),
        ("LOG.md", "It took", "(benchmarks/seeds.md) It took", "cites benchmarks/seeds.md without a claim or a commit"),
        ("LOG.md", "55 s", "56 s", "24 min 55 s is not in LOG.md"),
        ("README.md", "took 24 min 55 s", "took long", "24 min 55 s is logged and not said"),
        ("docs/algorithms/grpo.md", "solves 81.4 %", "solves 81.5 %", "docs/algorithms/grpo.md: 81.4 % is claimed"),
        ("docs/algorithms/grpo.md", "after 24 min 55 s", "after 2 s", "docs/algorithms/grpo.md: nothing backs 2 s"),
        ("docs/algorithms/grpo.md", "| 3.81 |", "| 3.82 |", "benchmarks/rl.md has no line | b | 1,234 | 3.82 |"),
        ("docs/algorithms/grpo.md", "quoted: benchmarks/rl.md", "quoted: rl.md", "rl.md has no line | b | 1,234"),
        ("benchmarks/seeds.md", "| 639 |", "| 640 |", "benchmarks/seeds.md: not what is made of its result"),
        ("benchmarks/results/seeds.json", "639.2", "700", "seeds.json says 700"),
    ],
)
def test_a_number_changed_by_hand(root, page, old, new, fault):
    text = (root / page).read_text()
    assert old in text
    (root / page).write_text(text.replace(old, new))
    assert any(fault in line for line in faults(root)), faults(root)


def test_a_result_that_is_missing(root):
    (root / "README.md").write_text(README.partition("<!-- made")[0])
    (root / "benchmarks/results/seeds.json").unlink()
    assert any("benchmarks/results/seeds.json is not there" in line for line in faults(root))


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("60.3 %", 0.6034, True),
        ("60.3 %", 0.6036, False),
        ("16.6 points", 0.166, True),
        ("1,578", 1578.4, True),
        ("11 minutes", 639, True),
        ("10 min 39 s", 639.4, True),
        ("-0.05", -0.0536, True),
        ("2.2 times", 2.26, False),
    ],
)
def test_rounding(text, value, same):
    assert agrees(text, value) == same


def test_the_tables_of_this_repository_can_be_read():
    found = tables((ROOT / "benchmarks/engine.md").read_text())
    (rows,) = found.values()
    assert rows["1 trivial stage"]["posttrain"] > 0


def test_pages_made_of_results_are_what_they_should_be(tmp_path):
    """In this repository itself: benchmarks/NAME.md is rendered from benchmarks/results/NAME.json, where that exists."""
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    (tmp_path / "README.md").write_text("")
    pages = {
        page: text for page, text in rendered(tmp_path).items() if page.suffix == ".md" and page.name != "README.md"
    }
    assert all(page.read_text() == text for page, text in pages.items())
