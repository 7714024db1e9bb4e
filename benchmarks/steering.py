"""Positive-review steering with the KL in the reward and without, over seeds: `python -m benchmarks.steering [SEED ..]
--scratch FOLDER`.

The settings are those of presets/reviews.yaml. Each seed has a language model of reviews, two classifiers and a policy
for each method, with and without the KL. A cell that is in benchmarks/results/steering.json is not measured again. Of
that file benchmarks/steering.md is made (benchmarks/claims.py), and docs/reviews.png by benchmarks/steering_picture.py.
"""

import argparse
import fcntl
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml

from benchmarks import result_files
from benchmarks import tables as page_tables
from tasks.common import estimates, models, tables
from tasks.common.config import Config
from tasks.common.estimates import Estimate
from tasks.language import (
    corpus,
    demonstrations,
    grpo,
    mixture,
    ppo,
    pretrained,
    problems,
    reinforce,
    reviews,
    reward_model,
    sft,
    solutions,
    steering,
    tokenizer,
)
from tasks.language.configs.corpus import CorpusConfig
from tasks.language.configs.demonstrations import DemonstrationsConfig
from tasks.language.configs.grpo import GrpoConfig
from tasks.language.configs.mixture import MixtureConfig
from tasks.language.configs.ppo import PpoConfig
from tasks.language.configs.pretrained import PretrainedConfig
from tasks.language.configs.problems import ProblemsConfig
from tasks.language.configs.reinforce import ReinforceConfig
from tasks.extensions.reviews.configs.reviews import ReviewsConfig
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.configs.sft import SftConfig
from tasks.language.configs.solutions import SolutionsConfig
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.language.configs.tokenizer import TokenizerConfig
from tasks.extensions.reviews import continuations, measures
from tasks.extensions.reviews.tables.reviews import Reviews

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/steering.json"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> the stage, and what differs from the preset
    "REINFORCE": ("reinforce", {}),
    "A2C": ("reinforce", {"baseline": "critic"}),
    "PPO": ("ppo", {}),
    "GRPO": ("grpo", {}),
}
KL_KEYS = {"reinforce": "kl_coefficient", "ppo": "kl_coefficient", "grpo": "beta"}
WITH, WITHOUT = "KL in the reward", "no KL"
CELLS = {
    f"{method}, {WITH if with_kl else WITHOUT}": (method, with_kl) for with_kl in (True, False) for method in METHODS
}
COLUMNS = {
    "positive/first": ("positive, by the reward", 100, "{:.1f} %"),
    "positive/second": ("positive, by the second", 100, "{:.1f} %"),
    "gap": ("gap, points", 100, "{:+.1f}"),
    "kl": ("KL, nats", 1, "{:.2f}"),
    "perplexity": ("perplexity under SFT", 1, "{:.2f}"),
    "distinct_2": ("distinct pairs", 100, "{:.1f} %"),
    "commonest": ("commonest sentence", 100, "{:.1f} %"),
    "tokens": ("tokens", 1, "{:.1f}"),
}
LONGEST = 60  # characters shown of a sentence
C = TypeVar("C", bound=Config)
Results = dict[str, dict[str, Any]]


def settings(kind: type[C], section: str, seed: int, **changes: Any) -> C:
    """The section of params.yaml with the preset laid over it, this seed, and changes."""
    given, preset = (
        yaml.safe_load((ROOT / file).read_text()).get(section, {}) for file in ("params.yaml", "presets/reviews.yaml")
    )
    own = {**given, **preset, **changes, **({"seed": seed} if "seed" in given else {})}
    return kind.model_validate(own)


