"""A little of what a policy samples while it is trained, kept for people to look at: the report's microscope.

Twelve steps spread over the training, the first two prompts of each, and at most eight answers of 256 tokens: prompts
are not chosen by what came of them. Nothing of it changes the training, and it costs no pass through a model.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from tasks.algorithms.language.experience import Experience
from tasks.common import processes, tables
from tasks.common.tables import Record
from tasks.language.tables.rollouts import FILE, RolloutTable

# of a training, a step, a prompt and an answer
STEPS = 12
GROUPS = 2
ANSWERS = 8
TOKENS = 256


def select_evenly_spaced_steps(steps: int) -> list[int]:
    """The steps that are kept: the first, the last, and others spread evenly between them."""
    return sorted({1 + round(number * (steps - 1) / (STEPS - 1)) for number in range(STEPS)})


class KeptRollouts:
    """Looks at the samples of each step, and is part of a training's state, so that a resumed one keeps the same."""

    def __init__(self, steps: int, temperature: float) -> None:
        self.wanted = select_evenly_spaced_steps(steps)
        self.temperature = temperature
        self.rows: list[Record] = []

    def __call__(self, step: int, experience: Experience, advantages: Tensor) -> None:
        """Keep some of the samples of a wanted step; `advantages` are (N, L), or (N, 1) where all tokens of an answer
        share one.
        """
        if step not in self.wanted:
            return
        batch = experience.completions
        advantages = advantages.expand(batch.mask.shape)
        for group in range(min(GROUPS, len(batch.prompts))):
            for sample, row in enumerate((batch.owner == group).nonzero().flatten().tolist()[:ANSWERS]):
                length = int(batch.mask[row].sum())
                kept = slice(0, min(length, TOKENS))
                parts = {name: _nan_to_none(values[row].item()) for name, values in experience.parts.items()}
                self.rows.append(
                    {
                        "step": step,
                        "group": group,
                        "sample": sample,
                        "temperature": float(self.temperature),
                        "prompt_tokens": batch.prompts[group][batch.prompt_mask[group]].tolist(),
                        "tokens": batch.tokens[row, kept].tolist(),
                        "length": length,
                        "ended": bool(experience.ended[row]),
                        "reward": experience.rewards[row].item(),
                        "parts": json.dumps(parts),
                        "logps": experience.logps[row, kept].tolist(),
                        "advantages": advantages[row, kept].tolist(),
                    }
                )

    def write(self, out: Path) -> None:
        """Write the table beside the policy in `out`; of several processes the first does."""
        if processes.is_main_process():
            tables.write_table(RolloutTable, pd.DataFrame(self.rows), out / FILE)

    def state_dict(self) -> dict[str, Tensor]:
        """The rows, as the bytes of their JSON."""
        return {"rows": torch.tensor([*json.dumps(self.rows).encode()], dtype=torch.uint8)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.rows = json.loads(bytes(state["rows"].tolist()))


def _nan_to_none(value: float) -> float | None:
    """JSON has no NaN: a part that a response does not have is null."""
    return None if value != value else value
