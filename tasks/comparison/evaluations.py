"""Two evaluations of language models, problem by problem: which problems both were asked, what differs, which answers
flipped.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.common import estimates, paired_intervals, tables
from tasks.language.reporting import measures
from tasks.language.reporting.differences import read_measures
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems

FLIPPED = "strict"  # the column by which a greedy answer is right or wrong
SAME = "same"
SHARES = tuple(f"{kind}_" for kind in measures.SHARES)
CONTENT = ("question", "history", "answer")  # problems that agree in these are one problem


@dataclass(frozen=True)
class Evaluation:
    """The tables of one evaluation; `values` has a row for each problem by its id, a column for each metric."""

    asked: pd.DataFrame
    answers: pd.DataFrame
    values: pd.DataFrame
    best_temperature: float | None = None  # None: none was chosen


@dataclass(frozen=True)
class Matching:
    """The problems that both were asked, by their ids in A, in its order; `known_as` has their ids in B."""

    known_as: Mapping[str, str]
    reworded: int  # problems of one id that differ in what is asked or in the answer


def read_evaluation(files: Mapping[str, str]) -> Evaluation:
    """The tables at these paths, by the names that they have in an evaluation's folder; DataError if one is not what it
    should be.
    """
    summary = json.loads(Path(files["evaluation.json"]).read_text())
    return Evaluation(
        tables.read_table(Problems, Path(files["asked.parquet"])),
        tables.read_table(Generations, Path(files["generations.parquet"])),
        read_measures(Path(files["measures.parquet"])),
        summary.get("best_temperature"),
    )


def compare_evaluations(a: Evaluation, b: Evaluation, same: bool, most: int) -> dict[str, Any]:
    """The JSON of one pair: problems, metrics and at most `most` flips each way.

    `same`: both are one and the same evaluation.
    """
    matching = match_problems(a.asked, b.asked)
    ids = list(matching.known_as)
    theirs = a.values.reindex(ids)
    ours = b.values.reindex(list(matching.known_as.values())).set_axis(ids)
    return {
        "problems": {
            "a": len(a.asked),
            "b": len(b.asked),
            "common": len(ids),
            "reworded": matching.reworded,
        },
        "best_temperature": {"a": a.best_temperature, "b": b.best_temperature},
        "metrics": compare_metrics(ours, theirs, same) if ids else {},
        "only_a": sorted({*a.values} - {*b.values}),
        "only_b": sorted({*b.values} - {*a.values}),
        "flips": find_flipped_answers(a, b, matching, most),
    }


def match_problems(a: pd.DataFrame, b: pd.DataFrame) -> Matching:
    """Pairs problems by what is asked and the right answer, whatever their ids: an id may name another problem in other
    data.
    """
    ours = _collect_problem_contents(a)
    theirs = _collect_problem_contents(b)
    ids_b = {content: problem_id for problem_id, content in theirs.items()}
    known_as = {problem_id: ids_b[content] for problem_id, content in ours.items() if content in ids_b}
    reworded = sum(content != theirs[problem_id] for problem_id, content in ours.items() if problem_id in theirs)
    return Matching(known_as, reworded)


def _collect_problem_contents(problems: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Problem id -> what is asked and answered; of equal problems the second has a number, and so on."""
    columns = [problems[name] if name in problems else pd.Series("", problems.index) for name in CONTENT]
    seen: Counter[tuple[str, ...]] = Counter()
    contents = {}
    for problem_id, *content in zip(problems["problem_id"], *columns, strict=True):
        key = tuple(map(str, content))
        contents[str(problem_id)] = (*key, str(seen[key]))
        seen[key] += 1
    return contents


def compare_metrics(ours: pd.DataFrame, theirs: pd.DataFrame, same: bool = False) -> dict[str, dict[str, Any]]:
    """`ours` minus `theirs` by metric: means `a` (theirs) and `b` (ours), difference, interval, and of right and wrong
    what changed.

    Both have a row for each problem, in the same order. One and the same evaluation differs by exactly 0. Points may
    all be 0 or 1 by chance: only shares are right or wrong.
    """
    metrics = [str(name) for name in ours.columns.intersection(theirs.columns)]
    binary = {
        name: paired_intervals.compare_binary_outcomes(ours[name], theirs[name])
        for name in metrics
        if name.startswith(SHARES)
    }
    others = [name for name in metrics if not binary.get(name)] if not same else []
    drawn = (
        dict(zip(others, paired_intervals.bootstrap_mean_differences(ours[others] - theirs[others]), strict=True))
        if others
        else {}
    )
    by_metric: dict[str, dict[str, Any]] = {}
    for name in metrics:
        changes = None
        if same:
            estimate = estimates.Estimate(0.0, 0.0, 0.0)
            kind = SAME
        elif exact := binary.get(name):
            (estimate, changes) = exact
            kind = paired_intervals.SCORE
        else:
            estimate = drawn[name]
            kind = paired_intervals.BOOTSTRAP
        by_metric[name] = {
            "a": float(theirs[name].mean()),
            "b": float(ours[name].mean()),
            "difference": estimate.mean,
            "low": estimate.low,
            "high": estimate.high,
            "interval": kind,
            **(vars(changes) if changes else {}),
        }
    return by_metric


def find_flipped_answers(
    a: Evaluation, b: Evaluation, matching: Matching, most: int
) -> dict[str, list[dict[str, Any]]]:
    """The problems whose greedy answer is right in one evaluation alone: `gained` in B, `lost` from A; at most `most`
    each.
    """
    flipped: dict[str, list[dict[str, Any]]] = {"gained": [], "lost": []}
    if FLIPPED not in a.answers or FLIPPED not in b.answers:
        return flipped
    before, after = map(_select_greedy_answers, (a, b))
    problems = a.asked.set_index("problem_id")
    for problem_id, other_id in matching.known_as.items():
        was = before[problem_id]
        now = after[other_id]
        if was[FLIPPED] == now[FLIPPED]:
            continue
        flipped["gained" if now[FLIPPED] else "lost"].append(
            {
                "problem": problem_id,
                "question": str(problems.loc[problem_id, "question"]),
                "reference": str(problems.loc[problem_id, "answer"]),
                "a": _describe_answer(was),
                "b": _describe_answer(now),
            }
        )
    return {way: rows[:most] for way, rows in flipped.items()}


def _select_greedy_answers(evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    answers = evaluation.answers[evaluation.answers["temperature"] == 0]
    return {str(row["problem_id"]): row for row in tables.list_records(answers)}


def _describe_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": str(answer["response"]), "ended": bool(answer["ended"])}
