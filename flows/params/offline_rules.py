"""Rules on what must fit together in the sections of the offline flow."""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.params.shared_rules import Configs, Fault, find_missing_path_faults, find_unknown_choice_faults
from tasks.common.config_faults import format_names_hint, format_short_value

if TYPE_CHECKING:
    from flows.params.rules import RuleInput
    from tasks.offline.configs.behaviour import BehaviourConfig
    from tasks.offline.configs.learners import MethodConfig
    from tasks.offline.configs.offline_report import OfflineReportConfig
    from tasks.offline.configs.transitions import TransitionsConfig

OF_THE_DATA = ("data mean", "data best", "greedy behaviour")


def find_environment_reference_faults(configs: Configs) -> Iterator[Fault]:
    """Data sets are recorded in environments that exist, and scores are measured in such."""
    for name in configs["transitions"].references:
        choices = configs["behaviour"].environments
        key = f"transitions.references.{name}"
        yield from find_unknown_choice_faults(name, choices, "a key of branches.behaviour", key)
    for name, dataset in configs["transitions"].datasets.items():
        choices = configs["behaviour"].environments
        key = f"branches.transitions.{name}.environment"
        yield from find_unknown_choice_faults(dataset.environment, choices, "a key of branches.behaviour", key)


def find_dataset_reference_faults(configs: Configs) -> Iterator[Fault]:
    """Methods learn from data sets that exist."""
    for method, config in _select_method_configs(configs).items():
        named = config.datasets
        for number, name in enumerate(named):
            key = f"branches.{method}" if isinstance(named, dict) else f"branches.{method}.{number}"
            yield from find_unknown_choice_faults(
                name, configs["transitions"].datasets, "a key of branches.transitions", key
            )


def find_report_policy_faults(configs: Configs) -> Iterator[Fault]:
    """A policy is measured on a data set that its method learns from; an expectation is about a data set that
    exists.
    """
    methods = _select_method_configs(configs)
    for name, policy in configs["offline_report"].policies.items():
        key = f"offline_report.policies.{name}"
        if policy.method not in methods:
            yield from find_unknown_choice_faults(policy.method, list(methods), "a method", f"{key}.method")
            continue
        datasets = methods[policy.method].datasets
        kind = "a key" if isinstance(datasets, dict) else "one"
        yield from find_unknown_choice_faults(
            policy.dataset, list(datasets), f"{kind} of branches.{policy.method}", f"{key}.dataset"
        )
    for number, expected in enumerate(configs["offline_report"].expectations):
        datasets = configs["transitions"].datasets
        key = f"offline_report.expectations.{number}.dataset"
        yield from find_unknown_choice_faults(expected.dataset, datasets, "a key of branches.transitions", key)


REFERENCES = (find_environment_reference_faults, find_dataset_reference_faults, find_report_policy_faults)


def _select_method_configs(configs: Configs) -> dict[str, "MethodConfig"]:
    """The sections of offline methods, a user's own among them."""
    return {section: config for section, config in configs.items() if hasattr(config, "variant_names")}


def find_environment_faults(run: "RuleInput", config: "BehaviourConfig") -> Iterator[Fault]:
    """An environment is one of our own, one of Gymnasium's, or one of an installed package, as are the wrappers around
    it.
    """
    from tasks.offline.configs.behaviour import OWN
    from tasks.offline.configs.wrappers import parse_environment_name

    made = {f"data/{name.replace('@', '/')}" for name in run.stages}
    for name, environment in config.environments.items():
        if f"behaviour@{name}" in run.out_of_date:
            inner, _, wrappers = parse_environment_name(environment.id or name)
            faults = [] if inner in OWN else [_find_unknown_environment_fault(inner)]
            faults += [_find_unknown_environment_fault(wrapper.name) for wrapper in wrappers if ":" in wrapper.name]
            yield from ((f"environments.{name}", fault) for fault in faults if fault)
            module, _, folder = inner.partition(":")
            if module.partition(".")[0] != "tasks":
                continue
            if not Path(folder).is_relative_to(config.environment_files):
                expected = f"expected a folder that holds {folder}, since branches.behaviour.{name} is kept there"
                yield "environment_files", f"{expected}, got {format_short_value(config.environment_files)}"
            elif folder not in made and not (run.root / folder / "environment.json").is_file():
                yield f"environments.{name}", f"{folder} holds no environment.json, and no stage of this run makes it"


