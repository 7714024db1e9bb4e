"""Beam search over the steps of an answer, by what a reward model says of its beginning (arXiv:2408.03314, section
5.1).

From the prompt width * expansions first steps are sampled. The best `width` are kept, and behind each that has not
ended `expansions` next steps are sampled. The search is over when all that are kept have ended; the best of them is the
answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Begun = tuple[int, tuple[int, ...]]  # a problem's number, and the first tokens of an answer to it


@dataclass(frozen=True)
class Candidate:
    """The beginning of an answer, or a whole one."""

    tokens: tuple[int, ...]
    done: bool  # ended, or at the length limit
    value: float


@dataclass
class Search:
    """One problem's search: what is kept, the best first, and what it has cost."""

    kept: list[Candidate] = field(default_factory=lambda: [Candidate((), False, 0.0)])
    generated: int = 0  # tokens, those of candidates that were dropped included
    scored: int = 0  # candidates that the reward model read

    @property
    def unfinished_candidates(self) -> list[Candidate]:
        """The kept candidates that have not ended."""
        return [candidate for candidate in self.kept if not candidate.done]


Expanded = tuple[tuple[int, ...], bool]  # the tokens of one more step, and whether they end the answer
Expand = Callable[[Sequence[Begun], int], list[list[Expanded]]]  # so many next steps behind each beginning
Value = Callable[[Sequence[Begun]], Sequence[float]]  # what the beginnings are worth


def run_beam_search(expand: Expand, value: Value, problems: int, width: int, expansions: int) -> list[Search]:
    """Search for an answer to each problem; its answer stands first in `kept`.

    Of equal values the earlier candidate is kept.
    """
    searches = [Search() for _ in range(problems)]
    count = width * expansions
    while begun := [
        (number, candidate.tokens)
        for number, ongoing in enumerate(searches)
        for candidate in ongoing.unfinished_candidates
    ]:
        steps = expand(begun, count)
        wider = [
            (number, tokens + more, done)
            for (number, tokens), behind in zip(begun, steps, strict=True)
            for more, done in behind
        ]
        values = value([(number, tokens) for number, tokens, _ in wider])
        for (number, _), behind in zip(begun, steps, strict=True):
            searches[number].generated += sum(len(more) for more, _ in behind)
            searches[number].scored += len(behind)
        fresh: dict[int, list[Candidate]] = {}
        for (number, tokens, done), worth in zip(wider, values, strict=True):
            fresh.setdefault(number, []).append(Candidate(tokens, done, worth))
        for number, candidates in fresh.items():
            ended = [candidate for candidate in searches[number].kept if candidate.done]
            searches[number].kept = sorted([*ended, *candidates], key=lambda candidate: -candidate.value)[:width]
        count = expansions
    return searches
