"""The claims of two lectures with verdicts: the tables of docs/lectures.md, made of benchmarks/results/lectures.json
(benchmarks/claims.py).

A claim has differences that should be above 0, each with its 95 % interval over seeds; the verdict follows from these
alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import tables


def claims(result: Mapping[str, Any], lecture: str) -> str:
    """A row for each claim of a lecture."""
    rows = [["Claim", "Verdict", "Differences", "Beside them", "Run"]]
    for claim in result[lecture]:
        shown = "; ".join(f"{name} {_format_difference(*difference)}" for name, *difference in claim["differences"])
        verdict = format_claim_verdict([interval for _, *interval in claim["differences"]])
        rows.append([claim["claim"], verdict, shown, claim["beside"], claim["run"]])
    return tables.render_markdown_table(rows)


def format_claim_verdict(differences: Sequence[Sequence[float]]) -> str:
    """What intervals (mean, low, high) say of a claim that each of them lies above 0."""
    count = len(differences)
    above = sum(low > 0 for _, low, _ in differences)
    below = sum(high < 0 for _, _, high in differences)
    if not count:
        return "no interval, no verdict"
    if above == below == 0:
        return "undecided"
    if above == count:
        return "holds" if count == 1 else f"holds on all {count}"
    parts = [f"holds on {above}"] if above else []
    parts += [f"does not on {below}"] if below else []
    parts += [f"undecided on {count - above - below}"] if count > above + below else []
    return "does not" if below == count == 1 else f"{', '.join(parts)} of {count}"


def _format_difference(mean: float, low: float, high: float) -> str:
    return f"{mean:+.4g} ({low:.4g} to {high:.4g})"
