"""The report's first sentences: what the policies gained by measures that a change of temperature alone cannot move.

Greedy accuracy has no temperature; the other accuracy is taken at each policy's own best temperature, the baseline's too.
"""

from collections.abc import Callable, Iterator

from tasks.common.estimates import Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.scoreboard import BEST, Results, at, gain, interval, means, spoken, text

VERBS = {1: "raised", 0: "not clearly changed", -1: "lowered"}  # by the paired 95 % interval: above 0, around it, below


def sentence(results: Results, by: str, problems: int) -> str:
    """The one sentence that a page begins with and a run ends with: the best policy, what it reaches, and its gain with the interval."""
    if not results.answered:
        return next(_unanswered(results))
    metric, named = best_policies(results, by)
    top = results.baseline if results.baseline in named or not named else named[0]
    reached = text("strict", results.judged[top]["strict_greedy"])
    right = f"answers {reached} of the {problems} test problems right (greedy answers)"
    chosen = "on validation problems" if metric == "strict_validation" else f"by {metric}"
    subject = f"{top}, the best policy {chosen}," if named else top
    if top not in results.changes:
        return f"{subject} {right}."
    change = results.changes[top]["strict_greedy"]
    low, high = (f"{100 * end:+.1f}" for end in (change.estimate.low, change.estimate.high))
    before = text("strict", results.judged[results.baseline]["strict_greedy"])
    chance = "" if change.side else ", which may be chance"
    return (
        f"{subject} {right}, {results.baseline} {before}. The difference is {gain(change)} points "
        f"(95 % interval {low} to {high}){chance}."
    )


def headline(results: Results) -> list[str]:
    """Whole sentences, the most important first."""
    if not results.answered:
        return list(_unanswered(results))
    return [*_start(results), *_later(results), *_untrained(results), *_owed(results)]


def best_policies(results: Results, by: str) -> tuple[str, list[str]]:
    """A metric of the evaluations without its sign, and which policies are best by it: of several metrics that begin so a policy's largest
    counts, after a minus its lowest. None where no policy has it."""
    metric, sign = by.removeprefix("-"), -1 if by.startswith("-") else 1
    scores = {policy: max(sign * one.mean for one in found) for policy, found in _by(results, metric).items()}
    highest = max(scores.values(), default=0.0)
    return metric, [policy for policy, score in scores.items() if score == highest]


def _by(results: Results, metric: str) -> dict[str, list[Estimate]]:
    """Policy -> its estimates of the metrics that are called so or begin so; policies without one are left out."""
    found = {
        policy: [estimate for name, estimate in judged.items() if name == metric or name.startswith(f"{metric}_")]
        for policy, judged in results.judged.items()
    }
    return {policy: estimates for policy, estimates in found.items() if estimates}


def best(results: Results, by: str) -> list[str]:
    """Which policies are best by a metric of the evaluations, and what they reach."""
    metric, names = best_policies(results, by)
    if not names:
        return [f"No policy has a metric {metric}, by which report.best_by would name the best."]
    reach = min if by.startswith("-") else max
    reached = reach(one.mean for one in _by(results, metric)[names[0]])
    return [f"By {metric} the best {'is' if len(names) == 1 else 'are'} {', '.join(names)}, with {reached:.4g}."]


def edges(results: Results) -> list[str]:
    """The policies whose best temperature is the lowest or the highest candidate: a still better one may lie beyond.

    Nothing lies beyond 0, where answers are greedy.
    """
    prefix = "strict_validation_t"
    candidates = [float(name.removeprefix(prefix)) for name in results.metrics if name.startswith(prefix)]
    ends = {end: name for end, name in ((min(candidates), "lowest"), (max(candidates), "highest")) if end}
    named: dict[str, list[str]] = {}
    for policy, temperature in results.best.items():
        if len(set(candidates)) > 1 and temperature in ends:
            named.setdefault(f"{ends[temperature]}, {temperature:g}", []).append(policy)
    return [f"the {end}, for {', '.join(policies)}" for end, policies in named.items()]


def _unanswered(results: Results) -> Iterator[str]:
    """What changed where no right answers are known: likelihoods, preferences, lengths."""
    base, first = results.judged[results.baseline], next(iter(results.judged))
    if "reference_loss" in base and first != results.baseline:
        before, change = results.judged[first]["reference_loss"], results.changes[first]["reference_loss"]
        from_to = f"from {first}'s {text('reference_loss', before)} to {text('reference_loss', base['reference_loss'])}"
        yield f"With {results.baseline}, the loss on the reference responses was {VERBS[-change.side]} {from_to} nats a token."
    if "reference_loss" in base and (results.later or first == results.baseline):
        yield (
            f"The reference responses cost {results.baseline} {text('reference_loss', base['reference_loss'])} nats a token"
            + _then(results, "reference_loss", "+.2f")
        )
    for policy in results.later:
        found = results.judged[policy]
        parts = []
        if won := found.get("win_rate_greedy"):
            parts.append(
                f"its greedy answers win {text('win_rate', won)} ({interval('win_rate', won)}) of the comparisons with {results.baseline}'s"
            )
        if told := found.get("pair_accuracy"):
            parts.append(
                f"it tells {text('pair_accuracy', told)} ({interval('pair_accuracy', told)}) of the held-out pairs apart"
            )
        if parts:
            yield f"{policy}: {', and '.join(parts)}."
    yield (
        f"{results.baseline}'s greedy answers have {text('length', base['length_greedy'])} tokens"
        + _then(results, "length_greedy", "+.1f")
    )


