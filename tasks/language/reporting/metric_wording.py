"""How the report names, explains and writes the numbers of an evaluation and their differences.

A metric is called KIND_HOW: a kind of MEANING, and greedy, sampled_t0.5, mean_at_8_t1.0 and so on
(tasks/language/reporting/measures.py).
"""

from math import isfinite

from tasks.common.estimates import CHANCE, Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.measures import WHY
from tasks.language.tables.problems import OTHER_KINDS

MEANING = {
    "strict": "the answer ends with the line #### N, and N is right",
    "lenient": "the final answer, the last that is marked or else the last number, is right, whatever its form",
    "greedy": "the likeliest answer, token by token",
    "sampled": "answers drawn from the policy at a temperature; a problem's are averaged first, as in mean@k",
    "best temperature": "each policy's own: the candidate at which most of its answers to validation problems are "
    "right; 0, for greedy answers, is one of them",
    "gold": "right, and as a reader wants it; no single reward, pair or choice of a checkpoint saw both together",
    "manner": "the share of what a reader wants of an answer beside its being right",
    "change": "the difference to the baseline on the same problems, with its paired interval",
    "by manner": "the part of the change of gold on problems that both policies have right, or both wrong",
    "by correctness": "the part of the change of gold on the other problems; both parts add up to the change",
    "gained, lost": "problems that the baseline has wrong and the policy right, and the other way round",
    "verdict over the baseline": "from the interval of the change; p: of the same test (McNemar's without a "
    "correction), corrected by Holm for the number of policies",
    "pass": "at least one of k sampled answers is right (unbiased estimate)",
    "majority": "the commonest answer of k samples is right; a tie counts by chance",
    "best of": "the answer that the reward model scores highest of k samples is right",
    "steps": "answers that show a worked step, an equation",
    "rubric": "points of 10: correctness, reasoning and clarity together",
    "correctness": "rubric points for the final answer, 0 to 5",
    "reasoning": "rubric points for steps that hold and lead to the answer, 0 to 3",
    "clarity": "rubric points for stating the answer plainly and being concise, 0 to 2",
    "win_rate": "answers to one problem compared by the rubric; a tie is half a win",
    "tie_rate": "of these comparisons the share that is a tie",
    "ranking_with_steps": "ranking of the pairs in which both answers show steps: does the reward model see more "
    "than that steps are shown?",
    "ranking": "pairs of one problem's answers with different rubric points that the reward model orders as the "
    "rubric does",
    "reward": "the reward model's score; only differences mean something",
    "kl": "nats an answer by which the policy has moved from the reference, both at that temperature (k1 estimate)",
    "length": "tokens of an answer, the end token included",
    "timed_out": "answers whose formula took too long to judge, or ended the process that judges "
    "it; they count as wrong",
    "unjudged": "answers that nobody can judge, since the reference cannot be read; they count as not right",
    "ended": "answers closed by the end token within the length limit",
    "reference_loss": "nats a token that the reference responses cost the policy, a mean over "
    "problems; lower is better",
    "pair_accuracy": "held-out pairs whose preferred response gained more log-probability over the reference "
    "policy than the other; 50 % for the reference itself",
    "pair_likelihood": "held-out pairs whose preferred response has the higher log-probability a token",
    **OTHER_KINDS,
}
ACCURACIES = ("strict", "lenient", "gold")
ELSEWHERE = tuple(
    f"{kind}_greedy_{name}" for kind in ("strict", "gold") for name in OTHER_KINDS
)  # test problems of other kinds
OF_PAIRS = ("pair_accuracy", "pair_likelihood")
SHARES = (
    *ACCURACIES,
    *WHY,
    "manner",
    "ended",
    "steps",
    "win_rate",
    "tie_rate",
    "ranking",
    "ranking_with_steps",
    *OF_PAIRS,
)  # shown in percent
KINDS = ("steps",)  # of answers; told only where answers are right or wrong
OTHERS = (
    "manner",
    "rubric",
    "correctness",
    "reasoning",
    "clarity",
    "win_rate",
    "tie_rate",
    "reward",
    "ranking",
    "ranking_with_steps",
    "kl",
    "length",
    "ended",
    "steps",
    *WHY,
)
BEST = "tbest"
SURE = 0.001  # smaller p-values are not told apart


