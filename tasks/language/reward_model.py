"""A reward model on preference pairs (Bradley-Terry), with accuracy and calibration on prompts it has not seen."""

from collections.abc import Iterator
from pathlib import Path

import torch
from pydantic import Field

from tasks import artifacts
from tasks.algorithms import reward_model
from tasks.algorithms.optimizer import Optimizer
from tasks.comparisons import ComparisonSet
from tasks.schemas import Comparisons
from tasks.stage import Config, Metrics, main
from tasks.tracking import Row
from tasks.training import resumable

BINS = 10  # of the calibration curve


class RewardModelConfig(Config):
    """How the reward model is trained."""

    seed: int
    epochs: int = Field(ge=1)
    prompts_per_batch: int = Field(ge=1)  # all pairs of a prompt stand in one batch
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    centering: float = Field(ge=0)  # weight of the mean squared sum of a pair's scores
    margin: float = Field(ge=0)  # asked of strong preferences over slight ones (arXiv:2307.09288, eq. 2); 0 for none
    clip: float = Field(gt=0)


def run(config: RewardModelConfig, policy: Path, preferences: Path, out: Path, curves: Path) -> Metrics:
    """Start from `policy` with a new head; write the model, calibration.csv beside it, and the curve to `curves`."""
    torch.manual_seed(config.seed)
    model, tokenizer = artifacts.load_reward_model(policy), artifacts.load_tokenizer(policy)
    model.config.pad_token_id = tokenizer.pad_token_id
    reward_model.initialise_head(model, torch.Generator().manual_seed(config.seed))
    train, test = (
        ComparisonSet(artifacts.read(Comparisons, preferences / f"{split}.parquet"), tokenizer)
        for split in ("train", "test")
    )
    for compared in (train, test):
        compared.check_positions(model)
    steps = train.steps(config.prompts_per_batch, config.epochs)
    optimizer = Optimizer(model, config.learning_rate, steps, clip=config.clip, weight_decay=config.weight_decay)

    def fit(start: int) -> Iterator[Row]:
        batches = train.batches(config.prompts_per_batch, config.epochs, config.seed, start)
        return reward_model.fit(model, batches, optimizer, margin=config.margin, centering=config.centering)

    with resumable("reward_model", config, policy, preferences) as training:
        rows = training.run(fit, {"model": model, "optimizer": optimizer}, steps)
        artifacts.write_curves(rows, curves)
        artifacts.save_model(model, tokenizer, out)
        margins = reward_model.margins(model, test.batches(config.prompts_per_batch, 1, config.seed)).double()
        artifacts.write_curves(reward_model.calibration(margins, BINS), out / "calibration.csv")
    return {
        "accuracy": (margins > 0).double().mean().item(),
        "loss": torch.nn.functional.softplus(-margins).mean().item(),
        "margin": margins.mean().item(),
        "pairs": len(margins),
    }


if __name__ == "__main__":
    main(run)
