"""What sways people's judgements beside the answers themselves: the side on which one was shown, and its length.

Each judgement is one value from 0 to 1, however many pairs of answers it orders; pairs that tie say nothing. Without
the bias the share would be 1/2.
"""

from collections.abc import Callable

from tasks.extensions.labelling.measures.outcomes import list_pairwise_outcomes
from tasks.language.judgements.lines import Item, Judgement


def compute_first_shown_win_share(judgement: Judgement) -> float | None:
    """How often the answer that was shown first, left or on top, is the better one."""
    shown = {answer_index: position for position, answer_index in enumerate(judgement.order)}
    return _compute_pair_share(judgement, lambda better, worse: shown[better] < shown[worse])


def compute_longer_win_share(judgement: Judgement, item: Item) -> float | None:
    """How often the answer with more characters is the better one, among those of different length."""
    lengths = [len(answer.text) for answer in item.answers]
    return _compute_pair_share(
        judgement,
        lambda better, worse: None if lengths[better] == lengths[worse] else lengths[better] > lengths[worse],
    )


def _compute_pair_share(judgement: Judgement, holds: Callable[[int, int], bool | None]) -> float | None:
    """Over the pairs of answers of which one is better and for which it is known."""
    ordered = [
        (outcome.first, outcome.second) if outcome.score == 1 else (outcome.second, outcome.first)
        for outcome in list_pairwise_outcomes(judgement.value)
        if outcome.score != 0.5
    ]
    verdicts = [value for better, worse in ordered if (value := holds(better, worse)) is not None]
    return sum(verdicts) / len(verdicts) if verdicts else None