def parse_temperature_suffix(metric: str) -> str:
    """The end of a metric's name that says at which temperature: t0.5, tbest, greedy."""
    return metric.rpartition("_")[2]


def format_temperature(how: str) -> str:
    """A temperature as people say it."""
    return "its best temperature" if how == BEST else how.removeprefix("t")


def format_at_temperature(temperature: float) -> str:
    """How a policy answers at a temperature, as people say it."""
    return f"at {temperature:g}" if temperature else "greedily"


def format_metric_label(metric: str) -> str:
    """`strict_mean_at_8_t0.5` is `mean@8 at 0.5`, `rubric_sampled_t0.5` `rubric at 0.5`, `rubric_greedy` `rubric,
    greedy`.
    """
    how = parse_temperature_suffix(metric)
    brief = format_short_metric(metric)
    if metric in MEANING or metric in ELSEWHERE:
        return brief
    if how == "greedy":
        return brief if brief == "greedy" else f"{brief}, greedy"
    return f"{brief} at {format_temperature(how)}"


def format_short_metric(metric: str) -> str:
    """The same within a table of one temperature: `mean@8`, `rubric`."""
    kind = get_metric_kind(metric)
    if metric in ELSEWHERE:
        return f"{parse_temperature_suffix(metric)}{', gold' if kind == 'gold' else ''}"
    if kind not in ACCURACIES:
        return kind.replace("_", " ")
    middle = metric.removeprefix(f"{kind}_").removesuffix(f"_{parse_temperature_suffix(metric)}")
    return middle.replace("_of_", " of ").replace("_at_", "@").replace("_", " ")


def get_metric_kind(metric: str) -> str:
    """The key of MEANING that explains a metric."""
    return metric if metric in MEANING else next(kind for kind in MEANING if metric.startswith(f"{kind}_"))


def format_change_verdict(change: Difference, margin: float) -> str:
    """Above or below by the interval, equal where it lies within `margin` points of 0, or else undecided."""
    if change.interval_sign:
        return "above" if change.interval_sign > 0 else "below"
    return f"equal within {margin:g} points" if change.is_within_margin(margin / 100) else "undecided"


def format_p_value(p: float) -> str:
    """A p-value by three digits, or by more where these would put it on the other side of the level."""
    if p < SURE:
        return f"p < {SURE}"
    rounded = round(p, 3)
    return f"p = {p:.3f}" if (rounded < CHANCE) == (p < CHANCE) else f"p = {p:.5f}"


def format_gain_points(change: Difference) -> str:
    """A change of accuracy in points, with its sign."""
    return format_signed_number(100 * change.estimate.mean)


def format_change_interval(change: Difference) -> str:
    """The interval of a change of accuracy in points; nothing where there are too few problems for one."""
    if not isfinite(change.estimate.low):
        return ""
    return f"{format_signed_number(100 * change.estimate.low)} to {format_signed_number(100 * change.estimate.high)}"


def format_interval_level(change: Difference) -> str:
    """The level of a change's interval, which is above 95 % where several policies are compared."""
    return f"{100 * (1 - change.chance):.3g} %"


def format_signed_number(value: float, form: str = "+.1f") -> str:
    """The value in this form, or by its first digit where no other is left of it: a side of 0 stays visible."""
    shown = f"{value:{form}}"
    return f"{value:+.1g}" if abs(value) > 1e-9 and float(shown) == 0 else f"{float(shown) + 0.0:{form}}"


def format_estimate_mean(kind: str, estimate: Estimate) -> str:
    """The mean as people read it."""
    return _format_metric_value(kind, estimate.mean) + (" %" if kind in SHARES else "")


def format_estimate_interval(kind: str, estimate: Estimate) -> str:
    """The interval in the unit of `text`, nothing where there is none; of a share its part from 0 to 1."""
    limits = [estimate.low, estimate.high]
    if not any(map(isfinite, limits)):
        return ""
    if kind in SHARES:
        limits = [min(max(end, 0.0), 1.0) for end in limits]
    return " to ".join(_format_metric_value(kind, end) for end in limits)


def _format_metric_value(kind: str, value: float) -> str:
    rounded = round(100 * value, 1) if kind in SHARES else round(value, 2)
    return f"{rounded + 0.0:.{1 if kind in SHARES else 2}f}"  # + 0.0: no negative zero
