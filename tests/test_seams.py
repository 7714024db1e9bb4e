"""Every key of every stage's section has an effect: a change to it alone changes an out of the stage."""

from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests import extensions, repository, seams
from tests.conftest import PARAMS
from tests.seam_params import BASE, DISCRETE

PRESET = repository.preset("tiny")
# The one branch that is run again with a changed key, where it shows the effect of all keys.
ONE_BRANCH = {
    "evaluate": "sft",
    **extensions.entries("ONE_BRANCH"),
    "behaviour": "CartPole-v1",
    "transitions": DISCRETE,
    "returns": f"bc-{DISCRETE}",
    "agents": "ppo",
    "agent_returns": "ppo",
    "budgets": "one",
}
ADAPTER = {"rank": 2, "alpha": 4.0, "targets": "all-linear", "merge": True}
EXPECTED = "offline_report.expectations.0"
DATA = {f"{EXPECTED}.higher": "data best", f"{EXPECTED}.lower": "data mean"}
# The changed value of a key where its type alone gives none that has an effect.
VALUES: dict[str, Any] = {
    **extensions.entries("VALUES"),
    "behaviour.clip": 0.1,
    "*.clip": 0.001,
    "*.training.warmup": 0.9,
    **{
        f"{stage}.lora": {**ADAPTER, "dropout": 0.0}
        for stage in ("sft", "sft_control", "reward_model", "rejection_sft")
    },
    "*.lora": ADAPTER,
    "*.training.betas": [0.5, 0.6],
    **{f"*.clip_{key}": 0.001 for key in ("ratio", "value", "low", "high")},
    "*.importance_cap": 0.5,
    "*.kl_target": 0.0001,
    **dict.fromkeys(("sft.evaluate_every", "sft_control.evaluate_every"), 1),
    "*.trained_temperature": 0.5,
    "pretrained.heads": 4,
    "pretrained.width": 32,
    "problems.largest": 60,
    "rejection_sft.minimum_reward": -0.3,  # the best answers earn -0.54 to 0.31
    "preferences.tie_margin": 4.0,
    "preferences.mixture.*": 1.0,
    "mixture.datasets.0.name": "sums",
    "mixture.datasets.0.location": "test.jsonl",
    **dict.fromkeys(("sft.max_length", "sft_control.max_length"), 100),
    "*.max_length": 85,
    "reward_model.objective": "process",
    "*.validation_share": 0.5,
    "reinforce.variance_parts": 2,
    "evaluate.temperatures": [0.5],
    "report.baseline": "sft_matched",
    "report.best_by": "no_metric",  # the report says so; by any other one no policy is best, since none is ever right
    "report.margin": 50.0,
    "tabular_q.tolerance": 2.0,
    "behaviour.environments.CartPole-v1.steps": 4096,
    "behaviour.environments.CartPole-v1.medium": 0.05,
    "behaviour.environments.CartPole-v1.gamma": 0.9,
    "behaviour.environments.CartPole-v1.entropy": 0.01,
    "decision_transformer.variants.DT.init": "synthetic",
    "behaviour.max_gradient": 0.1,
    "*.max_weight": 0.5,
    "*.exploration.replay": 16,
    "*.fine_tuning.replay": 16,
    "*.last_from": 20,
    "returns.fitted_q.most_steps": 30,
    "returns.fitted_q.tolerance": 0.000001,
    "offline_report.best_by": "return",
    "expert_episodes.environments.*.kind": "calculator",
    "behaviour_cloning.vocabulary": 340,
    "agents.seeds": [1],
    "agents.max_action_tokens": 2,
    "budgets.seeds": [1],
    "budgets.max_action_tokens": 2,
    "agent_returns.max_action_tokens": 2,
    "agent_episodes.max_action_tokens": 2,
    "agents_report.expectations.0.higher": "ppo",
    "agents_report.expectations.0.lower": "ppo",
    f"{EXPECTED}.dataset": "graph-12",
    **DATA,
}
# Keys that have an effect only with another setting, by pattern.
IN_A_REGION = {"agents.policies.ppo.update": "trust_region"}
FROM = {
    source: {"budgets.policies.one.source": source}
    for source in ("demonstrations", "teacher", "comparisons", "rewards")
}
ONLINE = {"dqn.variants.DQN.online": True}
TWO_SETS = [{**PARAMS["mixture"]["datasets"][0], "name": name} for name in ("one", "two")]
ON_SOLUTIONS = {"reward_model.kind": "head", "reward_model.likelihood": 0.0, "reward_model.data": "data/solved"}
JUDGED = {
    "preferences.source": "people",
    "preferences.judgements": "data/raw/judgements/people.jsonl",
    "preferences.minimum": 1,
}
FROM_ALL = {
    "preferences.judgements": "data/raw/judgements/people.jsonl",
    "preferences.minimum": 1,
    "preferences.pairs_path": "data/raw/pairs/own.jsonl",
    "preferences.mixture": {"annotator": 0.5, "people": 0.5, "files": 0.5, "hub": 0.0},
    "preferences.source": "mixture",
}
UNDER: dict[str, dict[str, Any]] = {
    **extensions.entries("UNDER"),
    **{f"solutions.{key}": {"solutions.source": "rollouts"} for key in ("estimate", "prompts", "samples")},
    "preferences.disagreement": JUDGED,
    "preferences.mixture.*": FROM_ALL,
    "dpo.gamma": {"dpo.loss": "simpo", "dpo.length_normalised": True},
    "mixture.datasets.0.weight": {"mixture.datasets": TWO_SETS},
    "demonstrations.seed": {"demonstrations.source": "files"},
    "demonstrations.validation_share": {"demonstrations.source": "files"},
    **{f"{stage}.truncation": {f"{stage}.max_length": 100} for stage in ("sft", "sft_control")},
    "reward_model.truncation": {"reward_model.max_length": 85},
    "reward_model.objective": {**ON_SOLUTIONS, "reward_model.objective": "outcome"},
    "reward_model.outcome_tokens": {**ON_SOLUTIONS, "reward_model.objective": "outcome"},
    "reward_model.threshold": ON_SOLUTIONS
    | {"reward_model.objective": "outcome", "reward_model.kind": "log_probability"},
    "reward_model.step_score": {**ON_SOLUTIONS, "reward_model.objective": "process"},
    "dpo.truncation": {"dpo.max_length": 85},
    "grpo.kl": {"grpo.beta": 0.1},
    **{f"{stage}.packing": {f"{stage}.max_length": 200} for stage in ("sft", "sft_control")},
    "mixture.validation_share": {"mixture.datasets.0.location": "train.jsonl", "mixture.datasets.0.source": "file"},
    "reward_model.kind": {"reward_model.likelihood": 0.0},
    **{key: {"reward_model.kind": "log_probability"} for key in ("reward_model.likelihood", "reward_model.beta")},
    "report.baseline": {"report.controls": []},
    "reinforce.paid": {"reinforce.max_new_tokens": 40},
    "mixture.datasets.0.location": {"mixture.datasets.0.location": "train.jsonl", "mixture.datasets.0.source": "file"},
    "expert_episodes.environments.*.kind": {"expert_episodes.environments.rooms.settings": {}},
    "agents_report.expectations.0.by": {"agents_report.expectations.0.lower": "ppo"},  # a clone has no curve
    "agents.policies.ppo.baseline": {"agents.policies.ppo.credit": "to_go"},
    "agents.critic_updates": {"agents.policies.ppo.update": "plain"},
    **dict.fromkeys(("agents.radius", "agents.iterations", "agents.damping"), IN_A_REGION),
    "budgets.prices.demonstration": FROM["demonstrations"],
    "budgets.batch_size": {**FROM["demonstrations"], "budgets.policies.one.dollars": 900.0},
    "budgets.prices.teacher": FROM["teacher"],
    **dict.fromkeys(("budgets.prices.comparison", "budgets.beta"), FROM["comparisons"]),
    "budgets.clip_ratio": FROM["rewards"],
    "dqn.exploration.*": ONLINE,
    "iql.fine_tuning.*": {"iql.variants": {"IQL": {"online": True}}},
    "cql.fine_tuning.*": {"cql.variants.CQL.online": True},
    f"{EXPECTED}.dataset": DATA,
    "transitions.seed": {f"transitions.datasets.{DISCRETE}.source": "random"},
    "decision_transformer.text.*": {"decision_transformer.variants.DT.text": 0.5},
    "decision_transformer.synthetic.*": {"decision_transformer.variants.DT.init": "synthetic"},
}
# Keys whose effect no out of a run here can show: the reason, and the test that covers them.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "*.keep": ("the last policy may be the best", "tests/tasks/language/training/test_policy_training.py"),
    "*.show_every": ("tables in MLflow are no outs", "tests/tasks/language/training/test_policy_training.py"),
    "*.gradient_checkpointing": (
        "the same numbers are computed again",
        "tests/tasks/algorithms/common/test_gradient_checkpointing.py",
    ),
    "*.hub_*": ("needs a network", "tests/tasks/language/data/test_rows.py"),
    "preferences.source": ("files and a hub need a path too", "tests/tasks/language/test_preferences.py"),
    "preferences.mixture.hub": ("needs a network", "tests/tasks/language/test_preferences.py"),
    "preferences.minimum": (
        "below it the stage waits and writes nothing",
        "tests/tasks/language/test_judged_preferences.py",
    ),
    "mixture.datasets.*.source": ("a file or a hub set needs a location too", "tests/tasks/language/test_mixture.py"),
    "solutions.minimum": ("counts what people judged", "tests/tasks/language/test_solutions.py"),
    **extensions.entries("ELSEWHERE"),
    **{
        f"solutions.{key}": ("a model this small is never right", "tests/tasks/language/test_solutions.py")
        for key in ("temperature", "max_new_tokens", "batch_size")
    },
    "grpo.supervision": ("needs a model of steps", "tests/tasks/language/training/test_model_rewards.py"),
    "*.reward_none_limit": ("every answer has a reward", "tests/tasks/language/training/test_python_rewards.py"),
    "*.reward_seconds": ("for functions that hang", "tests/tasks/language/rewards/test_python_functions.py"),
    "evaluate.strip_thinking": ("a model this small does not think", "tests/tasks/language/test_evaluate.py"),
    "*.strip_thinking": ("a model this small does not think", "tests/tasks/language/training/test_python_rewards.py"),
    "report.bootstrap": ("fewer than 30 prompts are held out", "tests/tasks/language/reporting/test_reward_section.py"),
    "evaluate.validation_samples": ("a model this small is never right", "tests/tasks/language/test_evaluate.py"),
    "reward_model.ties": ("the annotator here ties nothing", "tests/tasks/language/test_reward_objectives.py"),
    **dict.fromkeys(("*.relabel", "*.relabelled"), ("needs goals", "tests/tasks/offline/test_goals.py")),
    "expert_episodes.environments.*.seconds": (
        "for what hangs",
        "tests/tasks/agents/environments/test_user_environments.py",
    ),
    "behaviour_cloning.init": ("needs a model", "tests/tasks/agents/test_behaviour_cloning.py"),
    "agents.halvings": ("a step may keep to its bound at once", "tests/tasks/algorithms/agents/test_trust_region.py"),
    "agents_report.policies.*": ("names the returns to read", "tests/tasks/agents/test_agents_report.py"),
    "tabular_q.states": ("a limit, beyond which the stage refuses", "tests/tasks/offline/test_tabular_q.py"),
    "decision_transformer.language.*": ("needs a language model", "tests/tasks/offline/test_decision_transformer.py"),
    "behaviour.environments.*.id": ("of another package", "tests/tasks/offline/environments/test_simulators.py"),
    "transitions.datasets.*.location": ("of what is imported", "tests/tasks/offline/test_transitions.py"),
    "offline_report.selected.*": ("marks a method that is not here", "tests/tasks/offline/test_offline_report.py"),
    "offline_report.policies.*": ("names the returns to read", "tests/tasks/offline/test_offline_report.py"),
}


