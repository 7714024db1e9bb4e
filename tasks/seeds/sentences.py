"""What may be said of several seeds, in whole sentences, each with what it rests on."""

from collections.abc import Iterator, Sequence

from tasks.common.estimates import Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.headline import format_selection_metric, select_best_policies
from tasks.language.reporting.metric_wording import format_estimate_mean
from tasks.language.reporting.scoreboard import Results

FIRST = ("strict_greedy", "reference_loss")  # what is compared: right answers, or where none are known the loss


def format_seed_conclusions(seeds: Results, problems: Results, by: str, names: Sequence[str]) -> list[str]:
    """First the best policy, then what each policy's difference to the baseline rests on."""
    metric = FIRST[0] if seeds.answered else FIRST[1]
    opening = f"Over seeds {', '.join(names[:-1])} and {names[-1]}"
    chosen, best = select_best_policies(seeds, by, [name for name in seeds.judged if name not in seeds.controls])
    top = seeds.baseline if seeds.baseline in best or not best else best[0]
    reached, before = (
        format_estimate_mean(_get_metric_kind(metric), seeds.judged[policy][metric]) for policy in (top, seeds.baseline)
    )
    unit = (
        "of the test problems right (greedy answers)" if seeds.answered else "nats a token of the reference responses"
    )
    how = "answers" if seeds.answered else "needs"
    subject = f"{top}, on average the best policy {format_selection_metric(chosen)}," if best else top
    lead = f"{opening}, {subject} {how} {reached} {unit}"
    if top in seeds.changes:
        over_seeds, over_problems = (results.changes[top][metric].estimate for results in (seeds, problems))
        rest = _explain_difference(seeds.changes[top][metric], problems.changes[top][metric])
        lead += (
            f", {seeds.baseline} {before}. The difference is {_format_change(metric, over_seeds.mean)} "
            f"({_format_interval(metric, over_seeds)} over seeds, {_format_interval(metric, over_problems)} over "
            f"problems): {rest}"
        )
    return [f"{lead}.", *_iterate_other_policy_sentences(seeds, problems, metric, top)]


def _iterate_other_policy_sentences(seeds: Results, problems: Results, metric: str, top: str) -> Iterator[str]:
    for policy in seeds.later:
        if policy == top or metric not in seeds.changes[policy]:
            continue
        change = seeds.changes[policy][metric]
        beside = problems.changes[policy][metric]
        yield (
            f"{policy}: {_format_change(metric, change.estimate.mean)} "
            f"({_format_interval(metric, change.estimate)} over seeds, {_format_interval(metric, beside.estimate)} "
            "over problems): "
            f"{_explain_difference(change, beside)}."
        )


def _explain_difference(over_seeds: Difference, over_problems: Difference) -> str:
    """What the intervals allow to say."""
    if not any(vars(over_seeds.estimate).values()):
        return "there is none"
    seeds = over_seeds.interval_sign
    problems = over_problems.interval_sign
    if seeds and seeds == problems:
        return "neither the seed nor the choice of problems explains it"
    if problems and not seeds:
        return "these trainings differ on such problems, but another seed may not"
    if seeds and not problems:
        return "all seeds agree, but on these problems it may be chance"
    return "it may be chance"


def _get_metric_kind(metric: str) -> str:
    return "strict" if metric.startswith("strict") else metric


def _format_change(metric: str, value: float) -> str:
    return f"{100 * value + 0.0:+.1f} points" if metric.startswith("strict") else f"{value + 0.0:+.3f} nats"


def _format_interval(metric: str, estimate: Estimate) -> str:
    scale, form = (100, "+.1f") if metric.startswith("strict") else (1, "+.3f")
    return f"{scale * estimate.low + 0.0:{form}} to {scale * estimate.high + 0.0:{form}}"
