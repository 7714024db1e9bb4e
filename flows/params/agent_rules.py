"""Rules on what must fit together in the sections of the agents flow."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flows.params.shared_rules import Configs, Fault, find_unknown_choice_faults
from tasks.common.config_faults import format_short_value

if TYPE_CHECKING:
    from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig

CLONE = "behaviour_cloning"
ENVIRONMENT = "a key of branches.expert_episodes"


def find_agent_reference_faults(configs: Configs) -> Iterator[Fault]:
    """Agents play in environments that exist; what the report measures is trained, and what it expects is measured."""
    environments = configs["expert_episodes"].environments
    cloned = dict[str, str]()
    learners = {stage: configs[stage].policies for stage in ("agents", "budgets")}
    for stage, policies in learners.items():
        for name, learner in policies.items():
            cloned[f"branches.{stage}.{name}.clone"] = learner.clone
            yield from find_unknown_choice_faults(
                learner.environment, environments, ENVIRONMENT, f"branches.{stage}.{name}.environment"
            )
    report = configs["agents_report"]
    teacher = configs["budgets"].teacher
    if learners["budgets"]:
        cloned["budgets.teacher"] = teacher
    sets = configs["agent_episodes"].sets
    played = {f"agents_report.policies.{name}": player for name, player in report.policies.items()}
    played |= {f"branches.agent_episodes.{name}": player for name, player in sets.items()}
    for key, player in played.items():
        if player.stage == CLONE:
            cloned[f"{key}.branch"] = player.branch
        else:
            yield from find_unknown_choice_faults(
                player.branch, learners[player.stage], f"a key of branches.{player.stage}", f"{key}.branch"
            )
        yield from find_unknown_choice_faults(player.environment, environments, ENVIRONMENT, f"{key}.environment")
    for key, name in cloned.items():
        yield from find_unknown_choice_faults(name, environments, ENVIRONMENT, key)
        if not environments[name].episodes and configs[CLONE].init == "scratch":
            yield f"branches.expert_episodes.{name}.episodes", f"expected at least 1, since {key} names it, got 0"
        if name == teacher and key.startswith("branches.budgets"):
            yield key, f"expected another clone than the teacher's, {teacher}"
    for name, player in sets.items():
        most = environments[player.environment].episodes
        if player.expert > most:
            where = f"branches.expert_episodes.{player.environment}.episodes"
            yield f"branches.agent_episodes.{name}.expert", f"expected at most {where} = {most}, got {player.expert}"
    for name in configs[CLONE].sizes:
        yield from find_unknown_choice_faults(name, environments, ENVIRONMENT, f"{CLONE}.sizes.{name}")
    for number, expected in enumerate(report.expectations):
        for side in ("higher", "lower"):
            key = f"agents_report.expectations.{number}.{side}"
            name = getattr(expected, side)
            yield from find_unknown_choice_faults(name, report.policies, "a key of agents_report.policies", key)
            if expected.by == "learning" and report.policies[name].stage != "agents":
                yield key, f"expected a policy of the stage agents, whose training is known, got {name}"


def find_custom_environment_faults(root: Path, config: "ExpertEpisodesConfig") -> Iterator[Fault]:
    """Environments of the user's are classes in files that are there, and whose changes are noticed."""
    from tasks.agents.configs.user_environment_names import find_environment_class_fault
    from tasks.language.configs.parts.python_rewards import contains_reward_file

    for name, environment in config.environments.items():
        if ".py:" in environment.kind:
            if wrong := find_environment_class_fault(root, environment.kind):
                yield f"environments.{name}.kind", wrong
            elif not contains_reward_file(config.environment_files, environment.kind):
                file = environment.kind.partition(":")[0]
                yield (
                    "environment_files",
                    f"expected {file} or a folder that holds it, got {format_short_value(config.environment_files)}",
                )
