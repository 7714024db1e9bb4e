"""What money buys: returns of policies with a budget, by what was spent and on what."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tasks.agents.reporting.policy_returns import PolicyEpisodes
from tasks.common import plots
from tasks.common.estimates import Estimate, estimate_mean_over_seeds


@dataclass(frozen=True)
class BudgetRow:
    """A policy with a budget, at the temperature at which it earns most."""

    name: str
    source: str
    spent: float  # dollars
    number: float  # of what was bought
    earned: Estimate


def build_cost_table(policies: Sequence[PolicyEpisodes]) -> dict[str, list[BudgetRow]]:
    """The rows of each environment in which a policy has a budget, in the order of the report."""
    rows_by_environment = dict[str, list[BudgetRow]]()
    for policy in policies:
        if policy.bought is not None:
            purchase = policy.bought
            row = BudgetRow(
                policy.name,
                purchase["source"],
                purchase["spent"],
                purchase["number"],
                estimate_mean_over_seeds(policy.best()[1]),
            )
            rows_by_environment.setdefault(policy.environment, []).append(row)
    return rows_by_environment


def render_cost_figures(policies: Sequence[PolicyEpisodes]) -> dict[str, str]:
    """A plot for each of these environments: a line for each source, and the level of each policy that was not trained
    further.
    """
    drawn = {}
    for environment, rows in build_cost_table(policies).items():
        lines = dict[str, list[tuple[float, Estimate]]]()
        for row in sorted(rows, key=lambda row: row.spent):
            alone = Estimate(row.earned.mean, row.earned.mean, row.earned.mean)  # one seed has no bounds to draw
            lines.setdefault(row.source, []).append((row.spent, row.earned if row.earned.high < inf else alone))
        free = {
            policy.name: max(policy.best()[1])
            for policy in policies
            if policy.environment == environment and not policy.trained
        }
        name = f"costs-{environment}"
        drawn[name] = plots.render_lines_with_levels(lines, free, "dollars", "return", name, logarithmic=True)
    return drawn
