"""Steps judged by what a policy makes of them: Monte-Carlo estimates (Math-Shepherd, arXiv:2312.08935, section 3.3).

From the end of each step the policy finishes the solution several times. The step's soft estimate is the share of the
completions that reach the right answer (eq. 4); its hard estimate is whether any does (eq. 3).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import iterate_with_progress
from tasks.language.data import chat
from tasks.language.rewards.verifier import Verifier

Prefix = tuple[str, tuple[int, ...]]  # a prompt's id, and the first tokens of an answer to it


@dataclass(frozen=True)
class RolloutSettings:
    """How prefixes are finished."""

    seed: int
    samples: int  # completions of a prefix
    temperature: float
    max_new_tokens: int
    batch_size: int  # prefixes at a time


def collect_unfinished_prefixes(solutions: Sequence[Record]) -> list[Prefix]:
    """What has to be finished: every step's prefix once, the shortest first; a solution that is finished needs no
    completion.
    """
    unfinished = {prefix for solution in solutions for prefix in _list_step_prefixes(solution) if prefix is not None}
    return sorted(unfinished, key=lambda prefix: (len(prefix[1]), prefix))


def compute_soft_estimates(
    policy: CausalLM,
    tokenizer: Tokenizer,
    end_tokens: Collection[int],
    solutions: Sequence[Record],
    prompts: Mapping[str, Sequence[int]],
    golds: Mapping[str, str],
    settings: RolloutSettings,
    verifier: Verifier,
) -> list[list[float]]:
    """For each solution the share of right completions of each of its steps; a whole solution is right or wrong itself.

    `prompts` has each prompt's tokens, `golds` its right answer. Equal prefixes of several solutions are finished once.
    """
    wanted = collect_unfinished_prefixes(solutions)
    drawn = rollouts.sample_rollouts(
        policy,
        [[*prompts[prompt_id], *tokens] for prompt_id, tokens in wanted],
        samples=settings.samples,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        end_tokens=end_tokens,
        seed=settings.seed,
        batch_size=settings.batch_size,
    )
    shares: dict[Prefix, float] = {}
    for batch in iterate_with_progress(drawn, -(-len(wanted) // settings.batch_size)):
        some = wanted[len(shares) : len(shares) + settings.batch_size]
        begun = [prefix for prefix in some for _ in range(settings.samples)]
        texts = [
            chat.decode_response(tokenizer, [*tokens, *more], ended)
            for (_, tokens), more, ended in zip(begun, batch.responses(), batch.ended.tolist(), strict=True)
        ]
        right = verifier([golds[prompt_id] for prompt_id, _ in begun], texts)
        for number, prefix in enumerate(some):
            verdicts = right[number * settings.samples : (number + 1) * settings.samples]
            shares[prefix] = sum(verdict == 1 for verdict in verdicts) / settings.samples
    return [
        [float(solution["right"]) if prefix is None else shares[prefix] for prefix in _list_step_prefixes(solution)]
        for solution in solutions
    ]


def compute_hard_estimates(shares: Sequence[float]) -> list[int]:
    """Labels: good where any completion is right, else bad."""
    return [1 if share else -1 for share in shares]


def _list_step_prefixes(solution: Record) -> list[Prefix | None]:
    """Each step's prefix, its own tokens included; None for the end of a solution that closed itself."""
    tokens = tuple(int(token) for token in solution["tokens"])
    step_prefixes: list[Prefix | None] = [(solution["prompt_id"], tokens[: end + 1]) for end in solution["ends"]]
    if solution["ended"]:
        step_prefixes[-1] = None
    return step_prefixes
