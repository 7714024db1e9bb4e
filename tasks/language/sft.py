"""Supervised fine-tuning on demonstrations of the training problems; the loss is on the response only."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import Field

from tasks import artifacts, prompts
from tasks.algorithms import sft
from tasks.algorithms.optimizer import Optimizer
from tasks.algorithms.sequences import Batch, batches_per_run, make_batch, shuffled
from tasks.schemas import Demonstrations, Problems
from tasks.stage import Config, Metrics, main
from tasks.tracking import Row
from tasks.training import resumable


class SftConfig(Config):
    """How the policy is trained, and on how many demonstrations."""

    seed: int
    demonstrations: int = Field(ge=1)  # at most as many as there are training problems
    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    optimizer: Literal["adamw", "muon"]
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)


def run(config: SftConfig, policy: Path, problems: Path, out: Path, curves: Path) -> Metrics:
    """Fine-tune `policy`; write it to `out`, and the training curve to `curves`."""
    torch.manual_seed(config.seed)
    model, tokenizer = artifacts.load_model(policy), artifacts.load_tokenizer(policy)
    train = artifacts.read(Demonstrations, problems / "demonstrations.parquet").head(config.demonstrations)
    validation = artifacts.read(Problems, problems / "validation.parquet").rename(
        columns={"question": "prompt", "solution": "response"}
    )
    steps = batches_per_run(len(train), config.batch_size, config.epochs)
    optimizer = Optimizer(
        model,
        config.learning_rate,
        steps,
        clip=config.clip,
        kind=config.optimizer,
        weight_decay=config.weight_decay,
    )

    def fit(start: int) -> Iterator[Row]:
        training = batches(train, tokenizer, config.batch_size, config.epochs, config.seed, start)
        return sft.fit(model, training, optimizer)

    with resumable("sft", config, policy, problems) as training:
        rows = training.run(fit, {"model": model, "optimizer": optimizer}, steps)
        artifacts.write_curves(rows, curves)
        artifacts.save_model(model, tokenizer, out)
        return sft.evaluate(model, batches(validation, tokenizer, config.batch_size, 1, config.seed))


def batches(table: pd.DataFrame, tokenizer: Any, size: int, epochs: int, seed: int, start: int = 0) -> Iterator[Batch]:
    """Prompts with their responses, shuffled, from batch `start` on."""
    asked = [prompts.encode_prompt(tokenizer, prompt) for prompt in table["prompt"]]
    answers = [prompts.encode_response(tokenizer, response) for response in table["response"]]
    for rows in islice(shuffled(len(table), size, epochs, torch.Generator().manual_seed(seed)), start, None):
        yield make_batch([asked[row] for row in rows], [answers[row] for row in rows], tokenizer.pad_token_id)


if __name__ == "__main__":
    main(run)
