"""What policies earn, and the report: numbers by hand, verdicts by their intervals, a page that a stranger's text
cannot break.
"""

import dataclasses
import json
from dataclasses import replace

import pandas as pd
import pytest

from tasks.agents import agent_returns, agents_report
from tasks.agents.agents_report import AgentsReportConfig
from tasks.agents.configs.agents_report import AgentExpectation
from tasks.agents.playing.tables import SampledEpisodes, SampledTurns
from tasks.agents.reporting import figures, verdicts
from tasks.agents.reporting.policy_returns import PolicyEpisodes
from tasks.common import models, tables
from tasks.common.errors import ConfigError
from tests.tasks.agents import small

GAMES = 3


@pytest.fixture(scope="module")
def measured(cloned, recorded, trained_kind, tmp_path_factory):
    """The returns of a clone and of two agents."""
    root = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        small.measure(cloned, recorded, root / "returns/clone", games=GAMES)
        for name in ("reinforce", "ppo"):
            small.measure(trained_kind(name)[0], recorded, root / f"returns/{name}", games=GAMES)
    return root / "returns"


def report(measured, out, **changes):
    section = {
        "policies": small.MEASURED,
        "expectations": [{"higher": "ppo", "lower": "clone", "by": "return"}],
        "shown": 2,
        **changes,
    }
    return agents_report.run(AgentsReportConfig.model_validate(section), measured, out)


def test_turns_and_episodes_say_the_same(measured, cloned, recorded):
    episodes = tables.read_table(SampledEpisodes, measured / "ppo/sampled_episodes.parquet")
    turns = tables.read_table(SampledTurns, measured / "ppo/sampled_turns.parquet")
    key = ["seed", "temperature", "episode"]
    assert len(episodes) == 2 * 2 * GAMES
    summed = turns.groupby(key)["reward"].sum().reindex(pd.MultiIndex.from_frame(episodes[key]))
    assert (summed.to_numpy() - episodes["total"].to_numpy()).max() == pytest.approx(0, abs=1e-9)
    assert (episodes["total"] <= episodes["optimum"] + 1e-9).all()
    assert set(episodes["seed"]) == {0, 1}
    words = models.load_tokenizer(cloned)
    for row in tables.list_records(turns)[:20]:
        assert words.decode(list(row["tokens"]), skip_special_tokens=True).strip() == row["action"]
        assert len(row["logps"]) == len(row["tokens"])
        assert len(row["observed"]) > 0
    assert tables.read_table(SampledEpisodes, measured / "clone/sampled_episodes.parquet")["seed"].unique() == [-1]


def test_measuring_again_is_the_same(measured, cloned, recorded, tmp_path):
    metrics = small.measure(cloned, recorded, tmp_path, games=GAMES)
    for name in (agent_returns.TURNS, agent_returns.EPISODES):
        assert (tmp_path / name).read_bytes() == (measured / "clone" / name).read_bytes()
    assert set(metrics) == {"t0.0", "t1.0", "faults", "turns_cut", "context_cut", "optimum"}


def test_the_page_has_every_policy_and_episodes_to_read(measured, tmp_path):
    metrics = report(measured, tmp_path)
    assert list(metrics) == ["clone", "reinforce", "ppo"]
    page = (tmp_path / "agents_report.html").read_text()
    assert page.count('<details class="episode">') == 6
    assert "What was expected" in page
    assert "<svg" in page
    assert (tmp_path / "agents_report.md").read_text().count("\n| ") >= 4
    assert json.loads((tmp_path / "metrics/ppo.json").read_text()) == metrics["ppo"]
    with pytest.raises(ConfigError, match=r"agents_report\.policies: more was not measured"):
        report(measured, tmp_path, policies={"more": small.MEASURED["ppo"]})


