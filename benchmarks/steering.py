"""Positive-review steering with the KL in the reward and without, over seeds: `python -m benchmarks.steering [SEED ..]
--scratch FOLDER`.

The settings are those of preset `reviews`. Each seed has a language model of reviews, two classifiers and a policy
for each method, with and without the KL. A cell that is in benchmarks/results/steering.json is not measured again. Of
that file benchmarks/steering.md is made (benchmarks/claims.py), and
tasks/extensions/reviews/reviews.png by benchmarks/steering_picture.py.
"""

import argparse
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml

from benchmarks.steering_results import CELLS, METHODS, ROOT, load_steering_results, save_steering_cell
from tasks.common import models, tables
from tasks.common.config import Config
from tasks.common.estimates import Estimate
from tasks.extensions.reviews import continuations, measures, reviews, steering
from tasks.extensions.reviews.configs.reviews import ReviewsConfig
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.extensions.reviews.tables.reviews import Reviews
from tasks.language import (
    corpus,
    demonstrations,
    grpo,
    mixture,
    ppo,
    pretrained,
    problems,
    reinforce,
    reward_model,
    sft,
    solutions,
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
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.configs.sft import SftConfig
from tasks.language.configs.solutions import SolutionsConfig
from tasks.language.configs.tokenizer import TokenizerConfig

PRESET = "tasks/extensions/reviews/presets/reviews.yaml"
KL_KEYS = {"reinforce": "kl_coefficient", "ppo": "kl_coefficient", "grpo": "beta"}
C = TypeVar("C", bound=Config)


def build_stage_config(kind: type[C], section: str, seed: int, **changes: Any) -> C:
    """The section of params.yaml with the preset laid over it, this seed, and changes."""
    given, preset = (yaml.safe_load((ROOT / file).read_text()).get(section, {}) for file in ("params.yaml", PRESET))
    own = {**given, **preset, **changes, **({"seed": seed} if "seed" in given else {})}
    return kind.model_validate(own)


def run_upstream_stages(seed: int, data: Path) -> None:
    """The language model of reviews, the classifier in the reward and the openings to steer from, once a seed."""
    none = data / "none"
    curves = data / "curves"
    if (data / "reward_model/config.json").is_file():
        return
    reviews.run(build_stage_config(ReviewsConfig, "reviews", seed), none, data / "reviews")
    problems.run(build_stage_config(ProblemsConfig, "problems", seed), data / "reviews/prompts", data / "problems")
    corpus.run(
        build_stage_config(CorpusConfig, "corpus", seed), data / "problems", data / "reviews/corpus", data / "corpus"
    )
    words = build_stage_config(TokenizerConfig, "tokenizer", seed)
    tokenizer.run(words, data / "corpus", data / "problems", data / "tokenizer")
    demonstrations.run(
        build_stage_config(DemonstrationsConfig, "demonstrations", seed),
        data / "problems",
        none,
        data / "demonstrations",
    )
    model = build_stage_config(PretrainedConfig, "pretrained", seed)
    pretrained.run(model, data / "corpus", data / "tokenizer", none, data / "pretrained", curves / "pretrained.csv")
    tuned = build_stage_config(SftConfig, "sft", seed)
    sft.run(tuned, data / "pretrained", data / "demonstrations", data / "sft", curves / "sft.csv")
    mixture.run(build_stage_config(MixtureConfig, "mixture", seed), data / "problems", none, data / "mixture")
    labels = data / "reviews/labelled"
    own = build_stage_config(SolutionsConfig, "solutions", seed)
    solutions.run(own, data / "sft", labels, data / "problems", none, data / "solutions")
    judge = build_stage_config(RewardModelConfig, "reward_model", seed)
    reward_model.run(judge, data / "sft", data / "solutions", data / "reward_model", curves / "reward_model.csv")


def train_policy(seed: int, data: Path, method: str, with_kl: bool) -> Path:
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
    run(build_stage_config(kind, stage, seed, **changes), *sources, out, data / "curves" / f"{out.name}.csv")
    return out


class Measurement:
    """What all policies of a seed are measured by."""

    def __init__(self, seed: int, data: Path) -> None:
        self.config = build_stage_config(SteeringConfig, "steering", seed)
        labelled = tables.read_table(Reviews, data / "reviews/reviews.parquet")
        second = steering.fit_second_classifier(self.config, labelled[labelled["part"] == "second"])
        self.judges = continuations.load_judges(data / "sft", data / "reward_model", second)
        self.asked = continuations.load_test_openings(self.config, data / "problems")
        self.praise = second.praise(steering.PRAISE)
        held_out = labelled[labelled["part"] == "held_out"]
        self.classifiers = steering.estimate_classifier_accuracies(
            held_out, continuations.compute_classifier_probabilities(self.judges, held_out)
        )
        self.sft = self.values(data / "sft")[0]

    def values(self, policy: Path) -> tuple[Any, str]:
        """The sums of each opening, and the commonest sentence."""
        found = continuations.sample_and_score_continuations(
            self.config, policy.name, models.load_model(policy), self.asked, self.judges
        )
        return measures.aggregate_by_opening(found, self.praise), measures.find_commonest_sentence(
            found["continuation"].tolist()
        )


def run_seed(seed: int, data: Path, only: Collection[str]) -> None:
    """The cells of a seed that are asked for and not measured yet."""
    data.mkdir(parents=True, exist_ok=True)
    os.chdir(data)  # where trainings keep their checkpoints
    run_upstream_stages(seed, data)
    own = Measurement(seed, data)
    measured = measures.estimate_policy_measures(own.config, own.sft, own.sft)
    save_steering_cell(
        "classifiers", seed, {name: [one.mean, one.low, one.high] for name, one in own.classifiers.items()}
    )
    save_steering_cell("SFT", seed, convert_estimates_to_lists(measured))
    for name, (method, with_kl) in CELLS.items():
        if name not in only or str(seed) in load_steering_results().get(name, {}):
            continue
        before = time.process_time()
        policy = train_policy(seed, data, method, with_kl)
        seconds = time.process_time() - before
        values, top = own.values(policy)
        more = {"commonest_sentence": top, "cpu_seconds": round(seconds, 1)}
        save_steering_cell(
            name,
            seed,
            {**convert_estimates_to_lists(measures.estimate_policy_measures(own.config, values, own.sft)), **more},
            values.to_dict("list"),
        )


def convert_estimates_to_lists(measured: Mapping[str, Estimate]) -> dict[str, Any]:
    """Measures as lists of mean, low and high."""
    return {name: [one.mean, one.low, one.high] for name, one in measured.items()}


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
