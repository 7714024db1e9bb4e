"""The report's first sentences: what the policies gained by measures that a change of temperature alone cannot move."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

from tasks.common import paired_intervals
from tasks.common.estimates import CHANCE, Estimate
from tasks.language.reporting.differences import FEWEST, Difference
from tasks.language.reporting.gold import GOLD, PARTS
from tasks.language.reporting.metric_wording import (
    format_change_interval,
    format_estimate_interval,
    format_estimate_mean,
    format_gain_points,
    format_interval_level,
    format_metric_label,
    format_signed_number,
)
from tasks.language.reporting.scoreboard import Results, format_untrained_method

VERBS = {1: "raised", 0: "not clearly changed", -1: "lowered"}  # by the paired interval: above 0, around it, below
VALIDATION = "strict_validation"


@dataclass(frozen=True)
class Draw:
    """What a report is of: the one training that it shows, by its seed, and how many test problems."""

    seed: int
    problems: int

    @property
    def beginning(self) -> str:
        """How the first sentence begins."""
        return f"In this one draw (seed {self.seed}; another seed or processor would give other numbers) "


def format_first_sentence(results: Results, by: str, draw: Draw, margin: float) -> str:
    """The one sentence that a page begins with and a run ends with: that it is one draw, the best method, and whether
    it beats its rival.
    """
    if not results.answered:
        return draw.beginning + next(_iterate_unanswered_sentences(results))
    if not any(scores["strict_greedy"].mean for scores in results.judged.values()):
        return (
            f"No policy answers any of the {draw.problems} test problems right: a run of this size shows that the "
            "flow works, "
            "not that anything is learned."
        )
    metric, best = select_best_policies(results, by, results.methods)
    right = "answers {} of the " + f"{draw.problems} test problems right (greedy answers)"
    reached = {
        name: format_estimate_mean("strict", estimates["strict_greedy"]) for name, estimates in results.judged.items()
    }
    top = best[0] if best else results.methods[0] if len(results.methods) == 1 else results.baseline
    if top not in results.over_rival:
        return f"{draw.beginning}{top} {right.format(reached[top])}."
    subject = f"{top}, the best method {format_selection_metric(metric)}," if best and len(results.methods) > 1 else top
    change = results.over_rival[top]
    rival = results.rival
    verb = "beats" if change.interval_sign > 0 else "does not beat"
    return (
        f"{draw.beginning}{subject} {right.format(reached[top])} and {verb} {_format_rival_role(results)} {rival}, "
        "with "
        f"{reached[rival]}: "
        f"{format_gain_points(change)} points{_format_interval_verdict(change, margin)}."
    )


def _format_rival_role(results: Results) -> str:
    if results.rival == results.baseline:
        return "the baseline"
    return "the better control" if len(results.controls) > 1 else "the control"


def _format_interval_verdict(change: Difference, margin: float) -> str:
    """The interval in brackets, and what follows from it where 0 is within."""
    if not isfinite(change.estimate.low):
        return f", and fewer than {FEWEST} problems say no more"
    rest = "" if change.interval_sign else ", equal within " if change.is_within_margin(margin / 100) else ", undecided"
    rest += f"{margin:g} points" if rest.endswith("within ") else ""
    return f" ({format_interval_level(change)} interval {format_change_interval(change)}){rest}"


def format_selection_metric(metric: str) -> str:
    """What a metric is to a reader who is told of the best by it."""
    return (
        "on validation problems"
        if metric == VALIDATION
        else f"by {format_metric_label(metric) if '_' in metric else metric}"
    )


def format_headline_sentences(results: Results) -> list[str]:
    """Whole sentences, the most important first."""
    if not results.answered:
        names = tuple(results.judged)
        return [
            line if line.startswith(names) else line[0].upper() + line[1:]
            for line in _iterate_unanswered_sentences(results)
        ]
    return [
        *_iterate_baseline_sentences(results),
        *_iterate_later_policy_sentences(results),
        *_iterate_untrained_sentences(results),
    ]


def format_power_sentences(results: Results, problems: int) -> list[str]:
    """How small a difference this many problems show; nothing where none is tested.

    As many problems are taken to change as do on average over the later policies, and every one of the policies that
    are compared to be undecided, which asks most of each.
    """
    if not results.answered:
        return []
    families = {
        f"{results.baseline} and a later policy": [results.changes[name]["strict_greedy"] for name in results.later]
    }
    if results.rival != results.baseline:
        families[f"{results.rival} and a method"] = [*results.over_rival.values()]
    return [
        line for between, changes in families.items() for line in _iterate_power_sentences(changes, problems, between)
    ]


def _iterate_power_sentences(changes: list[Difference], problems: int, between: str) -> Iterator[str]:
    """The sentence for one family of comparisons, which are tested together; nothing where none is tested."""
    counts = [
        change.changes.gained + change.changes.lost for change in changes if change.changes and change.p is not None
    ]
    if any(counts):
        changed = sum(counts) / len(counts) / problems
        seen = paired_intervals.smallest_detectable_difference(changed, problems, CHANCE / len(changes))
        yield (
            f"On average {100 * changed:.1f} % of the {problems} problems change between {between}. With so many, "
            f"a true difference of {100 * seen:.1f} points is marked in four of five draws of such problems, a "
            "smaller one less often."
        )


def select_best_policies(results: Results, by: str, policies: list[str]) -> tuple[str, list[str]]:
    """A metric of the evaluations without its sign, and which of these policies are best by it: of several metrics that
    begin so a policy's largest counts, after a minus its lowest. None where no policy has it.
    """
    metric = by.removeprefix("-")
    scores: dict[str, float] = {}
    for policy in policies:
        policy_scores = [
            estimate.mean
            for name, estimate in results.judged[policy].items()
            if name == metric or name.startswith(f"{metric}_")
        ]
        if policy_scores:
            scores[policy] = -min(policy_scores) if by.startswith("-") else max(policy_scores)
    highest = max(scores.values(), default=0.0)
    return metric, [policy for policy, score in scores.items() if score == highest]


def format_missing_metric_notes(results: Results, by: str) -> list[str]:
    """That nothing says who is best, where no policy has the metric that is to say so."""
    metric, best = select_best_policies(results, by, list(results.judged))
    return [] if best else [f"No policy has a metric {metric}, by which report.best_by would name the best."]


def format_edge_temperatures(results: Results) -> list[str]:
    """The policies whose best temperature is the lowest or the highest candidate: a still better one may lie beyond.

    Nothing lies beyond 0, where answers are greedy.
    """
    prefix = "strict_validation_t"
    candidates = [float(name.removeprefix(prefix)) for name in results.metrics if name.startswith(prefix)]
    if len(set(candidates)) < 2:
        return []
    ends_of = {end: name for end, name in ((min(candidates), "lowest"), (max(candidates), "highest")) if end}
    named: dict[str, list[str]] = {}
    for policy, temperature in results.best.items():
        if temperature in ends_of:
            named.setdefault(f"{ends_of[temperature]}, {temperature:g}", []).append(policy)
    return [f"the {end}, for {', '.join(policies)}" for end, policies in named.items()]


def _iterate_unanswered_sentences(results: Results) -> Iterator[str]:
    """What changed where no right answers are known: likelihoods, preferences, lengths."""
    base = results.judged[results.baseline]
    first = next(iter(results.judged))
    if "reference_loss" in base and first != results.baseline:
        before = results.judged[first]["reference_loss"]
        change = results.changes[first]["reference_loss"]
        from_to = (
            f"from {first}'s {format_estimate_mean('reference_loss', before)} to "
            f"{format_estimate_mean('reference_loss', base['reference_loss'])}"
        )
        yield (
            f"with {results.baseline}, the loss on the reference responses was {VERBS[-change.interval_sign]} "
            f"{from_to} "
            "nats a token."
        )
    if "reference_loss" in base and (results.later or first == results.baseline):
        yield (
            (
                f"the reference responses cost {results.baseline} "
                f"{format_estimate_mean('reference_loss', base['reference_loss'])} "
                "nats a token"
            )
            + _format_later_changes(results, "reference_loss", "+.2f")
        )
    for policy in results.later:
        parts = [*_iterate_baseline_comparisons(results, policy)]
        if parts:
            yield f"{policy}: {', and '.join(parts)}."
    yield (
        f"{results.baseline}'s greedy answers have {format_estimate_mean('length', base['length_greedy'])} tokens"
        + _format_later_changes(results, "length_greedy", "+.1f")
    )


def _iterate_baseline_comparisons(results: Results, policy: str) -> Iterator[str]:
    estimates = results.judged[policy]
    if won := estimates.get("win_rate_greedy"):
        share = _format_mean_with_interval("win_rate", won)
        ties = format_estimate_mean("tie_rate", estimates["tie_rate_greedy"])
        yield f"its greedy answers win {share} of the comparisons with {results.baseline}'s ({ties} of them are ties)"
    if accuracy := estimates.get("pair_accuracy"):
        yield f"it tells {_format_mean_with_interval('pair_accuracy', accuracy)} of the held-out pairs apart"


def _format_mean_with_interval(kind: str, estimate: Estimate) -> str:
    limits = format_estimate_interval(kind, estimate)
    return format_estimate_mean(kind, estimate) + (f" ({limits})" if limits else "")


def _format_later_changes(results: Results, metric: str, form: str) -> str:
    """The rest of a sentence on the baseline: what later policies did to the metric."""
    if not results.later:
        return "."
    changed = _format_policies_by_change(
        results, metric, lambda policy, change: f"{policy} ({format_signed_number(change.estimate.mean, form)})"
    )
    return f"; this was {changed}."


def _iterate_baseline_sentences(results: Results) -> Iterator[str]:
    """What the baseline gained over the first policy."""
    first = next(iter(results.judged))
    base = results.judged[results.baseline]["strict_greedy"]
    if first == results.baseline:
        return
    before = results.judged[first]["strict_greedy"]
    change = results.changes[first]["strict_greedy"]
    from_to = f"from {first}'s {format_estimate_mean('strict', before)} to {format_estimate_mean('strict', base)}"
    yield f"With {results.baseline}, accuracy of the greedy answers was {VERBS[-change.interval_sign]} {from_to}."


def _iterate_later_policy_sentences(results: Results) -> Iterator[str]:
    """Who raised, did not clearly change or lowered right answers and gold ones, and by what."""
    if not results.later:
        return

    def counted(policy: str, change: Difference) -> str:
        counts = f", {change.changes.gained} gained and {change.changes.lost} lost" if change.changes else ""
        return f"{policy} ({format_gain_points(change)} points{counts})"

    def taken_apart(policy: str, change: Difference) -> str:
        manner, correctness = (format_gain_points(results.changes[policy][part]) for part in PARTS)
        return (
            f"{policy} ({format_gain_points(change)} points, {manner} of them by manner and {correctness} by being "
            "right)"
        )

    base = results.judged[results.baseline]
    greedy = format_estimate_mean("strict", base["strict_greedy"])
    yield (
        f"Over {results.baseline}'s {greedy}, greedy accuracy was "
        f"{_format_policies_by_change(results, 'strict_greedy', counted)}."
    )
    if all(GOLD in results.changes[policy] for policy in results.later):
        yield (
            f"Over its {format_estimate_mean('gold', base[GOLD])} of gold answers, right and as a reader wants them, "
            "their share was "
            f"{_format_policies_by_change(results, GOLD, taken_apart)}."
        )


def _format_policies_by_change(results: Results, metric: str, say: Callable[[str, Difference], str]) -> str:
    """The policies by what they did to a metric; the largest change first."""
    groups: dict[int, list[str]] = {}
    for policy in sorted(results.later, key=lambda policy: -results.changes[policy][metric].estimate.mean):
        change = results.changes[policy][metric]
        groups.setdefault(change.interval_sign, []).append(say(policy, change))
    return "; ".join(f"{VERBS[side]} by {', '.join(groups[side])}" for side in (1, 0, -1) if side in groups)


def _iterate_untrained_sentences(results: Results) -> Iterator[str]:
    """What the baseline reaches by a temperature, a vote or a choice among its samples."""
    base = results.judged[results.baseline]
    reached = [
        f"{format_estimate_mean('strict', base[metric])} ({format_untrained_method(results, metric)})"
        for metric in results.untrained
    ]
    if results.later and reached:
        yield f"Without any training, {results.baseline} reaches {', '.join(reached)}."
