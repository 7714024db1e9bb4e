"""Responses cut into steps: the lines that are not blank, as tables/solutions.py says."""

from collections.abc import Sequence

from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.step_rewards import step_ends
from tasks.common.tokenizers import Tokenizer
from tasks.language.rewards.reward_model_files import blanks, breaks


def cut(tokenizer: Tokenizer, responses: Sequence[Sequence[int]]) -> list[list[int]]:
    """The place of the last token of each step of responses (tokens), as a process reward model finds them."""
    batch = make_completions([[0]], [0] * len(responses), responses, pad=0)
    at = step_ends(batch, breaks(tokenizer), blanks(tokenizer))
    return [row.nonzero().flatten().tolist() for row in at]
