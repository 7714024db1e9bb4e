"""The report's plots."""

from collections.abc import Sequence

import pandas as pd

from tasks.agents.reporting.policy_returns import PolicyEpisodes
from tasks.common import plots
from tasks.common.plots import Line, Panel

SMOOTH = 10  # steps that a point of a curve is the mean of


def render_learning_curves(policies: Sequence[PolicyEpisodes]) -> dict[str, str]:
    """Returns while learning, a panel for each environment that is measured; nothing where no policy has a curve.

    A level is what the best policy without rewards earns in the measured games.
    """
    panels = []
    for environment in dict.fromkeys(policy.environment for policy in policies):
        lines = dict[str, list[Line]]()
        group = [policy for policy in policies if policy.environment == environment]
        for policy in group:
            if policy.curve is not None:
                for _, curve in policy.curve.groupby("seed", sort=False):
                    lines.setdefault(policy.name, []).append(_smooth_curve(curve))
        clones = [max(policy.best()[1]) for policy in group if not policy.trained]
        optimum = group[0].optimum
        levels = {"best without rewards": max(clones)} if clones else {}
        if lines:
            panels.append(Panel(environment, lines, levels | ({"optimum": optimum} if optimum == optimum else {})))
    return {"learning": plots.render_small_multiples(panels, "steps", "return", "learning")} if panels else {}


def _smooth_curve(curve: pd.DataFrame) -> Line:
    window = max(1, min(SMOOTH, len(curve) // 3))
    smooth = curve["return"].rolling(window).mean().dropna()
    return curve["step"].loc[smooth.index].tolist(), smooth.tolist()
