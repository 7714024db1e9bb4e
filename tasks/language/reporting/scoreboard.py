"""All that the report shows of the policies, and its tables of them.

The first table alone is marked: of the hundreds of other numbers some would be apart from the baseline's by chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tasks.common.estimates import CHANCE, Estimate
from tasks.language.reporting.differences import FEWEST, Difference
from tasks.language.reporting.gold import GOLD, PARTS
from tasks.language.reporting.measures import WHY
from tasks.language.reporting.metric_wording import (
    BEST,
    ELSEWHERE,
    KINDS,
    MEANING,
    OF_PAIRS,
    OTHERS,
    format_at_temperature,
    format_change_interval,
    format_change_verdict,
    format_estimate_interval,
    format_estimate_mean,
    format_gain_points,
    format_interval_level,
    format_metric_label,
    format_p_value,
    format_short_metric,
    format_temperature,
    get_metric_kind,
    parse_temperature_suffix,
)
from tasks.language.tables.problems import OTHER_KINDS

MARKS = {1: "▲", 0: "", -1: "▼"}

Evaluations = Mapping[str, Mapping[str, Estimate]]  # policy -> metric -> estimate
Cell = dict[str, str]  # text, interval, mark
EMPTY: Cell = {"text": "", "interval": "", "mark": ""}


@dataclass(frozen=True)
class Results:
    """All that is shown of the policies, in the pipeline's order."""

    judged: Evaluations
    baseline: str
    best: Mapping[str, float]  # policy -> its best temperature
    changes: Mapping[str, Mapping[str, Difference]]  # policy -> metric -> its difference to the baseline's
    controls: tuple[str, ...] = ()  # policies that no method has trained
    # metric of the baseline's samples -> its difference to the baseline's greedy answers
    untrained: Mapping[str, Difference] = field(default_factory=dict)
    # method -> its difference to the rival by `first`
    over_rival: Mapping[str, Difference] = field(default_factory=dict)
    # method -> metric -> its difference to the rival's by what a gain may be paid in; nothing where the rival is the
    # baseline
    rival_changes: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)

    @property
    def later(self) -> list[str]:
        """The policies after the baseline, which start from it."""
        names = list(self.judged)
        return names[names.index(self.baseline) + 1 :]

    @property
    def methods(self) -> list[str]:
        """The later policies that are no controls."""
        return [name for name in self.later if name not in self.controls]

    @property
    def first(self) -> str:
        """The metric that counts first: right greedy answers, or where none are known the loss of the reference
        responses.
        """
        return "strict_greedy" if self.answered else "reference_loss"

    @property
    def rival(self) -> str:
        """What a method is held against: the better control, or the baseline where there is none or it is better
        still.
        """
        means = {
            name: self.judged[name][self.first].mean
            for name in (*self.controls, self.baseline)
            if self.first in self.judged[name]
        }
        if not means:
            return self.baseline
        best = max(means.values()) if self.answered else min(means.values())
        return next(name for name, mean in means.items() if mean == best)

    @cached_property
    def metrics(self) -> list[str]:
        """Every metric of any policy."""
        return list(dict.fromkeys(name for metrics in self.judged.values() for name in metrics))

    @property
    def answered(self) -> bool:
        """Whether right answers to the test problems are known."""
        return all("strict_greedy" in estimates for estimates in self.judged.values())

    @cached_property
    def temperatures(self) -> list[str]:
        """The temperatures that were sampled at, as metrics name them; the policies' best ones last."""
        prefixes = ("strict_mean_at_", "length_sampled_")
        return list(dict.fromkeys(parse_temperature_suffix(name) for name in self.metrics if name.startswith(prefixes)))

    @property
    def highest_temperature(self) -> str:
        """The highest temperature that every policy was sampled at."""
        return max((how for how in self.temperatures if how != BEST), key=lambda how: float(how.removeprefix("t")))

    def get_mean_metric(self, how: str) -> str:
        """The metric of strict accuracy averaged over the samples of a temperature."""
        return next(
            name
            for name in self.metrics
            if name.startswith("strict_mean_at_") and parse_temperature_suffix(name) == how
        )


