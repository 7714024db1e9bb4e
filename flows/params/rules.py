"""Rules on what must fit together between sections, the stage graph, and files and packages, for a stage to succeed.

What concerns one section alone is checked by its Config (tasks/*/configs). Without these rules a stage would find such faults only
after others have run, perhaps hours later. Each rule is a function that yields the key at fault and what was expected.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.params import agent_rules
from flows.params.faults import Configs, Fault, one_of
from flows.params.files import PARAMS, ParameterError
from tasks.common.config_faults import shown, suggestion

if TYPE_CHECKING:
    from tasks.language.configs.grpo import GrpoConfig
    from tasks.language.configs.mixture import MixtureConfig
    from tasks.language.configs.parts.policies import SamplingConfig
    from tasks.language.configs.pretrained import PretrainedConfig
    from tasks.language.configs.responses import ResponsesConfig
    from tasks.language.configs.reward_model import RewardModelConfig
    from tasks.language.configs.steering import SteeringConfig
    from tasks.offline.configs.behaviour import BehaviourConfig
    from tasks.offline.configs.learners import MethodConfig
    from tasks.offline.configs.offline_report import OfflineReportConfig
    from tasks.offline.configs.transitions import TransitionsConfig

OF_THE_DATA = ("data mean", "data best", "greedy behaviour")


@dataclass(frozen=True)
class Given:
    """All that is known before a run."""

    configs: Configs
    stages: Collection[str]  # the stages needed, up to date or not, as stage or stage@branch
    out_of_date: Collection[str]  # the ones of them that will run
    root: Path


def check(given: Given) -> None:
    """Raise ParameterError for the first fault in the section of a stage that is needed."""
    needed = {name.split("@")[0] for name in given.stages}
    for section, rule in RULES:
        if section in needed and section in given.configs:
            for key, expected in rule(given, given.configs[section]):
                raise ParameterError(f"{PARAMS}: {section}.{key}: {expected}")


def learned_from(configs: Configs) -> Iterator[Fault]:
    """Methods learn from data sets that exist."""
    for method, own in _methods(configs).items():
        named = own.datasets
        for number, name in enumerate(named):
            key = f"{method}.datasets" if isinstance(named, dict) else f"{method}.datasets.{number}"
            yield from one_of(name, configs["transitions"].datasets, "a key of transitions.datasets", key)


def recorded_in(configs: Configs) -> Iterator[Fault]:
    """Data sets are recorded in environments that exist."""
    for name, one in configs["transitions"].datasets.items():
        known, key = configs["behaviour"].environments, f"transitions.datasets.{name}.environment"
        yield from one_of(one.environment, known, "a key of behaviour.environments", key)


def trained_on(configs: Configs) -> Iterator[Fault]:
    """A policy is measured on a data set that its method learns from; an expectation is about a data set that exists."""
    methods = _methods(configs)
    for name, one in configs["offline_report"].policies.items():
        key = f"offline_report.policies.{name}"
        if one.method not in methods:
            yield from one_of(one.method, list(methods), "a method", f"{key}.method")
            continue
        known = methods[one.method].datasets
        kind = "a key" if isinstance(known, dict) else "one"
        yield from one_of(one.dataset, list(known), f"{kind} of {one.method}.datasets", f"{key}.dataset")
    for number, expected in enumerate(configs["offline_report"].expectations):
        known, key = configs["transitions"].datasets, f"offline_report.expectations.{number}.dataset"
        yield from one_of(expected.dataset, known, "a key of transitions.datasets", key)


def _methods(configs: Configs) -> dict[str, "MethodConfig"]:
    """The sections of offline methods, a user's own among them."""
    return {section: own for section, own in configs.items() if hasattr(own, "variant_names")}


def references(configs: Configs) -> Iterator[Fault]:
    """Names by which sections refer to each other; they must always be right."""
    for rule in (recorded_in, learned_from, trained_on, agent_rules.played_in):
        with suppress(KeyError):  # another repository may lack the section
            yield from rule(configs)


def model_to_start_from(given: Given, own: "PretrainedConfig") -> Iterator[Fault]:
    """A model in a folder has a config.json of a supported type."""
    if own.init == "directory" and "pretrained" in given.out_of_date:
        from tasks.language.configs.pretrained import RECURRENT

        if fault := _model_fault(given.root / own.path, RECURRENT):
            yield "path", f"{own.path} {fault}"


def reward_model(given: Given, own: "SamplingConfig") -> Iterator[Fault]:
    """Where a reward model's score counts, the reward model exists: a stage makes it, or the folder holds it. It is of the kind that the
    reward asks for."""
    from tasks.language.configs.parts.python_rewards import BY_MODEL

    path, made = own.reward_model_path, {f"data/{name.replace('@', '/')}" for name in given.stages}
    there = path in made or (given.root / path / "config.json").is_file()
    mixed = {one.reward for one in given.configs["mixture"].datasets}
    for name in BY_MODEL:
        counts = own.reward.get(name)
        if not counts and name not in mixed:
            continue
        why = f"reward.{name} counts" if counts else "a data set of the mixture asks for it"
        found = _objective(given, path) if there else ""
        if not there:
            expected = f"expected a folder with a model, since {why} (such as data/reward_model)"
            yield "reward_model_path", f"{expected}, got {shown(path)}"
        elif name != "reward_model" and found != name:
            expected = f"expected a reward model of objective {name}, since {why}"
            yield "reward_model_path", f"{expected}, got {shown(path)}, of objective {found}"


