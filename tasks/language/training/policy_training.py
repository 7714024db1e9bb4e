"""How a policy is trained by reward, whatever the algorithm: sampling, judging, evaluating, keeping, resuming."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.algorithms.language.experience import Experience
from tasks.common import models, tables, tracking
from tasks.common.checkpoints import Best, ResumableTraining, Stateful, open_resumable_training
from tasks.common.config import build_settings
from tasks.common.errors import ConfigError
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.parts.policies import PolicyConfig
from tasks.language.rewards.answers import find_strict_answer_number
from tasks.language.tables.problems import Prompts
from tasks.language.training import trained_model
from tasks.language.training.environment import SamplingEnvironment
from tasks.language.training.judge import METRICS as JUDGE_METRICS
from tasks.language.training.judge import collect_further_columns, open_judge
from tasks.language.training.kept_rollouts import KeptRollouts
from tasks.language.training.trained_model import TrainedModel
from tasks.stage import Metrics

Fit = Callable[[int], Iterator[Row]]  # from a step on
Settings = TypeVar("Settings", bound=Any)
LATEST = "latest/"
METRICS = {  # besides the algorithm's
    "eval_reward": "The mean reward of one answer to each validation problem: what the policy is trained for. An "
    "answer without a reward counts 0, or as the lowest reward of the others where that is below 0.",
    "eval_reward/none": "The share of the answers to validation problems that have no reward, from 0 to 1.",
    "eval_accuracy": "The share of the validation problems whose final answer is right, from 0 to 1; if it falls "
    "while eval_reward rises, the reward is over-optimised. Only where some of them have an answer.",
    "eval_rubric": "The mean rubric points of the answers to validation problems over ten, from 0 to 1. Only where "
    "some of them have a worked solution that ends in `#### N`.",
    "completions/mean_length_right": "The mean length of the samples whose final answer is the reference's, in "
    "tokens; 0 in a step without.",
    "completions/mean_length_wrong": "The mean length of the other samples, in tokens; 0 in a step without. If "
    "they alone grow, the loss may favour long wrong answers (arXiv:2503.20783).",
    **JUDGE_METRICS,
}


@dataclass(frozen=True)
class Sources:
    """Where a policy stage reads: the SFT model, the prompts (to train on, and to validate with), reward model,
    functions in Python.
    """

    policy: Path
    mixture: Path
    reward_model: Path
    reward_files: Path


class Trainee:
    """A policy with its environments: `collect` samples for a step, `evaluate` judges it on validation problems; made
    by `trainee`.
    """

    def __init__(
        self,
        config: PolicyConfig,
        trained: TrainedModel[PretrainedCausalLM],
        tokenizer: Tokenizer,
        train: SamplingEnvironment,
        held_out: SamplingEnvironment,
        checkpoints: ResumableTraining | None = None,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.trained = trained
        self.policy = trained.model
        self.training_problems = train
        self.held_out = held_out
        self.checkpoints = checkpoints
        self.rollouts = KeptRollouts(config.steps, config.temperature)

    def collect(self, step: int, by_line: bool = False) -> Experience:
        """Judged responses to the step's prompts; some of them are kept with the run as a table now and then."""
        indices = self.training_problems.get_step_indices(step, self.config.prompts_per_step)
        experience = self.training_problems.sample(indices, self.config.samples, step, by_line)
        tracking.record_metrics(self.training_problems.judge.seconds(), step)
        if self.config.show_every and (step == 1 or step % self.config.show_every == 0):
            tracking.record_table(self.training_problems.shown(indices, experience), f"samples/step-{step:05d}.json")
        self.training_problems.check_unjudged_share(indices, experience)
        return replace(experience, logged={**experience.logged, **compute_mean_lengths_by_correctness(experience)})

    def collect_with_line_rewards(self, step: int) -> Experience:
        """The same, with rewards paid at the end of each line."""
        return self.collect(step, by_line=True)

    def evaluate(self) -> dict[str, float]:
        """Means over one response to each validation problem, the same draw each time.

        Accuracy and rubric are the gold standard: a policy that gains reward at their expense has over-optimised the
        reward. Problems without answers, or without worked solutions that end in `#### N`, have none.
        """
        rows = self.held_out.rows
        experience = self.held_out.sample(range(len(rows)), 1, 0)
        gold = {"eval_accuracy": "rewards/verifiable"} if any(row["answer"] for row in rows) else {}
        if any(find_strict_answer_number(row["solution"]) is not None for row in rows):
            gold["eval_rubric"] = "rewards/rubric"
        return {
            **compute_eval_reward_metrics(experience.rewards),
            **{name: experience.logged[part] for name, part in gold.items()},
        }

    def train(self, fit: Fit, state: Mapping[str, Stateful], out: Path, curves: Path) -> Metrics:
        """Drain `fit(start)`, which trains from step `start` + 1 on and shows `rollouts` its samples; the policy goes
        to `out` with the samples that were kept, the curve to `curves`.

        `state` is all that a step changes besides the policy. The metrics are means over the last tenth of the steps.
        """
        assert self.checkpoints is not None
        watch = Watch(self)
        rows = self.checkpoints.run(
            lambda start: watch(fit(start), start),
            {"policy": self.trained.weights, "watch": watch, "rollouts": self.rollouts, **state},
            self.config.steps,
        )
        watch.best.restore(self.trained.weights)
        tables.write_curves(rows, curves)
        self.trained.save(self.tokenizer, out)
        self.rollouts.write(out)
        metrics = tables.compute_final_metrics(rows)
        if (share := metrics["completions/clipped_ratio"]) > 0.5:
            print(
                f"{100 * share:.0f} % of the answers in the last tenth of the steps were cut off at max_new_tokens = "
                f"{self.config.max_new_tokens}",
                file=sys.stderr,
                flush=True,
            )
        return metrics