@dataclass(frozen=True)
class ScoreTable:
    """One row for each policy, one cell for each metric."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


def build_score_tables(results: Results, margin: float = 0.0) -> list[ScoreTable]:
    """The few numbers that matter most, then all numbers; `margin` is what counts as equal, in points.

    What repeats another number is left out: lenient accuracy where it is strict accuracy, pass@1, which is mean@k, and
    answers at each policy's best temperature where all of these are greedy.
    """
    names = [
        name for name in results.metrics if "_pass_at_1_" not in name and not _is_unused_failure_metric(results, name)
    ]
    hows = [how for how in results.temperatures if how != BEST or any(results.best.values())]
    lenient = [name for name in names if name.startswith(("lenient_greedy", "lenient_mean_at_"))]
    plain = {
        "Greedy answers to problems of other kinds": [name for name in ELSEWHERE if name in names],
        "Lenient accuracy": [] if _is_lenient_same_as_strict(results, lenient) else lenient,
    }
    for title, kind in (("Strict accuracy", "strict_"), ("Gold answers", "gold_")):
        for how in hows:
            kind_names = [name for name in names if name.startswith(kind) and parse_temperature_suffix(name) == how]
            plain[f"{title} at {_format_temperature_phrase(how)}"] = [
                name for name in kind_names if "_validation_" not in name
            ]
    for how in ("greedy", *hows):
        wanted = [f"{kind}_{how}" if how == "greedy" else f"{kind}_sampled_{how}" for kind in OTHERS]
        title = "Greedy answers" if how == "greedy" else f"Answers sampled at {_format_temperature_phrase(how)}"
        plain[title] = [
            name for name in wanted if name in names and (results.answered or get_metric_kind(name) not in KINDS)
        ]
    first = (
        [build_overview_table(results, margin), *build_untrained_tables(results)]
        if results.answered
        else [build_unanswered_table(results)]
    )
    return [*first, *(_build_score_table(title, metrics, results) for title, metrics in plain.items() if metrics)]


def _is_lenient_same_as_strict(results: Results, lenient: list[str]) -> bool:
    """Whether every policy's lenient accuracies are its strict ones."""
    return all(
        judged[name] == judged.get(name.replace("lenient_", "strict_", 1))
        for judged in results.judged.values()
        for name in lenient
        if name in judged
    )


def _is_unused_failure_metric(results: Results, metric: str) -> bool:
    """Whether it says why answers are not right (it is then not shown), and no answer of any policy is of that kind."""
    return get_metric_kind(metric) in WHY and not any(
        judged[metric].mean for judged in results.judged.values() if metric in judged
    )


def collect_metric_meanings(results: Results) -> dict[str, str]:
    """What the words of the tables mean, without those of numbers that were not measured."""
    of_accuracy = ("best temperature", "change", "gained, lost", "verdict", "pass", "majority", "best of")
    by = "the rubric" if any(name.startswith("rubric_") for name in results.metrics) else "the reward model"
    shown = {get_metric_kind(name) for name in results.metrics if not _is_unused_failure_metric(results, name)} | {
        "greedy",
        "sampled",
    }
    shown |= {"by manner", "by correctness"} if GOLD in results.metrics else set()
    shown |= {kind for kind in OTHER_KINDS if f"strict_greedy_{kind}" in results.metrics}
    shown -= set() if results.answered else {*KINDS}
    shown |= {*of_accuracy} if results.answered else {"change"}
    shown -= (
        {"lenient"}
        if _is_lenient_same_as_strict(results, [name for name in results.metrics if name.startswith("lenient_")])
        else set()
    )
    return {name: text.replace("the rubric;", f"{by};") for name, text in MEANING.items() if name in shown}


def format_table_notes(results: Results) -> list[str]:
    """How the first table's intervals and marks come about, in sentences."""
    tested = [change for changes in results.changes.values() for change in changes.values() if change.p is not None]
    if not results.changes:
        return []
    if not tested:
        return [f"Of fewer than {FEWEST} problems no interval is shown and nothing is marked."]
    count = len(results.changes)
    other = f", or to {results.rival}" if results.rival != results.baseline else ""
    lines = [
        f"Changes are differences to {results.baseline}{other} on the same problems. ▲ and ▼: the change is above "
        "or below 0 by its "
        "interval, which is to say that its p is below 5 %."
    ]
    if count > 1:
        lines.append(
            f"Both are corrected by Holm's procedure for the {count} policies: a change's interval is at the level "
            "at which the procedure "
            "stopped, above 95 %. Intervals of a policy's own numbers are at 95 %."
        )
        if results.rival != results.baseline and len(results.over_rival) != count:
            lines.append(f"The column over {results.rival} is corrected for the {len(results.over_rival)} in it.")
    return lines


def build_unanswered_table(results: Results) -> ScoreTable:
    """What can be said where no right answers are known, each number marked where its change is beyond chance."""
    kinds = [f"{kind}_sampled_{results.highest_temperature}" for kind in ("win_rate", "reward", "kl", "length")]
    wanted = ["reference_loss", *OF_PAIRS, "win_rate_greedy", "reward_greedy", "length_greedy", "ended_greedy", *kinds]
    shown = [name for name in wanted if name in results.metrics]
    rows = [(policy, [_make_marked_cell(results, policy, name) for name in shown]) for policy in results.judged]
    return ScoreTable("At a glance", [format_metric_label(name) for name in shown], rows)


def _format_temperature_phrase(how: str) -> str:
    return "each policy's best temperature" if how == BEST else f"temperature {format_temperature(how)}"


