"""DPO: fit the policy to preference pairs without a reward model (arXiv:2305.18290, eq. 7)."""

from pathlib import Path

import torch
from pydantic import Field

from tasks import artifacts
from tasks.algorithms import dpo
from tasks.algorithms.optimizer import Optimizer
from tasks.comparisons import ComparisonSet
from tasks.schemas import Comparisons
from tasks.stage import Config, Metrics, main
from tasks.tracking import track

REFERENCE_BATCH = 64  # responses at a time; changes speed only


class DpoConfig(Config):
    """How strongly the policy is pulled to its reference, and how it is trained."""

    seed: int
    beta: float = Field(gt=0)  # pull towards the reference; small trusts the pairs more
    epochs: int = Field(ge=1)
    prompts_per_batch: int = Field(ge=1)  # all pairs of a prompt stand in one batch
    learning_rate: float = Field(gt=0)
    clip: float = Field(gt=0)


def run(config: DpoConfig, policy: Path, preferences: Path, out: Path, curves: Path) -> Metrics:
    """Train `policy`, which is its own reference; write it to `out`, and the curve to `curves`."""
    torch.manual_seed(config.seed)
    model, tokenizer = artifacts.load_model(policy), artifacts.load_tokenizer(policy)
    pairs = ComparisonSet(artifacts.read(Comparisons, preferences / "train.parquet"), tokenizer)
    reference = dpo.reference_logps(model, pairs.responses(REFERENCE_BATCH))
    steps = pairs.steps(config.prompts_per_batch, config.epochs)
    optimizer = Optimizer(model, config.learning_rate, steps, clip=config.clip, warmup=0.1)
    batches = pairs.batches(config.prompts_per_batch, config.epochs, config.seed)
    curve = track(dpo.fit(model, batches, optimizer, reference=reference, beta=config.beta), steps)
    artifacts.write_curves(curve, curves)
    artifacts.save_model(model, tokenizer, out)
    last = curve[-max(1, len(curve) // 10) :]
    return {name: sum(row[name] for row in last) / len(last) for name in last[0]}


if __name__ == "__main__":
    main(run)
