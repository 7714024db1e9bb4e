"""Several responses to each of several prompts, as one batch in which every prompt stands once.

A prompt is read once and its keys and values are shared by its responses, in training as in sampling; gradients flow
through the shared part. With 8 responses a prompt this is a third of the tokens; the results are those of whole
sequences, which are read where gradients are checkpointed. Tensors are laid out by response: row n, column t is token t
of response n, so that no shifted index is ever needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tasks.algorithms.common import distributed, gradient_checkpointing, sharding
from tasks.algorithms.language.causal_lm import Body, CachedInputs, CausalLM, KeyValueCache, ModelInputs, Parametrised
from tasks.algorithms.language.lm_head import compute_chunked_logps, defer_large_head


@dataclass(frozen=True)
class Completions:
    """N responses of up to L tokens to B prompts of up to P tokens. Masks come from lengths, never from token ids."""

    prompts: Tensor  # (B, P) long, padded on the left
    prompt_mask: Tensor  # (B, P) bool
    owner: Tensor  # (N,) long, each response's prompt
    tokens: Tensor  # (N, L) long, padded on the right
    mask: Tensor  # (N, L) bool, True on response tokens, the end token included

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def last(self) -> Tensor:
        """True at each response's last token: (N, L)."""
        return torch.arange(self.mask.shape[1], device=self.mask.device) == self.mask.sum(dim=1, keepdim=True) - 1

    def on(self, model: Parametrised) -> "Completions":
        """The same on the model's device."""
        device = next(model.parameters()).device
        parts = (self.prompts, self.prompt_mask, self.owner, self.tokens, self.mask)
        return Completions(*(part.to(device) for part in parts))

    def rows(self, index: Tensor, padded: bool = False) -> "Completions":
        """The responses at `index` (long or bool) with their own prompts only, padded no further than needed, or else
        as here.
        """
        owner = self.owner[index]
        tokens = self.tokens[index]
        mask = self.mask[index]
        kept, owner = owner.unique(return_inverse=True)
        prompt_mask = self.prompt_mask[kept]
        start = 0 if padded else self.prompts.shape[1] - int(prompt_mask.sum(1).max())
        longest = mask.shape[1] if padded else int(mask.sum(1).max())
        return Completions(
            self.prompts[kept, start:], prompt_mask[:, start:], owner, tokens[:, :longest], mask[:, :longest]
        )

    def list_dropout_row_kinds(self, rows: Tensor) -> list[tuple[Tensor, int]]:
        """The two kinds of rows that a pass of the responses `rows` has, as dropout sees them (shared_draws): prompts,
        and responses.
        """
        return [(self.owner[rows].unique(), len(self.prompts)), (rows, len(self.owner))]


def select_rank_prompts(prompt: Tensor, model: object) -> tuple[Tensor, float]:
    """This rank's share of the prompts in `prompt`, and what they count: 1.

    Where ranks divide the model, one that has no prompt has the first, which counts 0; elsewhere it has none.
    """
    prompts = prompt.unique()
    share = prompts[distributed.get_local_slice(len(prompts))]
    counted = 1.0
    if not len(share) and sharding.has_sharded_parts(model):
        share = prompts[:1]
        counted = 0.0
    return share, counted


def make_completions(
    prompts: Sequence[Sequence[int]], owner: Sequence[int], responses: Sequence[Sequence[int]], pad: int
) -> Completions:
    """Pad `prompts` on the left and `responses` on the right; response n answers prompt `owner[n]`."""
    padded, prompt_mask = pad_left(prompts, pad)
    longest = max(map(len, responses))
    tokens = torch.full((len(responses), longest), pad)
    mask = torch.zeros(len(responses), longest, dtype=torch.bool)
    for row, response in enumerate(responses):
        tokens[row, : len(response)] = torch.tensor(response)
        mask[row, : len(response)] = True
    return Completions(padded, prompt_mask, torch.tensor(owner), tokens, mask)


