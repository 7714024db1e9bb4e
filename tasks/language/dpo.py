"""DPO: fit the policy to preference pairs without a reward model (arXiv:2305.18290, eq. 7)."""

from collections.abc import Iterator
from pathlib import Path

import torch
from pydantic import Field

from tasks import artifacts, prompts
from tasks.algorithms import dpo
from tasks.algorithms.logprobs import batches_per_run, make_batch, shuffled
from tasks.algorithms.optimizer import Optimizer
from tasks.schemas import Comparisons
from tasks.stage import Config, Metrics, main
from tasks.tracking import track

Sequences = list[list[int]]


class DpoConfig(Config):
    """How strongly the policy is pulled to its reference, and how it is trained."""

    seed: int
    beta: float = Field(gt=0)  # pull towards the reference; small trusts the pairs more
    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1)  # pairs
    learning_rate: float = Field(gt=0)
    clip: float = Field(gt=0)


def run(config: DpoConfig, policy: Path, preferences: Path, out: Path, curves: Path) -> Metrics:
    """Train `policy`, which is its own reference; write it to `out`, and the curve to `curves`."""
    torch.manual_seed(config.seed)
    model, tokenizer = artifacts.load_model(policy), artifacts.load_tokenizer(policy)
    pairs = artifacts.read(Comparisons, preferences / "train.parquet")
    asked = [prompts.encode_prompt(tokenizer, prompt) for prompt in pairs["prompt"]]
    sides = [
        [
            prompts.encode_response(tokenizer, text, ended)
            for text, ended in zip(pairs[side], pairs[f"{side}_ended"], strict=True)
        ]
        for side in ("chosen", "rejected")
    ]
    pad, size = tokenizer.pad_token_id, config.batch_size

    def part(side: int, rows: list[int]) -> dpo.Batch:
        return make_batch([asked[row] for row in rows], [sides[side][row] for row in rows], pad)

    in_order = [list(range(start, min(start + size, len(pairs)))) for start in range(0, len(pairs), size)]
    reference = [dpo.reference_logps(model, (part(side, rows) for rows in in_order)) for side in (0, 1)]

    def batches() -> Iterator[dpo.Pairs]:
        for rows in shuffled(len(pairs), size, config.epochs, torch.Generator().manual_seed(config.seed)):
            yield dpo.Pairs(part(0, rows), part(1, rows), reference[0][rows], reference[1][rows])

    steps = batches_per_run(len(pairs), size, config.epochs)
    optimizer = Optimizer(model, config.learning_rate, steps, clip=config.clip, warmup=0.1)
    curve = track(dpo.fit(model, batches(), optimizer, config.beta), steps)
    artifacts.write_curves(curve, curves)
    artifacts.save_model(model, tokenizer, out)
    last = curve[-max(1, len(curve) // 10) :]
    return {name: sum(row[name] for row in last) / len(last) for name in last[0]}


if __name__ == "__main__":
    main(run)
