"""How the report names, explains and words the numbers of an evaluation: tables of policies, and the headline.

A metric is called KIND_HOW: a kind of MEANING, and greedy, sampled or, for accuracies, mean_at_k, pass_at_k and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.algorithms.estimates import Estimate

MEANING = {
    "strict": "the answer ends with the line #### N, and N is right",
    "lenient": "the last number of the answer is right, whatever its form",
    "greedy": "the likeliest answer, token by token",
    "sampled": "answers drawn from the policy; a problem's are averaged first, as in mean@k",
    "pass": "at least one of k sampled answers is right (unbiased estimate)",
    "majority": "the commonest answer of k samples is right; a tie counts by chance",
    "rubric": "points of 10: correctness, reasoning and clarity together",
    "correctness": "rubric points for the final answer, 0 to 5",
    "reasoning": "rubric points for steps that hold and lead to the answer, 0 to 3",
    "clarity": "rubric points for stating the answer plainly and being concise, 0 to 2",
    "win_rate": "answers to one problem compared by the rubric; a tie is half a win",
    "reward": "the reward model's score; only differences mean something",
    "kl": "nats an answer by which the policy has moved from the reference (k1 estimate)",
    "length": "tokens of an answer, the end token included",
    "ended": "answers closed by the end token within the length limit",
}
SHARES = ("strict", "lenient", "ended", "win_rate")  # shown in percent
ACCURACIES = ("strict", "lenient")
ANSWERS = ("greedy", "sampled")
VERBS = {1: "raised", 0: "not clearly changed", -1: "lowered"}  # by 95 % intervals: apart or overlapping

Evaluations = Mapping[str, Mapping[str, Estimate]]  # policy -> metric -> estimate


@dataclass(frozen=True)
class Table:
    """One row for each policy, one cell for each metric."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[dict[str, str]]]]


def tables(judged: Evaluations, baseline: str) -> list[Table]:
    """The few numbers that matter most, then all of them."""
    names = list(dict.fromkeys(name for of in judged.values() for name in of))
    drawn = headline_metric(judged[baseline])
    most = max((name for name in names if name.startswith("strict_pass_at_")), key=_k, default="")
    first = [drawn, "strict_greedy", most]
    first += [f"{kind}_sampled" for kind in ("rubric", "win_rate", "reward", "kl")]
    parts = {
        "At a glance": [name for name in dict.fromkeys(first) if name in names],
        "Strict accuracy": [name for name in names if name.startswith("strict_")],
        "Lenient accuracy": [name for name in names if name.startswith("lenient_")],
    }
    for how in ANSWERS:
        wanted = [f"{kind}_{how}" for kind in MEANING if kind not in ACCURACIES]
        parts[f"{how.capitalize()} answers"] = [name for name in wanted if name in names]
    return [_table(title, metrics, judged, baseline) for title, metrics in parts.items() if metrics]


def headline_metric(of: Mapping[str, Estimate]) -> str:
    """Strict accuracy averaged over sampled answers where it was measured, else of the greedy ones."""
    return next((name for name in of if name.startswith("strict_mean_at_")), "strict_greedy")


def _k(name: str) -> int:
    return int(name.rpartition("_")[2])


def _table(title: str, metrics: list[str], judged: Evaluations, baseline: str) -> Table:
    columns = [_label(name, short=title != "At a glance") for name in metrics]
    rows = [(policy, [_cell(judged, policy, name, baseline) for name in metrics]) for policy in judged]
    return Table(title, columns, rows)


def _kind(name: str) -> str:
    return next(kind for kind in MEANING if name.startswith(f"{kind}_"))


def _label(name: str, short: bool) -> str:
    """`strict_mean_at_8` is `mean@8` in a table of strict accuracies; `rubric_sampled` is `rubric` in most tables."""
    kind = _kind(name)
    how = name.removeprefix(f"{kind}_").replace("_at_", "@")
    if kind in ACCURACIES:
        return how if short else f"{kind} {how}"
    return kind.replace("_", " ")


def _cell(judged: Evaluations, policy: str, name: str, baseline: str) -> dict[str, str]:
    """A number with its interval, and an arrow where that interval lies wholly above or below the baseline's."""
    kind, found, base = _kind(name), judged[policy].get(name), judged[baseline].get(name)
    if found is None:
        return {"text": "", "interval": "", "mark": ""}
    mark = ""
    if base is not None:
        mark = {1: "▲", 0: "", -1: "▼"}[_side(found, base)]
    return {"text": text(kind, found), "interval": interval(kind, found), "mark": mark}


def text(kind: str, estimate: Estimate) -> str:
    """The mean as people read it."""
    return _written(kind, estimate.mean) + (" %" if kind in SHARES else "")


def interval(kind: str, estimate: Estimate) -> str:
    """The interval in the unit of `text`."""
    return f"{_written(kind, estimate.low)} to {_written(kind, estimate.high)}"


def _written(kind: str, value: float) -> str:
    rounded = round(100 * value, 1) if kind in SHARES else round(value, 2)
    return f"{rounded + 0.0:.{1 if kind in SHARES else 2}f}"  # + 0.0: no negative zero


def headline(judged: Evaluations, baseline: str) -> list[str]:
    """What the baseline brought over the first policy, and which later ones raised or lowered accuracy and rubric score."""
    names, metric = list(judged), headline_metric(judged[baseline])
    accuracy = f"strict accuracy ({_label(metric, short=True)})"
    first, base = names[0], judged[baseline][metric]
    sentences = [f"{baseline} comes first, with {text('strict', base)} {accuracy}."]
    if first != baseline:
        before = judged[first][metric]
        change = f"from {first}'s {text('strict', before)} to {text('strict', base)}"
        sentences = [f"With {baseline}, {accuracy} was {VERBS[_side(base, before)]} {change}."]
    later = names[names.index(baseline) + 1 :]
    for what, name in ((accuracy, metric), ("the rubric score of sampled answers", "rubric_sampled")):
        if later:
            sentences.append(_changes(judged, baseline, later, what, name))
    return sentences


def _changes(judged: Evaluations, baseline: str, later: list[str], what: str, name: str) -> str:
    """One sentence: who raised, did not clearly change or lowered a metric; the largest value first."""
    base, kind = judged[baseline][name], _kind(name)
    groups: dict[int, list[str]] = {}
    for policy in sorted(later, key=lambda policy: -judged[policy][name].mean):
        found = judged[policy][name]
        groups.setdefault(_side(found, base), []).append(f"{policy} ({text(kind, found)})")
    told = "; ".join(f"{VERBS[side]} by {', '.join(groups[side])}" for side in (1, 0, -1) if side in groups)
    return f"Over {baseline}'s {text(kind, base)}, {what} was {told}."


def _side(found: Estimate, base: Estimate) -> int:
    """1 where the interval lies wholly above the base's, -1 wholly below, 0 where they overlap."""
    return (found.low > base.high) - (found.high < base.low)
