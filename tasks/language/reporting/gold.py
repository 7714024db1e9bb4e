"""What a change of gold answers, right and as a reader wants them, is made of: of manner, or of being right.

Of the problems that both policies have right, or both wrong, no answer became right: what gold was gained or lost there
is owed to manner. On the others it is owed to correctness. The two parts add up to the change.
"""

import numpy as np
import pandas as pd

RIGHT = "strict_greedy"
GOLD = "gold_greedy"
PARTS = ("gold_by_manner", "gold_by_correctness")


def split_gold_change(ours: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The two parts of the change of gold, each as the gold answers of both policies that count for it: (P,) and (P,),
    0 or 1.

    Both tables have a row for each problem in the same order. Nothing where gold is not measured.
    """
    if not all({RIGHT, GOLD} <= {*table} and table[GOLD].notna().all() for table in (ours, theirs)):
        return {}
    same = ours[RIGHT].to_numpy() == theirs[RIGHT].to_numpy()
    gold = ours[GOLD].to_numpy(), theirs[GOLD].to_numpy()
    counted = zip(PARTS, (same, ~same), strict=True)
    return {name: (gold[0] * kind, gold[1] * kind) for name, kind in counted}