def upstream(seed: int, data: Path) -> None:
    """The language model of reviews, the classifier in the reward and the openings to steer from, once a seed."""
    none, curves = data / "none", data / "curves"
    if (data / "reward_model/config.json").is_file():
        return
    reviews.run(settings(ReviewsConfig, "reviews", seed), none, data / "reviews")
    problems.run(settings(ProblemsConfig, "problems", seed), data / "reviews/prompts", data / "problems")
    corpus.run(settings(CorpusConfig, "corpus", seed), data / "problems", data / "reviews/corpus", data / "corpus")
    words = settings(TokenizerConfig, "tokenizer", seed)
    tokenizer.run(words, data / "corpus", data / "problems", data / "tokenizer")
    demonstrations.run(
        settings(DemonstrationsConfig, "demonstrations", seed), data / "problems", none, data / "demonstrations"
    )
    model = settings(PretrainedConfig, "pretrained", seed)
    pretrained.run(model, data / "corpus", data / "tokenizer", none, data / "pretrained", curves / "pretrained.csv")
    tuned = settings(SftConfig, "sft", seed)
    sft.run(tuned, data / "pretrained", data / "demonstrations", data / "sft", curves / "sft.csv")
    mixture.run(settings(MixtureConfig, "mixture", seed), data / "problems", none, data / "mixture")
    labels = data / "reviews/labelled"
    own = settings(SolutionsConfig, "solutions", seed)
    solutions.run(own, data / "sft", labels, data / "problems", none, data / "solutions")
    judge = settings(RewardModelConfig, "reward_model", seed)
    reward_model.run(judge, data / "sft", data / "solutions", data / "reward_model", curves / "reward_model.csv")


def train(seed: int, data: Path, method: str, with_kl: bool) -> Path:
    """The folder of a policy."""
    stage, changes = METHODS[method]
    changes = {**changes, **({} if with_kl else {KL_KEYS[stage]: 0.0})}
    out = data / "policies" / f"{method}-{'kl' if with_kl else 'none'}"
    runs: dict[str, tuple[Callable[..., Any], type[Config]]] = {
        "reinforce": (reinforce.run, ReinforceConfig),
        "ppo": (ppo.run, PpoConfig),
        "grpo": (grpo.run, GrpoConfig),
    }
    run, kind = runs[stage]
    sources = (data / "sft", data / "mixture", data / "reward_model", data / "none")
    run(settings(kind, stage, seed, **changes), *sources, out, data / "curves" / f"{out.name}.csv")
    return out


class Measurement:
    """What all policies of a seed are measured by."""

    def __init__(self, seed: int, data: Path) -> None:
        self.config = settings(SteeringConfig, "steering", seed)
        labelled = tables.read(Reviews, data / "reviews/reviews.parquet")
        second = steering.second_classifier(self.config, labelled[labelled["part"] == "second"])
        self.judges = continuations.load(data / "sft", data / "reward_model", second)
        self.asked, self.praise = continuations.openings(self.config, data / "problems"), second.praise(steering.PRAISE)
        held_out = labelled[labelled["part"] == "held_out"]
        self.classifiers = steering.accuracies(held_out, continuations.probabilities(self.judges, held_out))
        self.sft = self.values(data / "sft")[0]

    def values(self, policy: Path) -> tuple[Any, str]:
        """The sums of each opening, and the commonest sentence."""
        found = continuations.continued(self.config, policy.name, models.load_model(policy), self.asked, self.judges)
        return measures.by_opening(found, self.praise), measures.commonest(found["continuation"].tolist())


def run_seed(seed: int, data: Path, only: Collection[str]) -> None:
    """The cells of a seed that are asked for and not measured yet."""
    data.mkdir(parents=True, exist_ok=True)
    os.chdir(data)  # where trainings keep their checkpoints
    upstream(seed, data)
    own = Measurement(seed, data)
    measured = measures.measured(own.config, own.sft, own.sft)
    keep("classifiers", seed, {name: [one.mean, one.low, one.high] for name, one in own.classifiers.items()})
    keep("SFT", seed, row(measured))
    for name, (method, with_kl) in CELLS.items():
        if name not in only or str(seed) in read().get(name, {}):
            continue
        before = time.process_time()
        policy = train(seed, data, method, with_kl)
        seconds = time.process_time() - before
        values, top = own.values(policy)
        more = {"commonest_sentence": top, "cpu_seconds": round(seconds, 1)}
        keep(name, seed, {**row(measures.measured(own.config, values, own.sft)), **more}, values.to_dict("list"))


def row(measured: Mapping[str, Estimate]) -> dict[str, Any]:
    """Measures as lists of mean, low and high."""
    return {name: [one.mean, one.low, one.high] for name, one in measured.items()}


