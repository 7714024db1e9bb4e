"""Responses cut into steps: the lines that are not blank, as tables/solutions.py says."""

from collections.abc import Sequence

from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.step_rewards import find_step_ends
from tasks.common.tokenizers import Tokenizer
from tasks.language.rewards.reward_model_files import list_blank_tokens, list_line_break_tokens


def locate_step_ends(tokenizer: Tokenizer, responses: Sequence[Sequence[int]]) -> list[list[int]]:
    """The place of the last token of each step of responses (tokens), as a process reward model finds them."""
    batch = make_completions([[0]], [0] * len(responses), responses, pad=0)
    at = find_step_ends(batch, list_line_break_tokens(tokenizer), list_blank_tokens(tokenizer))
    return [row.nonzero().flatten().tolist() for row in at]