def pad_left(prompts: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Prompts as tokens and mask, (B, P) each; all prompts end in the last column, behind which the responses begin."""
    width = max(map(len, prompts))
    padded = torch.full((len(prompts), width), pad)
    mask = torch.zeros(len(prompts), width, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        padded[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = True
    return padded, mask


def compute_token_logps(model: CausalLM, completions: Completions, temperature: float = 1.0) -> Tensor:
    """Log-probability of each response token given what stands before it: (N, L), zero where masked out.

    `temperature` divides the logits as it did when sampling.
    """
    responses = completions.on(model)
    with defer_large_head(model, responses.mask.numel()) as head:
        logits = _compute_response_logits(model, responses)  # (N, L, V), or states (N, L, D)
    # The softmax over the vocabulary is taken at response tokens only.
    picked = logits[responses.mask]
    tokens = responses.tokens[responses.mask]
    if head is None:
        distribution = torch.log_softmax(picked.float() / temperature, dim=-1)
        values = distribution.gather(1, tokens.unsqueeze(1)).squeeze(1)
    else:
        values, _ = compute_chunked_logps(head, picked, tokens, temperature)
    return values.new_zeros(responses.mask.shape).masked_scatter(responses.mask, values)


def _compute_response_logits(model: CausalLM, responses: Completions) -> Tensor:
    """(N, L, V): entry t predicts token t."""
    if marked := gradient_checkpointing.list_layers_to_recompute(model):
        with gradient_checkpointing.recompute_activations(marked):
            return model(**_build_full_sequence_inputs(responses), logits_to_keep=responses.tokens.shape[1] + 1).logits[
                :, :-1
            ]
    first = model(**_build_prompt_inputs(responses), logits_to_keep=1)
    cache = _expand_cache_to_responses(first.past_key_values, responses)
    logits = first.logits[:, -1:][responses.owner]
    behind = responses.tokens.shape[1] - 1
    if behind or sharding.has_sharded_parts(
        model
    ):  # ranks pass a divided model equally often, however long their responses are
        rest = model(**_build_response_inputs(responses, cache, responses.tokens[:, : max(1, behind)])).logits
        logits = torch.cat([logits, rest[:, :behind]], dim=1)
    return logits


def compute_response_logps(model: CausalLM, completions: Completions) -> Tensor:
    """log pi(response | prompt), the sum over response tokens: (N,)."""
    return compute_token_logps(model, completions).sum(dim=1)


def compute_response_states(body: Body, completions: Completions) -> Tensor:
    """Hidden states of a model without its head: (N, L + 1, D). Entry t has seen the prompt and the tokens before t.

    The value of the state in which token t is chosen is read from entry t; a whole response's score is read from entry
    `length`.
    """
    responses = completions.on(body)
    if marked := gradient_checkpointing.list_layers_to_recompute(body):
        with gradient_checkpointing.recompute_activations(marked):
            return body(**_build_full_sequence_inputs(responses)).last_hidden_state[:, -responses.tokens.shape[1] - 1 :]
    first = body(**_build_prompt_inputs(responses))
    cache = _expand_cache_to_responses(first.past_key_values, responses)
    rest = body(**_build_response_inputs(responses, cache, responses.tokens)).last_hidden_state
    return torch.cat([first.last_hidden_state[:, -1:][responses.owner], rest], dim=1)


def apply_head_in_fp32(head: nn.Linear, read: Tensor) -> Tensor:
    """What a head makes of states (.., D), in fp32 whatever its weights are: eight bits are too few for a score."""
    bias = None if head.bias is None else head.bias.float()
    return nn.functional.linear(read.float(), head.weight.float(), bias)


def _build_prompt_inputs(responses: Completions) -> ModelInputs:
    return {
        "input_ids": responses.prompts,
        "attention_mask": responses.prompt_mask.long(),
        "position_ids": (responses.prompt_mask.cumsum(1) - 1).clamp(min=0),
        "use_cache": True,
    }


def _build_full_sequence_inputs(responses: Completions) -> ModelInputs:
    """Each response behind a copy of its prompt: (N, P + L)."""
    prompts = responses.prompts[responses.owner]
    real = responses.prompt_mask[responses.owner]
    mask = torch.cat([real, responses.mask], dim=1)
    return {
        "input_ids": torch.cat([prompts, responses.tokens], dim=1),
        "attention_mask": mask.long(),
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        "use_cache": False,
    }


def _expand_cache_to_responses(cache: KeyValueCache, responses: Completions) -> KeyValueCache:
    """The prompts' cache with one row for each response, that of its own prompt."""
    cache.batch_select_indices(responses.owner)
    return cache


def _build_response_inputs(responses: Completions, cache: KeyValueCache, tokens: Tensor) -> CachedInputs:
    seen = responses.prompt_mask[responses.owner]
    mask = responses.mask[:, : tokens.shape[1]]
    return {
        "input_ids": tokens,
        "attention_mask": torch.cat([seen, mask], dim=1).long(),
        "position_ids": seen.sum(1, keepdim=True) + torch.arange(tokens.shape[1], device=tokens.device),
        "past_key_values": cache,
        "use_cache": True,
    }