def read() -> Results:
    """All that is measured."""
    found: Results = result_files.load(RESULTS, {})
    return found


def keep(name: str, seed: int, found: dict[str, Any], single: Mapping[str, Any] | None = None) -> None:
    """Add a cell, with the sums of each opening; seeds that run side by side take turns."""
    folder = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        results = read()
        results.setdefault(name, {})[str(seed)] = found
        result_files.write(RESULTS, results, {f"{name} / {seed}": single} if single else None, adds=True)
    finally:
        os.close(folder)


def over_seeds(values: list[float]) -> Estimate:
    """The mean over seeds with Student's 95 % interval; a single seed has none."""
    return estimates.over_seeds(values) if len(values) > 1 else Estimate(values[0], values[0], values[0])


def summary(results: Mapping[str, Mapping[str, Any]], *columns: str) -> str:
    """A row for each policy: means over seeds with their intervals, of all columns or of these."""
    heads = [head for head, _, _ in COLUMNS.values()]
    rows = [["policy", "seeds", *heads]]
    for name, cells in ((name, results.get(name, {})) for name in ("SFT", *CELLS)):
        if cells:
            means = [over_seeds([cell[key][0] for cell in cells.values()]) for key in COLUMNS]
            shown = [interval(mean, key) for mean, key in zip(means, COLUMNS, strict=True)]
            rows.append([name, str(len(cells)), *shown])
    return page_tables.rows(page_tables.select(rows, columns or ("seeds", *heads)))


def render(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: means over seeds with their intervals, then every cell."""
    names = ["SFT", *CELLS]
    heads = [head for head, _, _ in COLUMNS.values()]
    lines = [
        "# Positive-review steering",
        "",
        "Made by `python -m benchmarks.steering`: presets/reviews.yaml, with the KL in the reward as there and "
        f"without, {PLAIN}",
        "",
        "## Over seeds",
        "",
        "Means over seeds with Student's 95 % intervals.",
        "",
        summary(results).removesuffix("\n"),
    ]
    lines += ["", "## Every seed", "", "Means over openings with 95 % intervals.", ""]
    lines += [
        f"| policy | seed | {' | '.join(heads)} | which sentence | CPU |",
        "|---|---|" + "---|" * (len(heads) + 2),
    ]
    for name in names:
        for seed, cell in sorted(results.get(name, {}).items()):
            shown = [interval(Estimate(*cell[key]), key) for key in COLUMNS]
            seconds = f"{cell['cpu_seconds']:.0f}" if "cpu_seconds" in cell else ""
            lines.append(
                f"| {name} | {seed} | {' | '.join(shown)} | {cell.get('commonest_sentence', '')[:LONGEST]} | "
                f"{seconds} |"
            )
    lines += ["", "## The classifiers", "", "| seed | in the reward | second |", "|---|---|---|"]
    for seed, cell in sorted(results.get("classifiers", {}).items()):
        shown = [interval(Estimate(*cell[name]), "positive/first") for name in ("first", "second")]
        lines.append(f"| {seed} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


PLAIN = (
    "four samples at temperature 1 of each of 300 openings. The gap is the share of positive continuations by the "
    "classifier in the "
    "reward minus that by the second. Distinct pairs are those of an opening's samples. CPU: seconds of one core "
    "for the training."
)


def interval(value: Estimate, key: str) -> str:
    """A mean with its bounds, in the column's unit."""
    _, scale, form = COLUMNS[key]
    low, high = (form.format(round(scale * one, 2) + 0.0).removesuffix(" %") for one in (value.low, value.high))
    return f"{form.format(round(scale * value.mean, 2) + 0.0)} [{low}, {high}]"


def main() -> None:
    """Run the seeds of the command line, or 0, 1 and 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steering", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for data, which is kept")
    parser.add_argument(
        "--only", nargs="+", choices=CELLS, default=[*CELLS], metavar="CELL", help="such as 'PPO, no KL'"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    scratch = given.scratch.absolute()
    for seed in given.seeds:
        run_seed(seed, scratch / f"seed-{seed}", given.only)


if __name__ == "__main__":
    main()
