"""Rules on what must fit together in the sections of the agents flow."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flows.params.faults import Configs, Fault, one_of
from tasks.common.config_faults import shown

if TYPE_CHECKING:
    from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig

CLONE = "behaviour_cloning"
KEY = "a key of expert_episodes.environments"


def played_in(configs: Configs) -> Iterator[Fault]:
    """Agents play in environments that exist; what is recorded or measured is trained, and what the report expects is measured."""
    environments, agents = configs["expert_episodes"].environments, configs["agents"].policies
    for name, own in agents.items():
        for side in ("environment", "clone"):
            key = f"agents.policies.{name}.{side}"
            yield from one_of(getattr(own, side), environments, KEY, key)
    sets, report = configs["agent_episodes"].sets, configs["agents_report"]
    policies = {f"agents_report.policies.{name}": one for name, one in report.policies.items()}
    policies |= {f"agent_episodes.sets.{name}": one for name, one in sets.items()}
    cloned = {f"agents.policies.{name}.clone": own.clone for name, own in agents.items()}
    cloned |= {f"{key}.branch": one.branch for key, one in policies.items() if one.stage == CLONE}
    for key, name in cloned.items():
        if name in environments and not environments[name].episodes and configs["behaviour_cloning"].init == "scratch":
            yield f"expert_episodes.environments.{name}.episodes", f"expected at least 1, since {key} names it, got 0"
    for key, one in policies.items():
        known, where = (environments, KEY) if one.stage == CLONE else (agents, "a key of agents.policies")
        yield from one_of(one.branch, known, where, f"{key}.branch")
        yield from one_of(one.environment, environments, KEY, f"{key}.environment")
    for name, one in sets.items():
        most = environments[one.environment].episodes if one.environment in environments else one.expert
        if one.expert > most:
            where = f"expert_episodes.environments.{one.environment}.episodes"
            yield f"agent_episodes.sets.{name}.expert", f"expected at most {where} = {most}, got {one.expert}"
    for number, expected in enumerate(report.expectations):
        for side in ("higher", "lower"):
            key = f"agents_report.expectations.{number}.{side}"
            yield from one_of(getattr(expected, side), report.policies, "a key of agents_report.policies", key)


def own_environments(root: Path, own: "ExpertEpisodesConfig") -> Iterator[Fault]:
    """Environments of the user's are classes in files that are there, and whose changes are noticed."""
    from tasks.agents.configs.own_environments import fault
    from tasks.language.configs.parts.python_rewards import holds

    for name, one in own.environments.items():
        if ".py:" in one.kind:
            if wrong := fault(root, one.kind):
                yield f"environments.{name}.kind", wrong
            elif not holds(own.environment_files, one.kind):
                file = one.kind.partition(":")[0]
                yield (
                    "environment_files",
                    f"expected {file} or a folder that holds it, got {shown(own.environment_files)}",
                )
