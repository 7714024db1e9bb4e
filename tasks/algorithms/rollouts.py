"""Sampling from a causal language model, with the log-probability of every sampled token.

Each prompt is prefilled once and its cache repeated for its samples; rows that have ended leave the batch. Sampling is
from the full softmax at `temperature` (no top-k, no top-p), so that log-probabilities recomputed in training are
those of the distribution sampled from.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rollouts:
    """Responses to one batch of prompts, on the CPU: N = prompts x samples rows, a prompt's samples adjacent."""

    tokens: Tensor  # (N, T) long, zero where masked out
    mask: Tensor  # (N, T) bool, True on response tokens, the end token included
    logps: Tensor  # (N, T) log-probability under the distribution sampled from (greedy: at temperature 1)
    ended: Tensor  # (N,) bool, False where the length limit cut the response off

    def responses(self) -> list[list[int]]:
        """Each row's tokens as a list, the end token included."""
        return [row[mask].tolist() for row, mask in zip(self.tokens, self.mask, strict=True)]


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    samples: int,
    max_new_tokens: int,
    temperature: float,
    end_tokens: Collection[int],
    seed: int,
    batch_size: int,
) -> Iterator[Rollouts]:
    """Yield the rollouts of `batch_size` prompts at a time, in order; temperature 0 is greedy.

    Every batch draws from a generator of its own, seeded by `seed` and its place, so that a batch's samples do not
    depend on how many were drawn before it.
    """
    device = next(model.parameters()).device
    for start in range(0, len(prompts), batch_size):
        generator = torch.Generator(device=device).manual_seed(seed * 1_000_003 + start)
        yield _sample_batch(
            model, prompts[start : start + batch_size], samples, max_new_tokens, temperature, set(end_tokens), generator
        )


@torch.no_grad()
def _sample_batch(
    model: Any,
    prompts: Sequence[Sequence[int]],
    samples: int,
    max_new_tokens: int,
    temperature: float,
    end_tokens: set[int],
    generator: torch.Generator,
) -> Rollouts:
    device = generator.device
    width = max(len(prompt) for prompt in prompts)
    padded = torch.zeros(len(prompts), width, dtype=torch.long, device=device)
    attention = torch.zeros_like(padded)
    for row, prompt in enumerate(prompts):  # padded on the left, so that every row's next position is the last column
        padded[row, width - len(prompt) :] = torch.tensor(prompt, device=device)
        attention[row, width - len(prompt) :] = 1
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    step = model(input_ids=padded, attention_mask=attention, position_ids=positions, use_cache=True, logits_to_keep=1)
    cache = step.past_key_values
    cache.batch_repeat_interleave(samples)
    logits = step.logits[:, -1].repeat_interleave(samples, dim=0)  # (N, V)
    attention = attention.repeat_interleave(samples, dim=0)
    position = positions[:, -1:].repeat_interleave(samples, dim=0)

    rows = len(prompts) * samples
    tokens = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=device)
    logps = torch.zeros(rows, max_new_tokens, device=device)
    lengths = torch.full((rows,), max_new_tokens, device=device)
    ended = torch.zeros(rows, dtype=torch.bool, device=device)
    ends = torch.tensor(sorted(end_tokens), device=device)
    alive = torch.arange(rows, device=device)  # which row of the result each row of the running batch is
    for t in range(max_new_tokens):
        chosen, logp = _choose(logits, temperature, generator)
        tokens[alive, t], logps[alive, t] = chosen, logp
        going = ~torch.isin(chosen, ends)
        lengths[alive[~going]], ended[alive[~going]] = t + 1, True
        if t + 1 == max_new_tokens or not going.any():
            break
        if not going.all():  # rows that have ended leave the batch
            keep = going.nonzero().squeeze(1)
            cache.batch_select_indices(keep)
            alive, chosen, attention, position = alive[keep], chosen[keep], attention[keep], position[keep]
        attention = torch.cat([attention, attention.new_ones(len(alive), 1)], dim=1)
        position = position + 1
        step = model(
            input_ids=chosen.unsqueeze(1),
            attention_mask=attention,
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
        )
        logits = step.logits[:, -1]
    mask = torch.arange(max_new_tokens, device=device) < lengths.unsqueeze(1)
    longest = int(lengths.max())
    return Rollouts(tokens[:, :longest].cpu(), mask[:, :longest].cpu(), logps[:, :longest].cpu(), ended.cpu())


def _choose(logits: Tensor, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One token a row of `logits` (N, V), and its log-probability: (N,), (N,)."""
    distribution = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        chosen = distribution.argmax(dim=-1)
    else:
        chosen = torch.multinomial(distribution.exp(), 1, generator=generator).squeeze(1)
    return chosen, distribution.gather(1, chosen.unsqueeze(1)).squeeze(1)
