"""How long stages will take: by the last run of each on this machine, else by one measured run of the defaults, and in
proportion to the work that params.yaml asks of them.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from flows.lineage.durations import read_last_stage_runs

TYPICAL = Path(__file__).with_name("typical_durations.json")  # written by `python -m benchmarks.profile --typical`
START = 2.5  # seconds of a stage that does nothing: its process, its imports, its records
SIMILAR = 3.0  # a run here with up to so many times more or less work is a better guide than the measured run
MODEL = ("pretrained.width", "pretrained.layers")
# A section, its usual source, and the stages whose work is what another source has.
OWN_DATA = (("demonstrations", "problems", ("sft",)), ("preferences", "annotator", ("reward_model", "dpo")))

# What a stage's time is in proportion to, by its name without the branch; any other takes what it took.
WORK: Mapping[str, tuple[str, ...]] = {
    "problems": ("problems.train",),
    "corpus": ("corpus.solutions",),
    "tokenizer": ("corpus.solutions",),
    "pretrained": ("pretrained.steps", "pretrained.batch_size", "pretrained.context", *MODEL),
    "sft": ("sft.demonstrations", "sft.epochs", *MODEL),
    "sft_control": ("sft_control.demonstrations", *MODEL),
    "responses": ("responses.prompts", "responses.samples", *MODEL),
    "reward_model": ("responses.prompts", "reward_model.epochs", *MODEL),
    "dpo": ("responses.prompts", "dpo.epochs", *MODEL),
    "rejection_sft": ("rejection_sft.prompts", "rejection_sft.samples", "rejection_sft.epochs", *MODEL),
    "reinforce": ("reinforce.steps", "reinforce.prompts_per_step", "reinforce.samples", *MODEL),
    "ppo": ("ppo.steps", "ppo.prompts_per_step", "ppo.samples", "ppo.epochs", *MODEL),
    "grpo": ("grpo.steps", "grpo.prompts_per_step", "grpo.samples", "grpo.updates", *MODEL),
    "evaluate": ("evaluate.problems", "evaluate.samples", *MODEL),
    "behaviour": ("behaviour.copies", "behaviour.horizon"),
    "bc": ("bc.steps",),
    "dqn": ("dqn.steps",),
    "cql": ("cql.steps",),
    "decision_transformer": ("decision_transformer.steps", "decision_transformer.width"),
    "returns": ("returns.episodes",),
    "behaviour_cloning": ("behaviour_cloning.epochs", "behaviour_cloning.width", "behaviour_cloning.layers"),
    "agents": ("agents.steps", "agents.games", "agents.episodes"),
    "agent_returns": ("agent_returns.games",),
}


class ExpectedDuration(NamedTuple):
    """Seconds that a stage will take, and whether they come from a run of it on this machine."""

    seconds: float
    measured_here: bool


class TypicalRun(NamedTuple):
    """One measured run of the defaults: seconds by stage, and the values of `WORK` that it had."""

    seconds: Mapping[str, float]
    params: Mapping[str, float]


@cache
def load_typical_run() -> TypicalRun:
    """The measured run of the defaults."""
    content = json.loads(TYPICAL.read_text())
    return TypicalRun(content["seconds"], content["params"])


def expect_stage_durations(root: Path, stages: Iterable[str], params: Mapping[str, Any]) -> dict[str, ExpectedDuration]:
    """How long each of `stages` will take with `params`, the content of params.yaml.

    Stages of which nothing is known are left out. Of a stage that works on a model or on data of the user's own, only
    runs here say how long it takes.
    """
    names = list(stages)
    last_runs = read_last_stage_runs(root, names)
    typical = load_typical_run()
    work = select_work_params(params)
    unknown = list_unmeasured_stages(params)
    expected: dict[str, ExpectedDuration] = {}
    for name in names:
        run = last_runs.get(name)
        factor = compute_work_factor(name, _read_numbers(run.params), work) if run else 0.0
        measured = None if name.partition("@")[0] in unknown else find_typical_seconds(name, typical)
        if run and (measured is None or 1 / SIMILAR <= factor <= SIMILAR):
            expected[name] = ExpectedDuration(scale_seconds(run.seconds, factor), measured_here=True)
        elif measured is not None:
            factor = compute_work_factor(name, typical.params, work)
            expected[name] = ExpectedDuration(scale_seconds(measured, factor), measured_here=False)
    return expected


def list_unmeasured_stages(params: Mapping[str, Any]) -> set[str]:
    """The stages that work on a model or on files of the user's own, of which the measured run says nothing."""
    stages: set[str] = set()
    if params.get("pretrained", {}).get("init", "scratch") != "scratch":
        stages |= {stage for stage, keys in WORK.items() if {*MODEL} & {*keys}}
    for section, usual, learners in OWN_DATA:
        if params.get(section, {}).get("source", usual) != usual:
            stages |= {*learners}
    return stages


def find_typical_seconds(stage: str, typical: TypicalRun) -> float | None:
    """Seconds of the stage in the measured run; of a branch that it did not have, the mean of the stage's others."""
    if stage in typical.seconds:
        return typical.seconds[stage]
    base = stage.partition("@")[0]
    others = [seconds for name, seconds in typical.seconds.items() if name.partition("@")[0] == base]
    return sum(others) / len(others) if others else None


def get_work_keys(stage: str) -> tuple[str, ...]:
    """The parameters that the stage's time is in proportion to."""
    return WORK.get(stage.partition("@")[0], ())


def compute_work_factor(stage: str, before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """How many times the work of `before` the stage does with the values `now`; keys that either lacks do not count."""
    return prod(now[key] / before[key] for key in get_work_keys(stage) if before.get(key) and now.get(key))


def scale_seconds(seconds: float, factor: float) -> float:
    """Seconds of a stage that has `factor` times as much to do."""
    start = min(seconds, START)
    return start + (seconds - start) * factor


def select_work_params(params: Mapping[str, Any]) -> dict[str, float]:
    """The values of params.yaml that `WORK` names, by dotted key."""
    keys = dict.fromkeys(key for keys in WORK.values() for key in keys)
    values: dict[str, float] = {}
    for key in keys:
        section, _, name = key.partition(".")
        value = params.get(section, {}).get(name)
        if isinstance(value, int | float):
            values[key] = value
    return values


def _read_numbers(params: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for key, text in params.items():
        try:
            numbers[key] = float(text)
        except ValueError:
            continue
    return numbers
