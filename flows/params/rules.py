"""What must fit together, between keys, sections, the graph and files, for a stage to come to its end.

One value by itself is checked by the schema (flows/params/checking.py); what is here would be told by a stage only after others
have run, hours later perhaps. Each rule is a function that yields the key at fault and what was expected.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import Any

from flows.params.checking import PARAMS, ParameterError, shown, suggestion

# What each method of the offline flow calls its policies, where params.yaml does not.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "tabular_q": ("Q-learning",),
    "awr": ("AWR",),
    "bear": ("BEAR",),
    "brac": ("BRAC-v",),
}
NAMED_BY = {"bc": "shares", "dqn": "variants", "cql": "alphas", "decision_transformer": "inits"}
OF_THE_DATA = ("data mean", "data best", "greedy behaviour")
Fault = tuple[str, str]  # a dotted key, and what was expected of it


@dataclass(frozen=True)
class Given:
    """All that is known before a run."""

    params: Mapping[str, Any]
    stages: Collection[str]  # that are needed, up to date or not, as stage or stage@branch
    root: Path


def check(given: Given) -> None:
    """Raise ParameterError for the first fault in the section of a stage that is needed."""
    needed = {name.split("@")[0] for name in given.stages}
    for section, rule in RULES:
        if section in needed:
            with suppress(KeyError):  # a section that lacks what a rule reads is of another pipeline than this one
                for key, expected in rule(given, given.params[section]):
                    raise ParameterError(f"{PARAMS}: {section}.{key}: {expected}")


def heads(_: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """Attention splits the width among its heads; their rotary embeddings turn pairs."""
    if own.get("init", "scratch") == "scratch" and own["width"] % (2 * own["heads"]):
        yield "heads", f"expected twice its number to divide width = {own['width']}, got {own['heads']}"


def heads_of_a_new_trunk(_: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """A trunk from a language model has its own sizes."""
    if "language" not in own["inits"].values() and own["width"] % own["heads"]:
        yield "heads", f"expected a divisor of width = {own['width']}, got {own['heads']}"


def pass_at(_: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """pass@k needs k samples."""
    for k in own["pass_at"]:
        if k > own["samples"]:
            yield "pass_at", f"expected at most evaluate.samples = {own['samples']}, got {k}"


def minibatches(_: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """No minibatch is empty."""
    answers = own["prompts_per_step"] * own["samples"]
    if own["minibatches"] > answers:
        yield "minibatches", f"expected at most prompts_per_step x samples = {answers}, got {own['minibatches']}"


def reported_policies(given: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """The report compares policies that are evaluated, one of them the baseline."""
    known = [name.partition("@")[2] for name in given.stages if name.startswith("evaluate@")]
    for name in own["policies"]:
        if name not in known:
            yield "policies", f"expected policies that dvc.yaml evaluates{suggestion(name, known)}, got {shown(name)}"
    if own["baseline"] not in own["policies"]:
        yield "baseline", f"expected one of report.policies, got {shown(own['baseline'])}"


def reward_model(given: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """Where a reward model's score counts, there is one: another stage's, or a model in the folder."""
    path, counts = str(own["reward_model_path"]), own["reward"]["reward_model"]
    mixed = any(one["reward"] == "reward_model" for one in given.params["mixture"]["datasets"])
    made = {f"data/{name.replace('@', '/')}" for name in given.stages}
    if (counts or mixed) and path not in made and not (given.root / path / "config.json").is_file():
        why = "reward.reward_model counts" if counts else "a data set of the mixture asks it"
        expected = f"expected a folder with a model, since {why} (such as data/reward_model)"
        yield "reward_model_path", f"{expected}, got {shown(path)}"


def passed_over(given: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """Of generated problems it is known how many there are; of files and the hub it is not."""
    problems, uses = given.params["problems"], own.get("datasets", [{"source": "problems"}])
    known = problems["source"] == "generated" and any(one["source"] == "problems" for one in uses)
    if known and own["skip"] >= problems["train"]:
        yield "skip", f"expected less than problems.train = {problems['train']}, got {own['skip']}"


def mixed_sets(given: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """Data sets are told apart by their names, and files are below the folder where changes are noticed."""
    names = [one["name"] for one in own["datasets"]]
    for number, one in enumerate(own["datasets"]):
        if one["name"] in names[:number]:
            yield f"datasets.{number}.name", f"expected different names, got {shown(one['name'])} twice"
        if one["source"] == "file":
            yield from _below(given.root, own["path"], one["location"], f"datasets.{number}.location", "mixture.path")


def imported_sets(given: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """Files are below the folder where changes are noticed."""
    for name, one in own["datasets"].items():
        if one["source"] in ("minari", "d4rl"):
            key = f"datasets.{name}.location"
            yield from _below(given.root, own["path"], one["location"], key, "transitions.path")


def measured_policies(given: Given, own: Mapping[str, Any]) -> Iterator[Fault]:
    """An expectation is about policies that are measured on its data set, or about the data itself."""
    known: dict[str, list[str]] = {}
    for one in own["policies"].values():
        named = NAMED_BY.get(one["method"])
        variants = given.params[one["method"]][named] if named else VARIANTS[one["method"]]
        known.setdefault(one["dataset"], []).extend(variants)
    for number, expected in enumerate(own["expectations"]):
        data = expected["dataset"]
        if data not in known:
            measured = f"expected a data set of offline_report.policies{suggestion(data, [*known])}"
            yield f"expectations.{number}.dataset", f"{measured}, got {shown(data)}"
            continue
        names = [*known[data], *OF_THE_DATA]
        for side in ("higher", "lower"):
            if expected[side] not in names:
                what = f"expected a policy measured on {data}{suggestion(expected[side], names)}"
                yield f"expectations.{number}.{side}", f"{what}, got {shown(expected[side])}"


def _below(root: Path, folder: str, location: str, key: str, whose: str) -> Iterator[Fault]:
    home = Path(normpath(root / folder))  # by its name: a link below it may lead to data elsewhere
    place = Path(normpath(home / location))
    if not place.is_relative_to(home):
        yield key, f"expected a place below {whose}, where changes are noticed, got {shown(location)}"
    elif not place.exists():
        yield key, f"{folder}/{location} does not exist"


RULES = (
    ("pretrained", heads),
    ("decision_transformer", heads_of_a_new_trunk),
    ("evaluate", pass_at),
    ("ppo", minibatches),
    ("report", reported_policies),
    ("responses", passed_over),
    ("mixture", passed_over),
    ("mixture", mixed_sets),
    *((name, reward_model) for name in ("rejection_sft", "reinforce", "ppo", "grpo")),
    ("transitions", imported_sets),
    ("offline_report", measured_policies),
)