def find_missing_import_faults(run: "RuleInput", config: "TransitionsConfig") -> Iterator[Fault]:
    """Data sets that are imported from the disk exist, or a stage makes them."""
    made = {f"data/{name.replace('@', '/')}" for name in run.stages}
    for name, dataset in config.datasets.items():
        needed = dataset.source in ("minari", "d4rl") and f"transitions@{name}" in run.out_of_date
        if needed and f"{config.path}/{dataset.location}" not in made:
            yield from find_missing_path_faults(
                run.root, config.path, str(dataset.location), f"datasets.{name}.location"
            )


def find_expectation_faults(run: "RuleInput", config: "OfflineReportConfig") -> Iterator[Fault]:
    """An expectation is about policies that are measured on its data set, or about the data itself."""
    policies_by_dataset: dict[str, list[str]] = {}
    for policy in config.policies.values():
        policies_by_dataset.setdefault(policy.dataset, []).extend(run.configs[policy.method].variant_names)
    for number, expected in enumerate(config.expectations):
        key = f"expectations.{number}"
        yield from find_unknown_choice_faults(
            expected.dataset, policies_by_dataset, "a data set of offline_report.policies", f"{key}.dataset"
        )
        names = [*policies_by_dataset.get(expected.dataset, ()), *OF_THE_DATA]
        for side in ("higher", "lower"):
            what = f"a policy measured on {expected.dataset}"
            yield from find_unknown_choice_faults(getattr(expected, side), names, what, f"{key}.{side}")


def find_method_suitability_faults(run: "RuleInput") -> Iterator[Fault]:
    """A method learns from actions of the kind that it is for, and relabels only goals that there are.

    Actions are asked for before a method's first run on a data set only. Nothing is known of environments of others.
    """
    to_check: dict[str, tuple[str, str]] = {}  # key: data set and environment
    for section, config in _select_method_configs(run.configs).items():
        for number, name in enumerate(config.datasets if config.needs_actions or config.has_relabelling else ()):
            learned = not config.has_relabelling and (run.root / "data" / section / name).exists()
            environment = run.configs["transitions"].datasets[name].environment
            environment = run.configs["behaviour"].environments[environment].id or environment
            if f"{section}@{name}" in run.out_of_date and not learned and not _is_foreign_environment(environment):
                to_check[f"branches.{section}.{name if isinstance(config.datasets, Mapping) else number}"] = (
                    name,
                    environment,
                )
    kinds = (
        _query_environment_kinds(run.root, {environment for _, environment in to_check.values()}) if to_check else {}
    )
    for key, (name, environment) in to_check.items():
        config = run.configs[key.split(".")[1]]
        kind = kinds.get(environment)
        if kind is not None and config.needs_actions not in ("", kind["actions"]):
            yield key, f"expected data of {config.needs_actions} actions, those of {name} are {kind['actions']}"
        if kind is not None and config.has_relabelling and not kind["goals"]:
            yield (
                key,
                f"expected an environment with goals, since relabel is set; {name} is of {environment}, which has none",
            )


def _is_foreign_environment(environment: str) -> bool:
    """Whether another package or a folder has the environment, or a wrapper of it: no code of theirs runs for a
    look.
    """
    from tasks.offline.configs.wrappers import parse_environment_name

    inner, _, wrappers = parse_environment_name(environment)
    return any(":" in name for name in (inner, *(wrapper.name for wrapper in wrappers)))


def _query_environment_kinds(root: Path, environments: Collection[str]) -> dict[str, dict[str, Any] | None]:
    """What tasks/preflight says of each environment, in a process of its own; nothing if that fails: its stage says
    why.
    """
    command = [sys.executable, "-m", "tasks.preflight.environments", *sorted(environments)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    kinds: dict[str, dict[str, Any] | None] = json.loads(done.stdout) if done.returncode == 0 else {}
    return kinds


def _find_unknown_environment_fault(environment: str) -> str:
    """Why an environment cannot exist; empty if it may. No module of another package is imported.

    The environments that such a module registers, directly or by an entry point for Gymnasium, are known only to the
    stage's process.
    """
    from gymnasium import registry

    module, _, name = environment.rpartition(":")
    top = module.partition(".")[0]
    if top:
        spec = None
        with suppress(ValueError):  # raised for __main__
            spec = find_spec(top)
        return "" if spec else f"{environment}: no module {top} is installed"
    if name in registry or entry_points(group="gymnasium.envs"):
        return ""
    return f"Gymnasium has no such environment{format_names_hint(name, list(registry))}"
