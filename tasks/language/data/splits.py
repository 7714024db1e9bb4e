"""Prompts that are held out."""

import numpy as np
from numpy.typing import ArrayLike


def draw_held_out_prompts(prompt_ids: ArrayLike, share: float, rng: np.random.Generator) -> set[str]:
    """A share of the different prompts, at least one, drawn whatever their order."""
    order = rng.permutation(np.unique(np.asarray(prompt_ids, dtype=object)))
    return set(order[: max(1, round(share * len(order)))])
