"""What the offline learners share: every variant and seed of a method trained in turn, its curve and its policies kept.

`out` gets curves.csv (a row a variant, seed and `log_every` steps), returns.csv (of the evaluations on the way) and a
folder <variant>/seed-<n> for each policy (tasks/offline/policies/files.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Protocol

import pandas as pd
import torch
from torch import Tensor

from tasks.algorithms.offline.half_precision import iterate_under_autocast
from tasks.common import models, tables
from tasks.common.checkpoints import ResumableTraining, State, open_resumable_training
from tasks.common.tracking import Row, show_progress_as_part
from tasks.offline.configs.learners import LearnerConfig
from tasks.offline.datasets.dataset_files import StoredDataset, read_offline_dataset
from tasks.offline.environments.rollouts import (
    EVALUATION_SEED,
    Memoryless,
    Targeted,
    play_seeded_episodes,
    wrap_as_player,
)
from tasks.offline.policies import files
from tasks.offline.training import mean_metrics
from tasks.stage import Metrics


class SavedMemoryless(files.Saved, Memoryless, Protocol):
    """A policy that plays without a target."""


class SavedTargeted(files.Saved, Targeted, Protocol):
    """A policy that is asked for a return."""


@dataclass(frozen=True)
class Learner:
    """One variant of a method with one seed: the policy, all that a step changes, and the steps, without end."""

    policy: SavedMemoryless | SavedTargeted
    state: State
    steps: Iterable[Mapping[str, Tensor]]


RETURN = "return"
STEP = {"step": "The gradient steps done."}
METRICS = {
    RETURN: "The mean return of some episodes played with the policy at this step, in the environment's own units."
}
VALUE_METRICS = {  # of policies with Q-values
    "initial_value": "The mean of max Q at some episodes' first observations: the discounted return that the "
    "policy predicts, often too high.",
}
STARTS = 32  # initial observations, at most, whose value is followed while learning

Build = Callable[[StoredDataset, int, torch.Generator], Learner]


def train_all_variants(
    stage: str, config: LearnerConfig, transitions: Path, out: Path, variants: Mapping[str, Build], *others: Path
) -> Metrics:
    """Train every variant with every seed on the data set at `transitions`; the metrics are means over seeds of each
    last row.

    A variant is built with torch's own generator seeded, and given a generator of its own to draw batches from. The
    data lies on the stage's device (tasks/common/models.py), where the variant puts its networks too; both generators
    are the CPU's, so that seeds mean the same on all devices. `others` are the files besides the data set that it
    reads. A killed stage goes on with the seed that it was at.
    """
    dataset = read_offline_dataset(transitions)
    dataset = replace(dataset, transitions=dataset.transitions.to(models.choose_device()))
    tasks = [(variant, seed) for variant in variants for seed in config.seeds]
    curves = []
    ends = dict[str, list[Mapping[str, float]]]()
    with ExitStack() as trainings:  # checkpoints of seeds that are done stay until all are
        for number, (variant, seed) in enumerate(tasks):
            name = f"{variant}/seed-{seed}"
            checkpoint_name = f"{stage}-{out.name}-{name.replace('/', '-')}"
            training = trainings.enter_context(open_resumable_training(checkpoint_name, config, transitions, *others))
            with show_progress_as_part(number, len(tasks)):
                rows = _train_variant(training, name, config, dataset, seed, variants[variant], out)
            curves += [{"variant": variant, "seed": seed, **row} for row in rows]
            ends.setdefault(variant, []).append(rows[-1])
        table = pd.DataFrame(curves)
        table.drop(columns=RETURN).to_csv(out / "curves.csv", index=False)
        table.dropna(subset=RETURN)[["variant", "seed", "step", RETURN]].to_csv(out / "returns.csv", index=False)
        # Each variant by itself: it has metrics that others may lack, such as the loss of text.
        return {variant: tables.compute_mean_row(rows) for variant, rows in ends.items()}


def _train_variant(
    training: ResumableTraining,
    name: str,
    config: LearnerConfig,
    dataset: StoredDataset,
    seed: int,
    build: Build,
    out: Path,
) -> list[Row]:
    """One variant with one seed: its rows, each with the gradient step it ends at; the policy goes to out/name.

    Of a policy with Q-values each row has the `initial_value` (VALUE_METRICS), which makes over-estimation visible
    beside its discounted returns.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    learner = build(dataset, seed, generator)
    total = ceil(config.steps / config.log_every)
    data = dataset.transitions
    starts = data.observations[data.starts[:: max(1, len(data.lengths) // STARTS)][:STARTS]]

    def fit(start: int) -> Iterator[Row]:
        left = max(0, config.steps - start * config.log_every)
        steps = islice(iterate_under_autocast(learner.steps, data.device, config.bfloat16), left)
        for number, row in enumerate(mean_metrics.iterate_mean_step_metrics(steps, config.log_every), start + 1):
            row["step"] = min(number * config.log_every, config.steps)
            if files.has_value_estimates(learner.policy):
                row["initial_value"] = learner.policy.values(starts).mean().item()
            if number % config.evaluate_every == 0 or number == total:
                played = play_seeded_episodes(
                    dataset.environment, wrap_as_player(learner.policy), config.evaluate_episodes, EVALUATION_SEED
                )
                row[RETURN] = played.returns.mean()
            yield {f"{name}/{metric}": value for metric, value in row.items()}

    rows = training.run(fit, {**learner.state, "batches": generator}, total, ended=True, steps_a_row=config.log_every)
    files.save_policy(learner.policy, out / name)
    return [{metric.removeprefix(f"{name}/"): value for metric, value in row.items()} for row in rows]
