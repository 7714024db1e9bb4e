"""The tables and verdicts of tasks/extensions/search/README.md, made of benchmarks/results/search.json
(benchmarks/claims.py).

The file has what LOG.md and the page had: most intervals were not kept. Those of greedy answers are Wilson's, of 500
problems.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks import tables


def right(result: Mapping[str, Any], policy: str) -> str:
    """A row for each method and budget: the share of right answers, and the difference to greedy answers; then what
    follows for the policy.
    """
    rows = [["method", "samples", "right", "over greedy answers, points"]]
    for row in result[policy]:
        interval = f" [{row['low']:.1f}, {row['high']:.1f}]" if "low" in row else ""
        over = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*row["over_greedy"]) if "over_greedy" in row else ""
        rows.append([row["method"], str(row["samples"]), f"{row['right']:.1f} %{interval}", over])
    return f"{tables.render_markdown_table(rows)}\n{format_policy_verdict(result, policy)}\n"


def format_policy_verdict(result: Mapping[str, Any], policy: str) -> str:
    """Whether a method beats the policy's greedy answers by its interval, and how far the best is from the larger
    policy's greedy answers.
    """
    methods = [row for row in result[policy] if row["method"] not in ("greedy", "pass@n")]
    better = [row["method"] for row in methods if row.get("over_greedy", [0, 0, 0])[1] > 0]
    apart = [row["method"] for row in methods if row.get("low", 0) > result[policy][0]["high"]]
    sentence = (
        f"Beyond chance better than greedy answers: {', '.join(better + apart) or 'no method whose interval was kept'}."
    )
    larger = next(iter(result))
    if policy == larger:
        return sentence
    gap = result[larger][0]["right"] - max(row["right"] for row in methods)
    return (
        f"{sentence} The larger policy's greedy answers are {abs(gap):.0f} points "
        f"{'above' if gap > 0 else 'below'} the best of it."
    )