def _then(results: Results, metric: str, form: str) -> str:
    """The rest of a sentence on the baseline: what later policies did to the metric."""
    if not results.later:
        return "."
    return f"; this was {_groups(results, metric, lambda policy, change: f'{policy} ({_signed(change.estimate.mean, form)})')}."


def _signed(change: float, form: str) -> str:
    """The change in this form, or by its first digit where no other is left of it."""
    shown = f"{change:{form}}"
    return f"{change:+.1g}" if change and float(shown) == 0 else shown


def _start(results: Results) -> Iterator[str]:
    """What the baseline gained over the first policy."""
    first, base = next(iter(results.judged)), results.judged[results.baseline]["strict_greedy"]
    if first == results.baseline:
        yield f"{first} comes first: its greedy answers are right on {text('strict', base)} of the problems."
        return
    before, change = results.judged[first]["strict_greedy"], results.changes[first]["strict_greedy"]
    from_to = f"from {first}'s {text('strict', before)} to {text('strict', base)}"
    yield f"With {results.baseline}, accuracy of the greedy answers was {VERBS[-change.side]} {from_to}."


def _later(results: Results) -> Iterator[str]:
    """Who raised, did not clearly change or lowered what."""
    if not results.later:
        return
    base = results.judged[results.baseline]

    def counted(policy: str, change: Difference) -> str:
        counts = f", {change.changes.gained} gained and {change.changes.lost} lost" if change.changes else ""
        return f"{policy} ({gain(change)} points{counts})"

    def pointed(policy: str, change: Difference) -> str:
        return f"{policy} ({gain(change)} {at(results.best[policy])})"

    def plain(policy: str, change: Difference) -> str:
        return f"{policy} ({change.estimate.mean:+.2f})"

    greedy, best = text("strict", base["strict_greedy"]), results.mean_at(BEST)
    yield f"Over {results.baseline}'s {greedy}, greedy accuracy was {_groups(results, 'strict_greedy', counted)}."
    if any(results.best[policy] for policy in (results.baseline, *results.later)):
        yield (
            f"Over its {text('strict', base[best])} at its best temperature ({at(results.best[results.baseline])}), "
            f"accuracy at each policy's own best temperature was {_groups(results, best, pointed)}."
        )
    else:
        yield "Sampled at a temperature, none of them has a higher accuracy on validation problems than greedily."
    if "rubric_greedy" not in base:
        return
    points = text("rubric", base["rubric_greedy"])
    yield f"Over its {points} of 10 points, the rubric score of greedy answers was {_groups(results, 'rubric_greedy', plain)}."


def _groups(results: Results, metric: str, say: Callable[[str, Difference], str]) -> str:
    """The policies by what they did to a metric; the largest change first."""
    groups: dict[int, list[str]] = {}
    for policy in sorted(results.later, key=lambda policy: -results.changes[policy][metric].estimate.mean):
        change = results.changes[policy][metric]
        groups.setdefault(change.side, []).append(say(policy, change))
    return "; ".join(f"{VERBS[side]} by {', '.join(groups[side])}" for side in (1, 0, -1) if side in groups)


def _untrained(results: Results) -> Iterator[str]:
    """What the baseline reaches by a temperature, a vote or a choice among its samples."""
    base = results.judged[results.baseline]
    reached = [f"{text('strict', base[metric])} ({means(results, metric)})" for metric in results.controls]
    if results.later and reached:
        yield f"Without any training, {results.baseline} reaches {', '.join(reached)}."


def _owed(results: Results) -> Iterator[str]:
    """How much of the largest gain at the highest temperature comes from giving other kinds of answers."""
    hot = results.hottest
    for name, temperatures in results.components.items():
        if policies := temperatures.get(hot):
            policy = max(policies, key=lambda policy: policies[policy].total.mean)
            parts = policies[policy]
            if parts.total.low > 0:
                yield (
                    f"At temperature {spoken(hot)}, where accuracy also measures how certain a policy is, {policy} gained "
                    f"{100 * parts.total.mean:.1f} points; {100 * parts.share.mean:.1f} of them are owed to giving more "
                    f"answers with {name}, not to being right more often with or without them."
                )