def laid_over(base: seams.Params, *others: seams.Params) -> seams.Params:
    return {
        stage: {key: value for part in (base, *others) for key, value in part.get(stage, {}).items()} for stage in base
    }


TINY = laid_over(PARAMS, PRESET, BASE)
KEYS = [key for stage in TINY for key in seams.keys(stage, TINY)]


def named(table, key):
    """The table's entry whose pattern matches the key; None without one."""
    return next((entry for pattern, entry in table.items() if fnmatch(key, pattern)), None)


HERE = [key for key in KEYS if named(ELSEWHERE, key) is None and not seams.in_dvc(key)]


@pytest.fixture(scope="module")
def home(one_thread, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("seams"))
        yield seams.Home(Path.cwd(), TINY, ONE_BRANCH)


def other_value(key, params):
    stage = key.partition(".")[0]
    value = named(VALUES, key)
    found = [value] if value is not None else seams.candidates(key, params)
    return next((one for one in found if seams.valid(stage, seams.changed(params, {key: one}))), None)


@pytest.mark.slow
@pytest.mark.parametrize("key", HERE)
def test_a_key_acts(home, tmp_path, key):
    stage, beside = key.partition(".")[0], named(UNDER, key) or {}
    value = other_value(key, seams.changed(TINY, beside))
    assert value is not None, f"VALUES says no other value of {key}, and its type does not either"
    before = home.beside(stage, beside, tmp_path / "before")
    after = home.changed(stage, {**beside, key: value}, tmp_path / "after")
    acts = any(after[branch] != before[branch] for branch in after)
    assert acts, f"{key} = {value!r} changes no out: if it acts under another setting, say so in UNDER"


@pytest.mark.slow
@pytest.mark.parametrize("stage", TINY)
def test_a_run_is_the_same_again(home, tmp_path, stage):
    """Otherwise every key would seem to have an effect."""
    again = home.changed(stage, {}, tmp_path)
    assert again == {branch: home.outs(stage)[branch] for branch in again}


@pytest.mark.slow
def test_a_key_that_a_stage_ignores_is_noticed(home, tmp_path, monkeypatch):
    from tasks.language.training import supervised

    optimizer = supervised.Optimizer
    monkeypatch.setattr(
        supervised, "Optimizer", lambda *given: optimizer(*given[:-1], replace(given[-1], weight_decay=0.0))
    )
    with pytest.raises(AssertionError, match=r"sft\.training\.weight_decay = 1\.0 changes no out"):
        test_a_key_acts(home, tmp_path, "sft.training.weight_decay")


def test_the_tables_name_keys_and_tests_that_there_are():
    for table in (VALUES, UNDER, ELSEWHERE):
        assert [pattern for pattern in table if not any(fnmatch(key, pattern) for key in KEYS)] == []
    for _, file in ELSEWHERE.values():
        assert (seams.ROOT / file).is_file()
    assert {key.split(".")[0] for key in KEYS} == set(PARAMS)
