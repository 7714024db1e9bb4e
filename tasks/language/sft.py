"""Supervised fine-tuning on demonstrations of the training problems; the loss is on the response only."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pandas as pd
import torch

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.sequences import Batch, batches_per_run, make_batch, shuffled
from tasks.common import models, tables
from tasks.common.checkpoints import resumable
from tasks.common.config import settings_of
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.sft import SftConfig
from tasks.language.data import chat
from tasks.language.tables.problems import Demonstrations, Problems
from tasks.language.training import trained_model
from tasks.stage import Metrics, main

CURVES = sft.METRICS
METRICS = sft.HELD_OUT_METRICS


def run(config: SftConfig, policy: Path, problems: Path, out: Path, curves: Path) -> Metrics:
    """Fine-tune `policy`; write it to `out`, and the training curve to `curves`."""
    torch.manual_seed(config.seed)
    trained, tokenizer = trained_model.load(policy, config.training, config.lora), models.load_tokenizer(policy)
    model = trained.model
    train = tables.read(Demonstrations, problems / "demonstrations.parquet").head(config.demonstrations)
    validation = tables.read(Problems, problems / "validation.parquet").rename(
        columns={"question": "prompt", "solution": "response"}
    )
    learned, held_out = Encoded(train, tokenizer), Encoded(validation, tokenizer)
    for name, part in (("demonstrations", learned), ("validation solutions", held_out)):
        chat.check_positions(model, part.lengths, f"the {name} with their prompts")
    steps = batches_per_run(len(train), config.batch_size, config.epochs)
    settings = settings_of(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, steps, config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        training = learned.batches(config.batch_size, config.epochs, config.seed, start)
        return sft.fit(model, training, optimizer, config.training.accumulate)

    with resumable("sft", config, policy, problems) as training:
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, steps)
        tables.write_curves(rows, curves)
        trained.save(tokenizer, out)
        return sft.evaluate(trained.model, held_out.batches(config.batch_size, 1, config.seed))


class Encoded:
    """Prompts with their responses, as tokens."""

    def __init__(self, table: pd.DataFrame, tokenizer: Tokenizer) -> None:
        self.pad: int = tokenizer.pad_token_id
        self.asked = [chat.encode_prompt(tokenizer, prompt) for prompt in table["prompt"]]
        self.answers = [chat.encode_response(tokenizer, response) for response in table["response"]]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each prompt with its response."""
        return [len(asked) + len(answer) for asked, answer in zip(self.asked, self.answers, strict=True)]

    def batches(self, size: int, epochs: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """All of them, shuffled each epoch, from batch `start` on."""
        order = shuffled(len(self.asked), size, epochs, torch.Generator().manual_seed(seed))
        for rows in islice(order, start, None):
            yield make_batch([self.asked[row] for row in rows], [self.answers[row] for row in rows], self.pad)


if __name__ == "__main__":
    main(run)
