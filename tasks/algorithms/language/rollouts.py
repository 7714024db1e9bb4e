"""Sampling from a causal language model, with the log-probability of every sampled token.

Each prompt is prefilled once for all its samples; rows that have ended leave the batch. Sampling is from the softmax at
`temperature`, or from its nucleus where `top_p` is below 1. The log-probabilities are those of the distribution sampled
from: the full softmax's can be recomputed in training, a nucleus's cannot.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.shared_draws import UniformDraws
from tasks.algorithms.language.causal_lm import CausalLM, KeyValueCache
from tasks.algorithms.language.completions import Completions, make_completions, pad_left
from tasks.algorithms.language.shared_prompts import use_shared_prompt_attention

POSITIONS = ("max_position_embeddings", "max_seq_len")  # as config.json names how many tokens a model reads
FULL = 0.8  # below this share of running rows the ended ones are dropped, which copies the cache


@dataclass(frozen=True)
class Rollouts:
    """Responses to one batch of prompts, on the CPU: N = prompts x samples rows, a prompt's samples adjacent."""

    tokens: Tensor  # (N, T) long, zero where masked out
    mask: Tensor  # (N, T) bool, True on response tokens, the end token included
    logps: Tensor  # (N, T) log-probability under the distribution sampled from (greedy: at temperature 1)
    ended: Tensor  # (N,) bool, False where the length limit cut the response off

    def gathered(self) -> "Rollouts":
        """The rows of all ranks, in their order."""
        if distributed.get_world_size() == 1:
            return self
        longest = int(distributed.gather_rows(torch.tensor([self.tokens.shape[1]])).max())
        room = (0, longest - self.tokens.shape[1])
        parts = (torch.nn.functional.pad(part, room) for part in (self.tokens, self.mask, self.logps))
        return Rollouts(*(distributed.gather_rows(part) for part in (*parts, self.ended)))

    def responses(self) -> list[list[int]]:
        """Each row's tokens as a list, the end token included."""
        return [row[mask].tolist() for row, mask in zip(self.tokens, self.mask, strict=True)]

    def completions(self, prompts: Sequence[Sequence[int]], pad: int) -> Completions:
        """These responses with the prompts that they answer, as models read them in training."""
        samples = len(self.ended) // len(prompts)
        owner = [row // samples for row in range(len(self.ended))]
        return make_completions(prompts, owner, self.responses(), pad)


def sample_rollouts(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    *,
    samples: int,
    max_new_tokens: int,
    temperature: float,
    end_tokens: Collection[int],
    seed: int,
    batch_size: int,
    shared: bool = False,
    top_p: float = 1.0,
) -> Iterator[Rollouts]:
    """Yield the rollouts of `batch_size` prompts at a time, in order; temperature 0 is greedy, whatever `top_p`.

    TrainingError before anything is sampled where a prompt is longer than the model's positions. With `shared` each
    rank samples for its share of each batch's prompts, perhaps for none. Every batch draws from a generator of its own,
    seeded by `seed` and its place, so that a batch's samples do not depend on how many were drawn before it.
    """
    check_prompt_lengths(model, prompts)
    device = next(model.parameters()).device
    for start in range(0, len(prompts), batch_size):
        generator = torch.Generator(device=device).manual_seed(seed * 1_000_003 + start)
        batch = prompts[start : start + batch_size]
        count = len(batch) * samples
        share = distributed.get_local_slice(len(batch)) if shared else slice(0, len(batch))
        batch = batch[share]
        uniform = UniformDraws(generator, count, slice(share.start * samples, share.stop * samples), FULL)
        if not batch:
            uniform.finish(max_new_tokens if temperature else 0)
            none = torch.zeros(0, 1)
            yield Rollouts(none.long(), none.bool(), none, none.bool()[:, 0])
            continue
        with use_shared_prompt_attention(model, samples) as lay_out:
            drawn = _sample_batch(
                model, batch, samples, max_new_tokens, (temperature, top_p), set(end_tokens), uniform, lay_out
            )
        yield drawn


@torch.no_grad()
def _sample_batch(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    samples: int,
    max_new_tokens: int,
    distribution: tuple[float, float],
    end_tokens: set[int],
    uniform: UniformDraws,
    lay_out: Callable[[KeyValueCache, Tensor, int], None],
) -> Rollouts:
    device = uniform.generator.device
    (temperature, top_p) = distribution
    padded, real = (part.to(device) for part in pad_left(prompts, 0))
    positions = (real.cumsum(1) - 1).clamp(min=0)
    first = model(
        input_ids=padded, attention_mask=real.long(), position_ids=positions, use_cache=True, logits_to_keep=1
    )
    owner = torch.arange(len(prompts), device=device).repeat_interleave(samples)
    cache = first.past_key_values
    lay_out(cache, owner, max_new_tokens)
    logits = first.logits[:, -1][owner]  # (N, V)
    # One mask with a column for every token to come: causality hides the columns that a row has not reached.
    attention = torch.cat([real[owner].long(), real.new_ones(len(owner), max_new_tokens).long()], dim=1)
    position = positions[owner, -1:]

    rows = len(owner)
    tokens = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=device)
    logps = torch.zeros(rows, max_new_tokens, device=device)
    lengths = torch.full((rows,), max_new_tokens, device=device)
    ended = torch.zeros(rows, dtype=torch.bool, device=device)
    ends = torch.tensor(sorted(end_tokens), device=device)
    slots = torch.arange(rows, device=device)  # the row of the result that each row of the running batch fills
    going = torch.ones(rows, dtype=torch.bool, device=device)  # rows of the running batch that have not ended
    for t in range(max_new_tokens):
        chosen, logp = sample_next_tokens(logits, temperature, partial(uniform, slots), top_p)
        tokens[slots[going], t] = chosen[going]
        logps[slots[going], t] = logp[going]
        stopped = going & torch.isin(chosen, ends)
        lengths[slots[stopped]] = t + 1
        ended[slots[stopped]] = True
        going &= ~stopped
        left = int(going.sum())
        if temperature:
            uniform.mark_continuing_rows(slots[going])
        if t + 1 == max_new_tokens or not left:
            break
        if left < FULL * len(going):  # rows that have ended leave the batch
            cache.batch_select_indices(going.nonzero().squeeze(1))
            slots = slots[going]
            chosen = chosen[going]
            attention = attention[going]
            position = position[going]
            going = going[going]
        position = position + 1
        step = model(
            input_ids=chosen.unsqueeze(1),
            attention_mask=attention[:, : padded.shape[1] + t + 1],
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
        )
        logits = step.logits[:, -1]
    if temperature:
        uniform.finish(max_new_tokens - t - 1)
    mask = torch.arange(max_new_tokens, device=device) < lengths.unsqueeze(1)
    longest = int(lengths.max())
    return Rollouts(tokens[:, :longest].cpu(), mask[:, :longest].cpu(), logps[:, :longest].cpu(), ended.cpu())


