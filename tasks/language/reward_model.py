"""A reward model on preference pairs (Bradley-Terry), with accuracy and calibration on prompts it has not seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pydantic import Field

from tasks import artifacts, prompts
from tasks.algorithms import reward_model
from tasks.algorithms.logprobs import batches_per_run, make_batch, shuffled
from tasks.algorithms.optimizer import Optimizer
from tasks.schemas import STRENGTHS, Comparisons
from tasks.stage import Config, Metrics, main
from tasks.tracking import track

BINS = 10  # of the calibration curve
STRONG = (STRENGTHS[0], STRENGTHS[-1])


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
    train = artifacts.read(Comparisons, preferences / "train.parquet")
    test = artifacts.read(Comparisons, preferences / "test.parquet")
    prompt_count = train["prompt_id"].nunique()
    steps = batches_per_run(prompt_count, config.prompts_per_batch, config.epochs)
    optimizer = Optimizer(model, config.learning_rate, steps, clip=config.clip, weight_decay=config.weight_decay)
    rows = track(
        reward_model.fit(model, batches(config, train, tokenizer, config.epochs), optimizer, config.centering), steps
    )
    margins = reward_model.margins(model, batches(config, test, tokenizer, epochs=1))
    artifacts.write_curves(rows, curves)
    artifacts.save_model(model, tokenizer, out)
    artifacts.write_curves(reward_model.calibration(margins, BINS), out / "calibration.csv")
    return {
        "accuracy": (margins > 0).double().mean().item(),
        "loss": torch.nn.functional.softplus(-margins.double()).mean().item(),
        "margin": margins.double().mean().item(),
        "pairs": len(margins),
    }


def batches(
    config: RewardModelConfig, table: pd.DataFrame, tokenizer: Any, epochs: int
) -> Iterator[reward_model.Pairs]:
    """All pairs of `prompts_per_batch` prompts at a time, prompts shuffled each epoch."""
    groups = [group for _, group in table.groupby("prompt_id", sort=True)]
    generator = torch.Generator().manual_seed(config.seed)
    for chosen in shuffled(len(groups), config.prompts_per_batch, epochs, generator):
        part = pd.concat([groups[index].assign(weight=1 / len(groups[index])) for index in chosen])
        asked = [prompts.encode_prompt(tokenizer, prompt) for prompt in part["prompt"]]
        better, worse = (
            [
                prompts.encode_response(tokenizer, text, ended)
                for text, ended in zip(part[side], part[f"{side}_ended"], strict=True)
            ]
            for side in ("chosen", "rejected")
        )
        yield reward_model.Pairs(
            make_batch(asked, better, tokenizer.pad_token_id),
            make_batch(asked, worse, tokenizer.pad_token_id),
            torch.tensor(part["weight"].to_numpy(dtype="float32")),
            torch.tensor(config.margin * part["strength"].isin(STRONG).to_numpy(dtype="float32")),
        )


if __name__ == "__main__":
    main(run)