def compute_eval_reward_metrics(rewards: Tensor) -> dict[str, float]:
    """The mean of rewards (N,), nan for none, as METRICS has it: an answer that nobody could judge must not be the best
    of them.
    """
    judged = rewards[~rewards.isnan()]
    lowest = min(0.0, judged.min().item()) if len(judged) else 0.0
    return {
        "eval_reward": rewards.nan_to_num(lowest).mean().item(),
        "eval_reward/none": 1 - len(judged) / len(rewards),
    }


def compute_mean_lengths_by_correctness(experience: Experience) -> dict[str, float]:
    """The mean lengths of right and of other samples, as METRICS has them."""
    right = experience.parts["verifiable"] == 1
    tokens = experience.completions.mask.sum(1).float()
    groups = {"right": tokens[right], "wrong": tokens[~right]}
    return {
        f"completions/mean_length_{name}": group_lengths.mean().item() if len(group_lengths) else 0.0
        for name, group_lengths in groups.items()
    }


class Watch:
    """Evaluates at intervals and keeps the best weights; the rows in between repeat the last evaluation."""

    def __init__(self, trainee: Trainee) -> None:
        self.trainee = trainee
        self.config = trainee.config
        self.latest: dict[str, float] = {}
        self.best = Best()

    def __call__(self, rows: Iterator[Row], start: int) -> Iterator[Row]:
        """Pass the rows of the steps after `start` through, with what `Trainee.evaluate` found last."""
        every = self.config.evaluate_every
        if every and not start:
            self._evaluate()
        for step, row in enumerate(rows, start + 1):
            self.latest |= row
            if every and (step % every == 0 or step == self.config.steps):
                self._evaluate()
            yield dict(self.latest)

    def _evaluate(self) -> None:
        metrics = self.trainee.evaluate()
        self.latest |= metrics
        if self.config.keep == "best":
            self.best.update_if_better(metrics["eval_reward"], self.trainee.trained.weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The latest values and the best weights."""
        latest = {LATEST + name: torch.tensor(value, dtype=torch.float64) for name, value in self.latest.items()}
        return {**latest, **self.best.state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.latest = {name.removeprefix(LATEST): state[name].item() for name in state if name.startswith(LATEST)}
        self.best.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(LATEST)})


def build_algorithm_settings(config: PolicyConfig, kind: type[Settings]) -> Settings:
    """An algorithm's settings; its temperature is that of the distribution that is trained."""
    settings = build_settings(config, kind)
    return replace(settings, temperature=config.trained_temperature or config.temperature)


@contextmanager
def open_trainee(stage: str, config: PolicyConfig, sources: Sources) -> Iterator[Trainee]:
    """The policy of `sources` with what it is asked and how its answers are judged, until the block ends."""
    torch.manual_seed(config.seed)
    trained = trained_model.load_trainable_model(sources.policy, config.training, config.lora)
    tokenizer = models.load_tokenizer(sources.policy)
    prompts = tables.read_table(Prompts, sources.mixture / "prompts.parquet")
    held_out = tables.read_table(Prompts, sources.mixture / "validation.parquet").head(config.evaluate_prompts)
    if config.evaluate_every and held_out.empty:
        raise ConfigError(
            f"params.yaml: {stage}.evaluate_every: there are no held-out prompts to evaluate on; raise "
            "mixture.validation_share, or set 0 here"
        )
    kinds = {*prompts["reward"], *held_out["reward"]}
    columns = collect_further_columns(prompts)
    with (
        open_judge(config, kinds, tokenizer, sources.reward_model, sources.reward_files, columns) as judge,
        open_resumable_training(stage, config, *vars(sources).values()) as checkpoints,
    ):
        rounded = trained.rounded() if config.sampler_precision == "bf16" else None
        training = SamplingEnvironment(trained.model, tokenizer, prompts, judge, config, rounded)
        validating = SamplingEnvironment(trained.model, tokenizer, held_out, judge.copy_with_rubric(), config)
        yield Trainee(config, trained, tokenizer, training, validating, checkpoints)