def test_what_a_policy_says_is_text_in_the_page(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "render_learning_curves", lambda policies: {})  # plots take most of a page's time
    copy = tmp_path / "returns"
    for name in ("clone", "reinforce", "ppo"):
        (copy / name).mkdir(parents=True)
        for file in (measured / name).iterdir():
            (copy / name / file.name).write_bytes(file.read_bytes())
    turns = pd.read_parquet(copy / "clone/sampled_turns.parquet")
    turns["action"] = "<script>alert(1)</script>"
    turns.to_parquet(copy / "clone/sampled_turns.parquet")
    report(copy, tmp_path / "out")
    page = (tmp_path / "out/agents_report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def policy(name, greedy, sampled, trained=True):
    """A policy by each seed's return at temperatures 0 and 1, in either of two games."""
    rows = [
        {
            "seed": seed,
            "temperature": temperature,
            "episode": game,
            "game": game,
            "total": total,
            "optimum": 1.0,
            "turns": 1,
            "counted": "{}",
        }
        for temperature, totals in ((0.0, greedy), (1.0, sampled))
        for seed, total in enumerate(totals)
        for game in range(2)
    ]
    return PolicyEpisodes(name, "rooms", trained, pd.DataFrame(rows), pd.DataFrame(), None)


@pytest.mark.parametrize(
    ("greedy", "came"),
    [([0.5, 0.51, 0.52], "holds"), ([0.2, 0.1, 0.15], "fails"), ([0.2, 0.6, 0.4], "undecided"), ([0.9], "holds")],
)
def test_a_gain_counts_against_the_best_temperature_of_the_clone(greedy, came):
    known = {
        "agent": policy("agent", greedy, [0.0] * len(greedy)),
        "clone": policy("clone", [0.1], [0.3], trained=False),
    }
    found = verdicts.judge_expectation(AgentExpectation(higher="agent", lower="clone", by="return"), known)
    assert found.came == came
    assert "temperatures 0 and 1" in found.sentence


def in_games(name, totals, seeds=1, trained=False, environment="rooms"):
    """A policy whose greedy games, the same with every seed, have these returns; at temperature 1 they have less."""
    rows = [
        {
            "seed": seed,
            "temperature": temperature,
            "episode": game,
            "game": game,
            "total": total - temperature,
            "optimum": 1.0,
            "turns": 1,
            "counted": "{}",
        }
        for seed in range(seeds)
        for temperature in (0.0, 1.0)
        for game, total in enumerate(totals)
    ]
    return PolicyEpisodes(name, environment, trained, pd.DataFrame(rows), pd.DataFrame(), None)


def test_that_seeds_agree_decides_nothing_where_games_do_not():
    """Of 30 games each wins one that the other loses but for one: 0.033 apart in both seeds, with a standard error over
    games of 0.058.
    """
    one, other = [1.0, 1.0, 0.0] + [0.0] * 27, [0.0, 0.0, 1.0] + [0.0] * 27
    known = {"one": in_games("one", one, seeds=2, trained=True), "other": in_games("other", other)}
    found = verdicts.judge_expectation(AgentExpectation(higher="one", lower="other", by="return"), known)
    assert found.came == "undecided"
    assert "+0.033 against other (temperatures 0 and 0; -0.081 to +0.148)" in found.sentence


def test_two_clones_are_compared_by_their_games():
    """A tenth more in each of 50 games, of which every one is another: paired it is clear, and in other games it is
    not.
    """
    one = [0.1 + (game % 10) / 10 + (game % 2) / 100 for game in range(50)]
    other = [(game % 10) / 10 for game in range(50)]
    known = {
        "one": in_games("one", one),
        "other": in_games("other", other),
        "elsewhere": in_games("elsewhere", other, environment="cave"),
    }
    assert verdicts.judge_expectation(AgentExpectation(higher="one", lower="other", by="return"), known).came == "holds"
    assert (
        verdicts.judge_expectation(AgentExpectation(higher="one", lower="elsewhere", by="return"), known).came
        == "undecided"
    )
    known["far"] = in_games("far", [total + 1 for total in one])
    assert (
        verdicts.judge_expectation(AgentExpectation(higher="far", lower="elsewhere", by="return"), known).came
        == "holds"
    )


def test_one_trained_seed_is_judged_by_its_games_and_said_to_be_one():
    """0.95 more over 50 games, of which half have 0.05 more or less: a standard error of 0.0505 / sqrt(50) = 0.0071."""
    known = {"one": in_games("one", [1.0, 0.9] * 25, trained=True), "other": in_games("other", [0.0] * 50)}
    found = verdicts.judge_expectation(AgentExpectation(higher="one", lower="other", by="return"), known)
    assert found.came == "holds"
    assert found.sentence.endswith("+0.936 to +0.964; one seed of one, and another may differ).")
    by_learning = AgentExpectation(higher="one", lower="other", by="learning")
    curves = pd.DataFrame({"seed": 0, "step": [1, 2], "return": [0.9, 1.0]})
    known = {name: dataclasses.replace(policy, curve=curves) for name, policy in known.items()}
    assert verdicts.judge_expectation(by_learning, known).came == "undecided"


@pytest.mark.parametrize(("faster", "came"), [(0.3, "holds"), (0.0, "undecided"), (-0.3, "fails")])
def test_which_of_two_learns_faster_is_seen_by_the_returns_of_their_training(faster, came):
    """Both end with the same return; seeds differ by 0.02."""
    known = {}
    for name, more in (("one", faster), ("other", 0.0)):
        rows = [
            {"seed": seed, "step": step, "return": early + seed * 0.02}
            for seed in range(3)
            for step, early in enumerate((0.0, 0.5 + more, 1.0))
        ]
        known[name] = replace(policy(name, [1.0] * 3, [0.0] * 3), curve=pd.DataFrame(rows))
    found = verdicts.judge_expectation(AgentExpectation(higher="one", lower="other", by="learning"), known)
    assert found.came == came
    assert f"one earns while it learns {faster / 3:+.3f} against other" in found.sentence


def test_the_headline_counts():
    assert verdicts.format_verdict_headline([]) == "Nothing was expected of these policies."
    came = [verdicts.AgentVerdict(one, "") for one in ("holds", "holds", "fails", "undecided")]
    assert verdicts.format_verdict_headline(came) == "Of 4 expectations: 2 came out, 1 undecided, 1 did not come out."


def test_every_environment_has_its_panel_with_its_own_clone_and_optimum():
    """Clones have other names in every environment; more than three once had no style to be drawn in."""
    policies = []
    for number in range(4):
        curve = pd.DataFrame({"seed": 0, "step": range(1, 5), "return": [0.1, 0.2, 0.3, 0.4]})
        for one in (
            policy(f"clone-{number}", [0.1], [0.2], trained=False),
            replace(policy(f"agent-{number}", [0.5], [0.4]), curve=curve),
        ):
            policies.append(replace(one, environment=f"world-{number}"))
    figure = figures.render_learning_curves(policies)["learning"]
    assert all(figure.count(f">world-{number}<") == 1 for number in range(4))
    assert figure.count(">best without rewards<") == figure.count(">optimum<") == 1