def build_overview_table(results: Results, margin: float) -> ScoreTable:
    """Right answers, and what each policy gains over the baseline and over the better control; gold answers, and what
    gains them.
    """
    rival = [] if results.rival == results.baseline else [f"over {results.rival}"]
    has_gold = all(GOLD in estimates for estimates in results.judged.values())
    gold = ["gold", "change", *(name.removeprefix("gold_").replace("_", " ") for name in PARTS)] if has_gold else []
    wanted = ["manner_greedy"] if has_gold else ["rubric_greedy", "win_rate_greedy", "tie_rate_greedy"]
    more = [name for name in wanted if name in results.metrics]
    rows = []
    for policy, estimates in results.judged.items():
        changes = results.changes.get(policy, {})
        change = changes.get("strict_greedy")
        cells = [
            _make_estimate_cell("strict", estimates["strict_greedy"]),
            *_make_change_cells(change),
            _make_verdict_cell(change, margin),
        ]
        cells += [_make_points_cell(results.over_rival.get(policy)) for _ in rival]
        if gold:
            cells += [
                _make_estimate_cell("gold", estimates[GOLD]),
                *(_make_points_cell(changes.get(name)) for name in (GOLD, *PARTS)),
            ]
        kind = ", control" if policy in results.controls else ""
        rows.append((f"{policy}{kind}", cells + [_make_marked_cell(results, policy, name) for name in more]))
    verdict = f"verdict over {results.baseline}"
    columns = ["right answers", "change", "gained, lost", verdict, *rival, *gold, *map(format_short_metric, more)]
    return ScoreTable("At a glance", columns, rows)


def build_untrained_tables(results: Results) -> list[ScoreTable]:
    """What the baseline reaches without any training, by a temperature, a vote or a choice among its samples."""
    base = results.judged[results.baseline]
    rows = [
        (
            format_untrained_method(results, metric),
            [_make_estimate_cell("strict", base[metric]), *_make_change_cells(gain)],
        )
        for metric, gain in results.untrained.items()
    ]
    columns = ["right answers", "change to its greedy answers", "gained, lost"]
    return [ScoreTable(f"What {results.baseline} reaches without training", columns, rows)] if rows else []


def format_untrained_method(results: Results, metric: str) -> str:
    """How an untrained control reaches its accuracy: what is done with the baseline's samples, and at which
    temperature.
    """
    how = parse_temperature_suffix(metric)
    what = format_short_metric(metric)
    where = (
        f"{format_at_temperature(results.best[results.baseline])}, its best"
        if how == BEST
        else f"at {format_temperature(how)}"
    )
    return f"{'sampled' if what.startswith('mean@') else what} {where}"


def _build_score_table(title: str, metrics: list[str], results: Results) -> ScoreTable:
    columns = [
        format_metric_label(name) if title.startswith("Lenient") else format_short_metric(name) for name in metrics
    ]
    rows = []
    for policy, estimates in results.judged.items():
        cells = [
            _make_estimate_cell(get_metric_kind(name), estimates[name]) if name in estimates else EMPTY
            for name in metrics
        ]
        rows.append((f"{policy}, {format_at_temperature(results.best[policy])}" if "best" in title else policy, cells))
    return ScoreTable(title, columns, rows)


def _make_marked_cell(results: Results, policy: str, metric: str) -> Cell:
    """A number with its interval, and an arrow where its change is apart from 0."""
    estimate = results.judged[policy].get(metric)
    change = results.changes.get(policy, {}).get(metric)
    if estimate is None:
        return EMPTY
    return _make_estimate_cell(get_metric_kind(metric), estimate) | {
        "mark": MARKS[change.interval_sign] if change else ""
    }


def _make_estimate_cell(kind: str, estimate: Estimate) -> Cell:
    return {
        "text": format_estimate_mean(kind, estimate),
        "interval": format_estimate_interval(kind, estimate),
        "mark": "",
    }


def _make_change_cells(change: Difference | None) -> list[Cell]:
    """A change of accuracy in points with its interval and arrow, and the numbers of problems gained and lost."""
    if change is None or change.changes is None:
        return [_make_points_cell(change), EMPTY]
    return [_make_points_cell(change), EMPTY | {"text": f"{change.changes.gained}, {change.changes.lost}"}]


def _make_points_cell(change: Difference | None) -> Cell:
    """A change of accuracy in points with its interval and arrow."""
    if change is None:
        return EMPTY
    interval = format_change_interval(change)
    if interval and change.chance != CHANCE:
        interval += f" at {format_interval_level(change)}"
    return {"text": format_gain_points(change), "interval": interval, "mark": MARKS[change.interval_sign]}


def _make_verdict_cell(change: Difference | None, margin: float) -> Cell:
    """What the interval of a change allows to say, with the p of the same test."""
    if change is None or change.p is None:
        return EMPTY
    return EMPTY | {"text": format_change_verdict(change, margin), "interval": format_p_value(change.p)}