def steps_are_judged(given: Given, own: "GrpoConfig") -> Iterator[Fault]:
    """Advantages of steps need rewards of steps."""
    mixed = any(one.reward == "process" for one in given.configs["mixture"].datasets)
    if own.supervision == "process" and not own.reward.get("process") and not mixed:
        yield "supervision", "expected outcome where reward does not count process, got 'process'"


def _objective(given: Given, path: str) -> str:
    """What the reward model in a folder was or will be trained on."""
    if path == "data/reward_model" and "reward_model" in given.stages:
        objective: str = given.configs["reward_model"].objective
        return objective
    try:
        return str(json.loads((given.root / path / "config.json").read_text()).get("reward_objective", "pairs"))
    except (ValueError, AttributeError):  # whoever loads the model says what is wrong with the file
        return "pairs"


def examples(given: Given, own: "RewardModelConfig") -> Iterator[Fault]:
    """A reward model learns from what its objective asks for: preferences, with rankings among them or not, or solutions."""
    from tasks.language.configs.reward_model import SOLUTIONS

    wanted, other = "data/preferences", "data/solutions"
    if own.objective in SOLUTIONS:
        wanted, other = other, wanted
    made = {f"data/{name.partition('@')[0]}" for name in given.stages}
    if own.data == other or (own.data not in made and not (given.root / own.data / "train.parquet").is_file()):
        kind = "solutions" if own.objective in SOLUTIONS else "preferences"
        expected = f"expected a folder with {kind} with objective {own.objective} (such as {wanted})"
        yield "data", f"{expected}, got {shown(own.data)}"
    source = given.configs["preferences"].source
    if own.objective == "ranking" and own.data == "data/preferences" and source in ("files", "hub"):
        yield "objective", f"expected pairs with preferences.source {source}, which holds no rankings, got 'ranking'"


def labels_of_steps(given: Given, own: "RewardModelConfig") -> Iterator[Fault]:
    """Files of whole answers say nothing of single steps."""
    whole = own.data == "data/solutions" and given.configs["solutions"].source == "files"
    if whole and own.objective == "process":
        yield (
            "objective",
            "expected outcome with solutions.source files, whose labels are of whole answers, got 'process'",
        )


def probabilities(given: Given, own: "SteeringConfig") -> Iterator[Fault]:
    """Steered policies are measured by a reward model whose score is a probability."""
    path, made = own.reward_model_path, {f"data/{name.partition('@')[0]}" for name in given.stages}
    there = path in made or (given.root / path / "config.json").is_file()
    found = f"of objective {_objective(given, path)}" if there else "which holds no model"
    if found != "of objective outcome":
        yield "reward_model_path", f"expected a reward model of objective outcome, got {shown(path)}, {found}"


def python_rewards(given: Given, own: "SamplingConfig") -> Iterator[Fault]:
    """The functions that a policy's reward counts can be called, and a change of one that the mixture names is noticed."""
    from tasks.language.configs.parts.python_rewards import fault, holds, is_python

    for name, weight in own.reward.items():
        if weight and is_python(name) and (wrong := fault(given.root, name)):
            yield "reward", f"{name}: {wrong}"
    for name in (one.reward for one in given.configs["mixture"].datasets):
        if is_python(name) and not holds(own.reward_files, name):
            file = name.partition(":")[0]
            expected = f"expected {file} or a folder that holds it, since a data set of the mixture asks for {name}"
            yield "reward_files", f"{expected}, got {shown(own.reward_files)}"


def mixed_functions(given: Given, own: "MixtureConfig") -> Iterator[Fault]:
    """The functions that data sets of the mixture name can be called."""
    from tasks.language.configs.parts.python_rewards import fault, is_python

    for number, one in enumerate(own.datasets):
        if is_python(one.reward) and (wrong := fault(given.root, one.reward)):
            yield f"datasets.{number}.reward", f"{one.reward}: {wrong}"


def passed_over(given: Given, own: "ResponsesConfig | MixtureConfig") -> Iterator[Fault]:
    """Fewer training problems are skipped than there are; this is known of generated ones, and of those that are there already."""
    problems, mixed = given.configs["problems"], getattr(own, "datasets", None)
    if mixed is not None and not any(one.source == "problems" for one in mixed):
        return
    counted = given.root / "data/metrics/problems.json"
    if problems.source == "generated":
        if own.skip >= problems.train:
            yield "skip", f"expected less than problems.train = {problems.train}, got {own.skip}"
    elif "problems" not in given.out_of_date and counted.is_file():
        there = json.loads(counted.read_text())["train"]
        if own.skip >= there:
            yield "skip", f"expected less than the {there:,} training problems that there are, got {own.skip}"


