"""Answers corrupted on purpose: a reward model has to score them below the original, and ordinary samples hold none.

A policy that is trained against a reward model finds answers that the model was never shown. Each kind here consists of
a good answer's own tokens, or of random ones.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tasks.algorithms.language.completions import Completions
from tasks.algorithms.language.pairs import NO_LEVEL, TIED, Pairs


def truncate_to_first_half(answer: Tensor, _vocabulary: int, _longest: int, _generator: torch.Generator) -> Tensor:
    """The answer's first half, rounded up."""
    return answer[: (len(answer) + 1) // 2]


def repeat_until_longest(answer: Tensor, _vocabulary: int, longest: int, _generator: torch.Generator) -> Tensor:
    """The answer without its last token, repeated up to the length `longest`."""
    body = answer[: max(1, len(answer) - 1)]
    return body.repeat(-(-longest // len(body)))[:longest]


def shuffle_tokens(answer: Tensor, _vocabulary: int, _longest: int, generator: torch.Generator) -> Tensor:
    """The answer's tokens in another order; the last one stays last."""
    order = torch.randperm(max(0, len(answer) - 1), generator=generator)
    return torch.cat([answer[order], answer[-1:]])


def draw_random_tokens(answer: Tensor, vocabulary: int, longest: int, generator: torch.Generator) -> Tensor:
    """Random tokens of the `vocabulary`, up to the length `longest`."""
    return torch.randint(vocabulary, (longest,), generator=generator, dtype=answer.dtype)


Corruption = Callable[[Tensor, int, int, torch.Generator], Tensor]
KINDS: dict[str, Corruption] = {
    "cut_off": truncate_to_first_half,
    "unending": repeat_until_longest,
    "shuffled": shuffle_tokens,
    "random_tokens": draw_random_tokens,
}


def corrupt_answers(
    responses: Completions, rows: Sequence[int], kinds: Sequence[str], vocabulary: int, generator: torch.Generator
) -> Completions:
    """One corruption of each answer in `rows` (an answer may come more than once), each of its kind in `kinds`.

    None is longer than the longest of `responses`.
    """
    longest = responses.mask.shape[1]
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for index, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        made = KINDS[kind](responses.tokens[row][responses.mask[row]], vocabulary, longest, generator)
        tokens[index, : len(made)] = made
        mask[index, : len(made)] = True
    return Completions(responses.prompts, responses.prompt_mask, responses.owner[list(rows)], tokens, mask)


def select_best_answers(pairs: Pairs) -> list[int]:
    """The row of each prompt's best answer: the first that a pair chooses and no pair rejects. (Every ranking has one.)

    A pair that is tied rejects none.
    """
    rejected = set(pairs.rejected[pairs.level != TIED].tolist())
    best: dict[int, int] = {}
    for row in pairs.chosen.tolist():
        if row not in rejected:
            best.setdefault(int(pairs.responses.owner[row]), row)
    return list(best.values())


def add_corrupted_pairs(pairs: Pairs, weight: float, vocabulary: int, generator: torch.Generator) -> Pairs:
    """The same pairs and, for each prompt, one more: its best answer against a corruption of it, of a kind drawn at
    random.

    The new pair weighs `weight`; a prompt's own pairs together weigh 1.
    """
    rows = select_best_answers(pairs)
    names = list(KINDS)
    old = pairs.responses
    drawn = torch.randint(len(names), (len(rows),), generator=generator).tolist()
    made = corrupt_answers(old, rows, [names[kind] for kind in drawn], vocabulary, generator)
    whole = Completions(
        old.prompts,
        old.prompt_mask,
        *(torch.cat([getattr(old, part), getattr(made, part)]) for part in ("owner", "tokens", "mask")),
    )
    added = len(rows)
    return Pairs(
        whole,
        torch.cat([pairs.index, torch.full((added,), -1)]),
        torch.cat([pairs.chosen, torch.tensor(rows, dtype=torch.long)]),
        torch.cat([pairs.rejected, torch.arange(len(old), len(whole))]),
        torch.cat([pairs.weight, torch.full((added,), weight)]),
        torch.cat([pairs.level, torch.full((added,), NO_LEVEL)]),
    )