@torch.no_grad()
def stream_response_tokens(
    model: CausalLM,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float,
    end_tokens: Collection[int],
    seed: int,
) -> Iterator[int]:
    """Yield the tokens of one response as they are sampled, up to the end token: those that `sample` draws for this
    prompt alone.

    TrainingError as of `sample`.
    """
    check_prompt_lengths(model, [prompt])
    device = next(model.parameters()).device
    uniform = UniformDraws(torch.Generator(device=device).manual_seed(seed * 1_000_003), 1, slice(0, 1), FULL)
    output = model(input_ids=torch.tensor([list(prompt)], device=device), use_cache=True, logits_to_keep=1)
    for step in range(max_new_tokens):
        chosen, _ = sample_next_tokens(output.logits[:, -1], temperature, lambda: uniform(torch.zeros(1)))
        token = int(chosen)
        yield token
        if token in end_tokens or step + 1 == max_new_tokens:
            return
        output = model(input_ids=chosen.unsqueeze(1), past_key_values=output.past_key_values, use_cache=True)


def check_prompt_lengths(model: CausalLM, prompts: Sequence[Sequence[int]]) -> None:
    """TrainingError where a prompt is longer than the model's positions: learned ones would be read past their end,
    others make no error.
    """
    config = getattr(model, "config", None)  # a model need not be one of transformers
    text = config.get_text_config() if config is not None and hasattr(config, "get_text_config") else None
    limit = next((room for name in POSITIONS if isinstance(room := getattr(text, name, None), int)), None)
    longest = max(map(len, prompts), default=0)
    if limit is not None and longest > limit:
        name = getattr(model, "name_or_path", type(model).__name__)
        raise TrainingError(
            f"{name}: a prompt has {longest} tokens, and the model {limit} positions; expected at most as many"
        )


def apply_top_p(distribution: Tensor, top_p: float) -> Tensor:
    """Log-probabilities (N, V) renormalised over the fewest likeliest tokens that hold a share `top_p` of all; the
    others have -inf.

    Top-p sampling (arXiv:1904.09751, section 3.1). Of tokens that tie at the edge those with the lower numbers are
    kept.
    """
    ordered, order = distribution.sort(dim=-1, descending=True, stable=True)
    mass = ordered.double().exp()
    outside = mass.cumsum(dim=-1) - mass >= top_p
    held = ordered.masked_fill(outside, -torch.inf)
    return torch.empty_like(held).scatter(1, order, held).log_softmax(dim=-1)


def sample_next_tokens(
    logits: Tensor, temperature: float, uniform: Callable[[], Tensor], top_p: float = 1.0
) -> tuple[Tensor, Tensor]:
    """One token a row of `logits` (N, V), and its log-probability: (N,), (N,)."""
    distribution = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        chosen = distribution.argmax(dim=-1)
    else:
        if top_p < 1:
            distribution = apply_top_p(distribution, top_p)
        # The inverse of the cumulative distribution at one uniform number a row; torch.multinomial draws one a token.
        cumulative = distribution.double().exp().cumsum(dim=-1)
        chosen = torch.searchsorted(cumulative, uniform() * cumulative[:, -1:], right=True).squeeze(1)
        chosen = chosen.clamp(max=logits.shape[1] - 1)  # where weights have overflowed; its log-probability is nan
    return chosen, distribution.gather(1, chosen.unsqueeze(1)).squeeze(1)
