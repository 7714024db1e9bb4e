"""The last lines of a run."""

import io
import json

import pytest
from rich.table import Table
from rich.text import Text

from flows.console.summary import (
    PlainConsole,
    iterate_dropped_pair_warnings,
    iterate_episode_warnings,
    iterate_truncation_warnings,
)

METRICS = {
    "grpo": {"completions/clipped_ratio": 0.83},
    "ppo": {"completions/clipped_ratio": 0.5},
    "evaluate@sft": {"ended_greedy": {"mean": 0.25}},
    "evaluate@dpo": {"ended_greedy": {"mean": 0.9}},
    "evaluate@pretrained": {"ended_greedy": {"mean": 0.0}},
    "sft": {"eval_loss": 1.0},
}


def test_stages_whose_answers_are_mostly_cut_off_are_named(tmp_path):
    (tmp_path / "data/metrics").mkdir(parents=True)
    for name, metrics in METRICS.items():
        (tmp_path / f"data/metrics/{name}.json").write_text(json.dumps(metrics))
    assert list(iterate_truncation_warnings(tmp_path, [*METRICS, "never-ran"])) == [
        "answers that were cut off at their section's max_new_tokens: 83 % of grpo; 75 % of evaluate@sft"
    ]


def test_stages_that_leave_most_pairs_out_are_named(tmp_path):
    (tmp_path / "data/metrics").mkdir(parents=True)
    metrics = {"preferences": {"pairs": {"train": 1000}}, "dpo": {"dropped": 501}, "reward_model": {"dropped": 500}}
    for name, numbers in metrics.items():
        (tmp_path / f"data/metrics/{name}.json").write_text(json.dumps(numbers))
    told = "dpo: 501 of the 1,000 pairs were left out: they are longer than dpo.max_length"
    assert list(iterate_dropped_pair_warnings(tmp_path, [*metrics, "sft"])) == [told]
    (tmp_path / "data/metrics/preferences.json").write_text("[1]")
    assert not list(iterate_dropped_pair_warnings(tmp_path, [*metrics, "sft"]))


def test_stages_are_named_whose_episodes_end_otherwise_than_they_should(tmp_path):
    (tmp_path / "data/metrics").mkdir(parents=True)
    metrics = {
        "expert_episodes@own": {"train": {"return": 1.0, "faults": 0.5}},
        "agents@own": {"return": 1.0, "counted/faults": 0.25},
        "agent_returns@own": {"t0.0": {"return": 1.0}, "faults": 0.73},
        "agent_returns@rooms": {"t0.0": {"return": 1.0}, "faults": 0.1},
        "agents@rooms": {"return": 1.0},
        "grpo": {"faults": 1.0},
        "expert_episodes@long": {"train": {"turns_cut": 0.05}, "validation": {"turns_cut": 0.125}},
        "agents@long": {"counted/turns_cut": 0.2, "context_cut": 1.0},
        "agents@short": {"counted/turns_cut": 0.1, "context_cut": 0.5},
        "agent_returns@long": {"t0.0": {"return": 1.0}, "turns_cut": 0.0, "context_cut": 0.75},
        "agent_episodes@long": {"episodes": 3, "left_out": 0.4},
        "returns@bc-ring": {"BC": {"unlimited": 0.0}, "10% BC": {"unlimited": 1.0}},
    }
    for name, numbers in metrics.items():
        (tmp_path / f"data/metrics/{name}.json").write_text(json.dumps(numbers))
    (tmp_path / "data/metrics/agents@torn.json").write_text("[1]")
    assert list(iterate_episode_warnings(tmp_path, [*metrics, "agents@torn", "agents@never-ran"])) == [
        "expert_episodes@own: faults of the environment ended 50 % of the episodes; its log names the first ones",
        "agents@own: faults of the environment ended 25 % of the episodes; its log names the first ones",
        "agent_returns@own: faults of the environment ended 73 % of the episodes; its log names the first ones",
        "expert_episodes@long: 12 % of the episodes were cut off after the environment's max_turns",
        "agents@long: 20 % of the episodes were cut off after the environment's max_turns",
        "agents@long: 100 % of the episodes ended since the model's context had no room for another turn",
        "agent_returns@long: 75 % of the episodes ended since the model's context had no room for another turn",
        "agent_episodes@long: 40 % of the episodes were left out, for an action that is said in fewer than "
        "agent_episodes.least turns",
        "returns@bc-ring: 100 % of the episodes were cut off after 1,000 steps, since the environment "
        "has no limit of its own",
    ]


@pytest.mark.parametrize("text", ["", "[1]", "torn {", '{"ended_greedy": 3}'])
def test_a_file_of_something_else_is_passed_over(tmp_path, text):
    (tmp_path / "data/metrics").mkdir(parents=True)
    (tmp_path / "data/metrics/grpo.json").write_text(text)
    assert not list(iterate_truncation_warnings(tmp_path, ["grpo"]))


def test_text_of_others_has_no_power_over_the_terminal(monkeypatch):
    """In whatever form it is printed; styles are rich's own."""
    hostile, shown = "a\x1b[31mb\x9b2J é", r"a\x1b[31mb\x9b2J é"
    file = io.StringIO()
    screen, table = PlainConsole(file), Table(hostile)
    table.add_row(Text(hostile, "bold"))
    for content in (hostile, Text(hostile, "bold red"), table):
        screen.print(content, markup=False)
    assert file.getvalue().count(shown) == 2
    assert all(char.isprintable() for char in file.getvalue().replace("\n", ""))
    colours = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    PlainConsole(colours).print(Text(hostile, "bold"), end="")
    assert colours.getvalue() == f"\x1b[1m{shown}\x1b[0m"
