"""Rules on what must fit together between sections, the stage graph, and files and packages, for a stage to succeed.

What concerns one section alone is checked by its Config (tasks/*/configs). Without these rules a stage would find such
faults only after others have run, perhaps hours later. Each rule is a function that yields the key at fault and what
was expected.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.params import agent_rules, offline_rules
from flows.params.files import PARAMS, ParameterError
from flows.params.shared_rules import Configs, Fault, find_missing_path_faults
from tasks.common.config_faults import describe_missing_model, format_short_value, map_config_key_to_params_key
from tasks.extension_modules import import_extension_modules

if TYPE_CHECKING:
    from tasks.language.configs.grpo import GrpoConfig
    from tasks.language.configs.mixture import MixtureConfig
    from tasks.language.configs.parts.policies import SamplingConfig
    from tasks.language.configs.pretrained import PretrainedConfig
    from tasks.language.configs.report import ReportConfig
    from tasks.language.configs.responses import ResponsesConfig
    from tasks.language.configs.reward_model import RewardModelConfig
    from tasks.language.configs.sft_control import SftControlConfig


@dataclass(frozen=True)
class RuleInput:
    """All that is known before a run."""

    configs: Configs
    stages: Collection[str]  # the stages needed, up to date or not, as stage or stage@branch
    out_of_date: Collection[str]  # the ones of them that will run
    root: Path

    def objective(self, path: str) -> str:
        """What the reward model in a folder was or will be trained on; empty where there is none, as in what another
        stage makes.
        """
        if path == "data/reward_model" and "reward_model" in self.stages:
            objective: str = self.configs["reward_model"].objective
            return objective
        config = self.root / path / "config.json"
        if path in {f"data/{name.replace('@', '/')}" for name in self.stages} or not config.is_file():
            return ""
        try:
            return str(json.loads(config.read_text()).get("reward_objective", "pairs"))
        except (OSError, ValueError, AttributeError, RecursionError):  # whoever loads the model says what is wrong
            return "pairs"


def check_rules(run: RuleInput) -> None:
    """Raise ParameterError for the first fault in the section of a stage that is needed."""
    needed = {name.split("@")[0] for name in run.stages}
    of_extensions = chain.from_iterable(module.RULES for module in import_extension_modules("rules"))
    for section, rule in (*RULES, *of_extensions):
        if section in needed and section in run.configs:
            for key, expected in rule(run, run.configs[section]):
                path = map_config_key_to_params_key((section, *key.split(".")), {section: type(run.configs[section])})
                raise ParameterError(f"{PARAMS}: {'.'.join(path)}: {expected}")
    for key, expected in offline_rules.find_method_suitability_faults(run):
        raise ParameterError(f"{PARAMS}: {key}: {expected}")


def find_reference_faults(configs: Configs) -> Iterator[Fault]:
    """Names by which sections refer to each other; they must always be right."""
    for rule in (*offline_rules.REFERENCES, agent_rules.find_agent_reference_faults):
        with suppress(KeyError):  # another repository may lack the section
            yield from rule(configs)


def find_initial_model_faults(run: RuleInput, config: "PretrainedConfig") -> Iterator[Fault]:
    """A model in a folder has a config.json of a supported type."""
    if config.init == "directory" and "pretrained" in run.out_of_date:
        from tasks.language.configs.pretrained import RECURRENT

        if fault := _find_model_fault(run.root / config.path, RECURRENT):
            yield "path", f"{config.path} {fault}"


def find_policy_reward_model_faults(run: RuleInput, config: "SamplingConfig") -> Iterator[Fault]:
    """Where a reward model's score counts, the reward model exists: a stage makes it, or the folder holds it. It is of
    the kind that the reward asks for.
    """
    from tasks.language.configs.parts.python_rewards import BY_MODEL

    path = config.reward_model_path
    objective = run.objective(config.reward_model_path)
    mixed = {dataset.reward for dataset in run.configs["mixture"].datasets}
    for name in BY_MODEL:
        counts = config.reward.get(name)
        if not counts and name not in mixed:
            continue
        why = f"reward.{name} counts" if counts else "a data set of the mixture asks for it"
        if not objective:
            expected = f"expected a folder with a model, since {why} (such as data/reward_model)"
            yield "reward_model_path", f"{expected}, got {format_short_value(path)}"
        elif name != "reward_model" and objective != name:
            expected = f"expected a reward model of objective {name}, since {why}"
            yield "reward_model_path", f"{expected}, got {format_short_value(path)}, of objective {objective}"


def find_process_reward_faults(run: RuleInput, config: "GrpoConfig") -> Iterator[Fault]:
    """Advantages of steps need rewards of steps."""
    mixed = any(dataset.reward == "process" for dataset in run.configs["mixture"].datasets)
    if config.supervision == "process" and not config.reward.get("process") and not mixed:
        yield "supervision", "expected outcome where reward does not count process, got 'process'"


def find_reward_data_faults(run: RuleInput, config: "RewardModelConfig") -> Iterator[Fault]:
    """A reward model learns from what its objective asks for: preferences, with rankings among them or not, or
    solutions.
    """
    from tasks.language.configs.reward_model import SOLUTIONS

    wanted = "data/preferences"
    other = "data/solutions"
    if config.objective in SOLUTIONS:
        wanted, other = other, wanted
    made = {f"data/{name.partition('@')[0]}" for name in run.stages} - {wanted}
    if config.data in (other, *made) or (
        config.data != wanted and not (run.root / config.data / "train.parquet").is_file()
    ):
        kind = "solutions" if config.objective in SOLUTIONS else "preferences"
        expected = f"expected a folder with {kind} with objective {config.objective} (such as {wanted})"
        yield "data", f"{expected}, got {format_short_value(config.data)}"
    source = run.configs["preferences"].source
    if config.objective == "ranking" and config.data == "data/preferences" and source in ("files", "hub"):
        yield "objective", f"expected pairs with preferences.source {source}, which holds no rankings, got 'ranking'"


def find_step_label_faults(run: RuleInput, config: "RewardModelConfig") -> Iterator[Fault]:
    """Files of whole answers say nothing of single steps."""
    whole = config.data == "data/solutions" and run.configs["solutions"].source == "files"
    if whole and config.objective == "process":
        yield (
            "objective",
            "expected outcome with solutions.source files, whose labels are of whole answers, got 'process'",
        )


def find_python_reward_faults(run: RuleInput, config: "SamplingConfig") -> Iterator[Fault]:
    """The functions that a policy's reward counts can be called, and a change of one that the mixture names is
    noticed.
    """
    from tasks.language.configs.parts.python_rewards import (
        contains_reward_file,
        find_reward_function_fault,
        is_python_reward,
    )

    for name, weight in config.reward.items():
        if weight and is_python_reward(name) and (wrong := find_reward_function_fault(run.root, name)):
            yield "reward", f"{name}: {wrong}"
    for name in (dataset.reward for dataset in run.configs["mixture"].datasets):
        if is_python_reward(name) and not contains_reward_file(config.reward_files, name):
            file = name.partition(":")[0]
            expected = f"expected {file} or a folder that holds it, since a data set of the mixture asks for {name}"
            yield "reward_files", f"{expected}, got {format_short_value(config.reward_files)}"


def find_mixture_reward_faults(run: RuleInput, config: "MixtureConfig") -> Iterator[Fault]:
    """The functions that data sets of the mixture name can be called."""
    from tasks.language.configs.parts.python_rewards import find_reward_function_fault, is_python_reward

    for number, dataset in enumerate(config.datasets):
        if is_python_reward(dataset.reward) and (wrong := find_reward_function_fault(run.root, dataset.reward)):
            yield f"datasets.{number}.reward", f"{dataset.reward}: {wrong}"


def find_skip_count_faults(
    run: RuleInput, config: "ResponsesConfig | MixtureConfig | SftControlConfig"
) -> Iterator[Fault]:
    """Fewer training problems are skipped than there are; this is known of generated ones, and of those that are there
    already.
    """
    problems = run.configs["problems"]
    mixed = getattr(config, "datasets", None)
    if mixed is not None and not any(dataset.source == "problems" for dataset in mixed):
        return
    if hasattr(config, "demonstrations") and run.configs["demonstrations"].source != "problems":
        return
    counted = run.root / "data/metrics/problems.json"
    if problems.source == "generated":
        if config.skip >= problems.train:
            yield "skip", f"expected less than problems.train = {problems.train}, got {config.skip}"
    elif "problems" not in run.out_of_date and counted.is_file():
        problem_count = json.loads(counted.read_text())["train"]
        if config.skip >= problem_count:
            yield (
                "skip",
                f"expected less than the {problem_count:,} training problems that there are, got {config.skip}",
            )


def find_untrained_control_faults(run: RuleInput, config: "ReportConfig") -> Iterator[Fault]:
    """Each control that is shown is trained; or else the model of an earlier run would be shown."""
    trained = run.configs["sft_control"].policies
    for number, name in enumerate(config.policies):
        if name in ("sft_matched", "sft_flat") and name not in trained:
            yield (
                f"policies.{number}",
                f"{name} is not in branches.sft_control, which has {', '.join(trained) or 'none'}",
            )


def find_mixture_file_faults(run: RuleInput, config: "MixtureConfig") -> Iterator[Fault]:
    """The files of the mixture exist, or a stage makes their folder."""
    made = {f"data/{name.partition('@')[0]}" for name in run.stages}
    for number, dataset in enumerate(config.datasets):
        if dataset.source == "file" and config.path not in made:
            yield from find_missing_path_faults(run.root, config.path, dataset.location, f"datasets.{number}.location")


def _find_model_fault(folder: Path, refused: Collection[str]) -> str:
    """What is wrong with a model in Hugging Face layout by its config.json alone; empty if nothing is."""
    config = folder / "config.json"
    if not config.is_file():
        return describe_missing_model(folder)
    try:
        kind = json.loads(config.read_text())["model_type"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "holds a config.json without a model_type; expected a model in Hugging Face layout"
    wanted = "expected an attention model, whose key-value cache has a place for each token of a row"
    return (
        f"holds a model of type {kind}, which is stateful (recurrent, or of linear attention); {wanted}"
        if kind in refused
        else ""
    )


Rule = tuple[str, Callable[[RuleInput, Any], Iterator[Fault]]]  # Any: the Config of that section


RULES: tuple[Rule, ...] = (
    ("pretrained", find_initial_model_faults),
    ("report", find_untrained_control_faults),
    ("responses", find_skip_count_faults),
    ("sft_control", find_skip_count_faults),
    ("reward_model", find_reward_data_faults),
    ("reward_model", find_step_label_faults),
    ("mixture", find_skip_count_faults),
    ("mixture", find_mixture_file_faults),
    ("mixture", find_mixture_reward_faults),
    *(
        (name, rule)
        for name in ("rejection_sft", "reinforce", "ppo", "grpo")
        for rule in (find_policy_reward_model_faults, find_python_reward_faults)
    ),
    ("grpo", find_process_reward_faults),
    ("behaviour", offline_rules.find_environment_faults),
    ("expert_episodes", lambda run, config: agent_rules.find_custom_environment_faults(run.root, config)),
    ("transitions", offline_rules.find_missing_import_faults),
    ("offline_report", offline_rules.find_expectation_faults),
)