def mixed_files(given: Given, own: "MixtureConfig") -> Iterator[Fault]:
    """The files of the mixture exist, or a stage makes their folder."""
    made = {f"data/{name.partition('@')[0]}" for name in given.stages}
    for number, one in enumerate(own.datasets):
        if one.source == "file" and own.path not in made:
            yield from _there(given.root, own.path, one.location, f"datasets.{number}.location")


def environments(given: Given, own: "BehaviourConfig") -> Iterator[Fault]:
    """An environment is one of our own, one of Gymnasium's, or one of an installed package, as are the wrappers around it."""
    from tasks.offline.configs.behaviour import OWN
    from tasks.offline.configs.wrappers import parsed

    made = {f"data/{name.replace('@', '/')}" for name in given.stages}
    for name, one in own.environments.items():
        if f"behaviour@{name}" in given.out_of_date:
            inner, wrappers = parsed(one.id or name)
            faults = [] if inner in OWN else [_unknown(inner)]
            faults += [_unknown(wrapper.name) for wrapper in wrappers if ":" in wrapper.name]
            yield from ((f"environments.{name}", fault) for fault in faults if fault)
            module, _, folder = inner.partition(":")
            if module.partition(".")[0] != "tasks":
                continue
            if not Path(folder).is_relative_to(own.environment_files):
                expected = f"expected a folder that holds {folder}, since environments.{name} is kept there"
                yield "environment_files", f"{expected}, got {shown(own.environment_files)}"
            elif folder not in made and not (given.root / folder / "environment.json").is_file():
                yield f"environments.{name}", f"{folder} holds no environment.json, and no stage of this run makes it"


def imported_files(given: Given, own: "TransitionsConfig") -> Iterator[Fault]:
    """Data sets that are imported from the disk exist, or a stage makes them."""
    made = {f"data/{name.replace('@', '/')}" for name in given.stages}
    for name, one in own.datasets.items():
        needed = one.source in ("minari", "d4rl") and f"transitions@{name}" in given.out_of_date
        if needed and f"{own.path}/{one.location}" not in made:
            yield from _there(given.root, own.path, str(one.location), f"datasets.{name}.location")


def measured_policies(given: Given, own: "OfflineReportConfig") -> Iterator[Fault]:
    """An expectation is about policies that are measured on its data set, or about the data itself."""
    known: dict[str, list[str]] = {}
    for one in own.policies.values():
        known.setdefault(one.dataset, []).extend(given.configs[one.method].variant_names)
    for number, expected in enumerate(own.expectations):
        key = f"expectations.{number}"
        yield from one_of(expected.dataset, known, "a data set of offline_report.policies", f"{key}.dataset")
        names = [*known.get(expected.dataset, ()), *OF_THE_DATA]
        for side in ("higher", "lower"):
            what = f"a policy measured on {expected.dataset}"
            yield from one_of(getattr(expected, side), names, what, f"{key}.{side}")


def _there(root: Path, folder: str, location: str, key: str) -> Iterator[Fault]:
    if not (root / folder / location).exists():
        yield key, f"{folder}/{location} does not exist"


def _unknown(environment: str) -> str:
    """Why an environment cannot exist; empty if it may. No module of another package is imported.

    The environments that such a module registers, directly or by an entry point for Gymnasium, are known only to the stage's process.
    """
    from gymnasium import registry

    module, _, name = environment.rpartition(":")
    top = module.partition(".")[0]
    if top:
        found = None
        with suppress(ValueError):  # raised for __main__
            found = find_spec(top)
        return "" if found else f"{environment}: no module {top} is installed"
    if name in registry or entry_points(group="gymnasium.envs"):
        return ""
    return f"Gymnasium has no such environment{suggestion(name, list(registry))}"


def _model_fault(folder: Path, refused: Collection[str]) -> str:
    """What is wrong with a model in Hugging Face layout by its config.json alone; empty if nothing is."""
    config = folder / "config.json"
    if not config.is_file():
        return "holds no config.json; expected a model in Hugging Face layout"
    try:
        kind = json.loads(config.read_text())["model_type"]
    except (ValueError, TypeError, KeyError):
        return "holds a config.json without a model_type; expected a model in Hugging Face layout"
    wanted = "expected an attention model, whose key-value cache has a place for each token of a row"
    return (
        f"holds a model of type {kind}, which is stateful (recurrent, or of linear attention); {wanted}"
        if kind in refused
        else ""
    )


RULES: tuple[tuple[str, Callable[[Given, Any], Iterator[Fault]]], ...] = (  # Any: the Config of that section
    ("pretrained", model_to_start_from),
    ("responses", passed_over),
    ("reward_model", examples),
    ("reward_model", labels_of_steps),
    ("steering", probabilities),
    ("mixture", passed_over),
    ("mixture", mixed_files),
    ("mixture", mixed_functions),
    *(
        (name, rule)
        for name in ("rejection_sft", "reinforce", "ppo", "grpo")
        for rule in (reward_model, python_rewards)
    ),
    ("grpo", steps_are_judged),
    ("behaviour", environments),
    ("expert_episodes", lambda given, own: agent_rules.own_environments(given.root, own)),
    ("transitions", imported_files),
    ("offline_report", measured_policies),
)
