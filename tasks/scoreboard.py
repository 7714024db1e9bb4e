"""How the report names, explains and words the numbers of an evaluation: tables of policies, and the headline.

A metric is called KIND_HOW: a kind of MEANING, and greedy, sampled or, for accuracies, mean_at_k, pass_at_k and so on.
"""

from collections.abc import Mapping
from typing import Any

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

Evaluations = Mapping[str, Mapping[str, Estimate]]  # policy -> metric -> estimate
Row = dict[str, Any]


def accuracy_rows(judged: Evaluations, baseline: str) -> list[Row]:
    """For each measure of accuracy a strict and a lenient cell for each policy."""
    measures = [name.removeprefix("strict_") for name in judged[baseline] if name.startswith("strict_")]
    return [
        {
            "label": measure.replace("_at_", "@"),
            "cells": [_cell(judged, name, kind, measure, baseline) for name in judged for kind in ACCURACIES],
        }
        for measure in measures
    ]


def other_rows(judged: Evaluations, baseline: str) -> list[Row]:
    """For each other kind of metric a cell of greedy and one of sampled answers for each policy."""
    kinds = [kind for kind in MEANING if kind not in ACCURACIES]
    return [
        {
            "label": kind.replace("_", " "),
            "cells": [_cell(judged, name, kind, how, baseline) for name in judged for how in ANSWERS],
        }
        for kind in kinds
        if any(f"{kind}_{how}" in of for of in judged.values() for how in ANSWERS)
    ]


def _cell(judged: Evaluations, policy: str, kind: str, how: str, baseline: str) -> dict[str, str]:
    """A number with its interval, and an arrow where that interval lies wholly above or below the baseline's."""
    found, base = (judged[name].get(f"{kind}_{how}") for name in (policy, baseline))
    if found is None:
        return {"text": "", "interval": "", "mark": ""}
    mark = ""
    if base is not None:
        mark = "▲" if found.low > base.high else "▼" if found.high < base.low else ""
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
    """Two sentences: how the baseline came by its accuracy, and what each later policy did to its rubric score."""
    names = list(judged)
    first, base = names[0], judged[baseline]
    start = f"{baseline} comes first, with {text('strict', base['strict_greedy'])} strict greedy accuracy."
    if first != baseline:
        change = _change("strict", judged[first]["strict_greedy"], base["strict_greedy"], "strict greedy accuracy")
        start = f"Over {first}, {baseline} {change}."
    later = []
    for name in names[names.index(baseline) + 1 :]:
        scores = base["rubric_sampled"], judged[name]["rubric_sampled"]
        change = _change("rubric", *scores, "the rubric score of sampled answers")
        wins = judged[name]["win_rate_sampled"]
        rate = f"{text('win_rate', wins)} ({interval('win_rate', wins)})"
        later.append(f"{name} {change}, and wins {rate} of comparisons")
    return [start, f"Over {baseline}, {'; '.join(later)}."] if later else [start]


def _change(kind: str, before: Estimate, after: Estimate, what: str) -> str:
    numbers = f"from {text(kind, before)} to {text(kind, after)}"
    if after.low > before.high:
        return f"raised {what} {numbers} (95 % intervals apart)"
    if after.high < before.low:
        return f"lowered {what} {numbers} (95 % intervals apart)"
    return f"did not clearly change {what} ({numbers}, 95 % intervals overlap)"
