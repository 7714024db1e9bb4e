"""Which rank keeps a weight's moments, where ranks divide them: stage 1 of ZeRO (arXiv:1910.02054, section 5.1).

The owner alone updates the weight and sends it to the others. The gradient is the same on all ranks, so the weights
have the bits that they have where each rank updates all.
"""

from collections.abc import Sequence

from torch import Tensor

from tasks.algorithms.common import distributed


def compute_weight_owners(weights: Sequence[Tensor]) -> list[int]:
    """The owner of each weight: from the largest down, each goes to the rank that has the fewest numbers so far."""
    held = [0] * distributed.get_world_size()
    ranks = [0] * len(weights)
    for index in sorted(range(len(weights)), key=lambda index: -weights[index].numel()):
        owner = held.index(min(held))
        ranks[index] = owner
        held[owner] += weights[index].numel()
    return ranks
