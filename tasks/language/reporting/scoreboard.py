"""How the report names, explains and shows the numbers of an evaluation: tables of policies.

A metric is called KIND_HOW: a kind of MEANING, and greedy, sampled_t0.5, mean_at_8_t1.0 and so on (tasks/language/reporting/measures.py).
Whether a policy differs from the baseline follows from the paired interval of the difference, problem by problem.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tasks.common.estimates import Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.measures import WHY
from tasks.language.reporting.strata import Components

MEANING = {
    "strict": "the answer ends with the line #### N, and N is right",
    "lenient": "the final answer, the last that is marked or else the last number, is right, whatever its form",
    "greedy": "the likeliest answer, token by token",
    "sampled": "answers drawn from the policy at a temperature; a problem's are averaged first, as in mean@k",
    "best temperature": "each policy's own: the candidate at which most of its answers to validation problems are right; 0, for greedy answers, is one of them",
    "change": "the difference to the baseline on the same problems, with a paired interval (bootstrap over problems)",
    "gained, lost": "problems that the baseline has wrong and the policy right, and the other way round; p: McNemar's exact test",
    "pass": "at least one of k sampled answers is right (unbiased estimate)",
    "majority": "the commonest answer of k samples is right; a tie counts by chance",
    "best of": "the answer that the reward model scores highest of k samples is right",
    "steps": "answers that show a worked step, an equation",
    "rubric": "points of 10: correctness, reasoning and clarity together",
    "correctness": "rubric points for the final answer, 0 to 5",
    "reasoning": "rubric points for steps that hold and lead to the answer, 0 to 3",
    "clarity": "rubric points for stating the answer plainly and being concise, 0 to 2",
    "win_rate": "answers to one problem compared by the rubric; a tie is half a win",
    "ranking_with_steps": "ranking of the pairs in which both answers show steps: does the reward model see more than that steps are shown?",
    "ranking": "pairs of one problem's answers with different rubric points that the reward model orders as the rubric does",
    "reward": "the reward model's score; only differences mean something",
    "kl": "nats an answer by which the policy has moved from the reference, both at that temperature (k1 estimate)",
    "length": "tokens of an answer, the end token included",
    "timed_out": "answers whose formula took too long to judge, or ended the process that judges it; they count as wrong",
    "unjudged": "answers that nobody can judge, since the reference cannot be read; they count as not right",
    "ended": "answers closed by the end token within the length limit",
    "reference_loss": "nats a token that the reference responses cost the policy, a mean over problems; lower is better",
    "pair_accuracy": "held-out pairs whose preferred response gained more log-probability over the reference policy than the other; 50 % for the reference itself",
    "pair_likelihood": "held-out pairs whose preferred response has the higher log-probability a token",
}
ACCURACIES = ("strict", "lenient")
OF_PAIRS = ("pair_accuracy", "pair_likelihood")
SHARES = (
    *ACCURACIES,
    *WHY,
    "ended",
    "steps",
    "win_rate",
    "ranking",
    "ranking_with_steps",
    *OF_PAIRS,
)  # shown in percent
KINDS = ("steps",)  # of answers; told only where answers are right or wrong
OTHERS = (
    "rubric",
    "correctness",
    "reasoning",
    "clarity",
    "win_rate",
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
MARKS = {1: "▲", 0: "", -1: "▼"}
SURE = 0.001  # smaller p-values are not told apart

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
    controls: Mapping[
        str, Difference
    ]  # metric of the untrained baseline -> its difference to the baseline's greedy answers
    # stratum -> temperature -> policy -> what its change is owed to
    components: Mapping[str, Mapping[str, Mapping[str, Components]]]

    @property
    def later(self) -> list[str]:
        """The policies after the baseline, which start from it."""
        names = list(self.judged)
        return names[names.index(self.baseline) + 1 :]

    @cached_property
    def metrics(self) -> list[str]:
        """Every metric of any policy."""
        return list(dict.fromkeys(name for metrics in self.judged.values() for name in metrics))

    @property
    def answered(self) -> bool:
        """Whether right answers are known, to the test problems and to those by which each policy's best temperature was chosen."""
        return all("strict_greedy" in found and name in self.best for name, found in self.judged.items())

    @cached_property
    def temperatures(self) -> list[str]:
        """The temperatures that were sampled at, as metrics name them; the policies' best ones last."""
        told = ("strict_mean_at_", "length_sampled_")
        return list(dict.fromkeys(temperature(name) for name in self.metrics if name.startswith(told)))

    @property
    def hottest(self) -> str:
        """The highest temperature that every policy was sampled at."""
        return max((how for how in self.temperatures if how != BEST), key=lambda how: float(how.removeprefix("t")))

    def mean_at(self, how: str) -> str:
        """The metric of strict accuracy averaged over the samples of a temperature."""
        return next(name for name in self.metrics if name.startswith("strict_mean_at_") and temperature(name) == how)


@dataclass(frozen=True)
class Table:
    """One row for each policy, one cell for each metric."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


def temperature(metric: str) -> str:
    """The end of a metric's name that says at which temperature: t0.5, tbest, greedy."""
    return metric.rpartition("_")[2]


def spoken(how: str) -> str:
    """A temperature as people say it."""
    return "its best temperature" if how == BEST else how.removeprefix("t")


def at(temperature: float) -> str:
    """How a policy answers at a temperature, as people say it."""
    return f"at {temperature:g}" if temperature else "greedily"


def label(metric: str) -> str:
    """`strict_mean_at_8_t0.5` is `mean@8 at 0.5`, `rubric_sampled_t0.5` `rubric at 0.5`, `rubric_greedy` `rubric, greedy`."""
    how, brief = temperature(metric), short(metric)
    if metric in MEANING:
        return brief
    if how == "greedy":
        return brief if brief == "greedy" else f"{brief}, greedy"
    return f"{brief} at {spoken(how)}"


def short(metric: str) -> str:
    """The same within a table of one temperature: `mean@8`, `rubric`."""
    kind = kind_of(metric)
    if kind not in ACCURACIES:
        return kind.replace("_", " ")
    middle = metric.removeprefix(f"{kind}_").removesuffix(f"_{temperature(metric)}")
    return middle.replace("_of_", " of ").replace("_at_", "@").replace("_", " ")


def kind_of(metric: str) -> str:
    """The key of MEANING that explains a metric."""
    return metric if metric in MEANING else next(kind for kind in MEANING if metric.startswith(f"{kind}_"))


def tables(results: Results) -> list[Table]:
    """The few numbers that matter most, then by strata where a change comes from, then all numbers.

    What repeats another number is left out: lenient accuracy where it is strict accuracy, pass@1, which is mean@k, and answers at each
    policy's best temperature where all of these are greedy.
    """
    names = [name for name in results.metrics if "_pass_at_1_" not in name and not _never(results, name)]
    greedy_is_best = not any(results.best.values())
    hows = [how for how in results.temperatures if not (how == BEST and greedy_is_best)]
    lenient = [name for name in names if name.startswith(("lenient_greedy", "lenient_mean_at_"))]
    plain = {"Lenient accuracy": [] if _repeats(results, lenient) else lenient}
    for how in hows:
        plain[f"Strict accuracy at {_of(how)}"] = [
            name
            for name in names
            if name.startswith("strict_") and temperature(name) == how and "_validation_" not in name
        ]
    for how in ("greedy", *hows):
        wanted = [f"{kind}_{how}" if how == "greedy" else f"{kind}_sampled_{how}" for kind in OTHERS]
        title = "Greedy answers" if how == "greedy" else f"Answers sampled at {_of(how)}"
        plain[title] = [name for name in wanted if name in names and (results.answered or kind_of(name) not in KINDS)]
    found = [_table(title, metrics, results) for title, metrics in plain.items() if metrics]
    return [glance(results) if results.answered else unanswered(results), *by_strata(results), *found]


def _repeats(results: Results, lenient: list[str]) -> bool:
    """Whether every policy's lenient accuracies are its strict ones."""
    return all(
        judged[name] == judged.get(name.replace("lenient_", "strict_", 1))
        for judged in results.judged.values()
        for name in lenient
        if name in judged
    )


def _never(results: Results, metric: str) -> bool:
    """Whether it says why answers are not right (it is then not shown), and no answer of any policy is of that kind."""
    return kind_of(metric) in WHY and not any(
        judged[metric].mean for judged in results.judged.values() if metric in judged
    )


def meaning(results: Results) -> dict[str, str]:
    """What the words of the tables mean, without those of numbers that were not measured."""
    of_accuracy = ("best temperature", "change", "gained, lost", "pass", "majority", "best of")
    by = "the rubric" if any(name.startswith("rubric_") for name in results.metrics) else "the reward model"
    shown = {kind_of(name) for name in results.metrics if not _never(results, name)} | {"greedy", "sampled"}
    shown -= set() if results.answered else {*KINDS}
    shown |= {*of_accuracy} if results.answered else {"change"}
    shown -= (
        {"lenient"} if _repeats(results, [name for name in results.metrics if name.startswith("lenient_")]) else set()
    )
    return {name: text.replace("the rubric;", f"{by};") for name, text in MEANING.items() if name in shown}


def unanswered(results: Results) -> Table:
    """What can be said where no right answers are known, each number marked where its change is beyond chance."""
    kinds = [f"{kind}_sampled_{results.hottest}" for kind in ("win_rate", "reward", "kl", "length")]
    wanted = ["reference_loss", *OF_PAIRS, "win_rate_greedy", "reward_greedy", "length_greedy", "ended_greedy", *kinds]
    shown = [name for name in wanted if name in results.metrics]
    rows = [(policy, [_marked(results, policy, name) for name in shown]) for policy in results.judged]
    return Table("At a glance", [label(name) for name in shown], rows)


def _of(how: str) -> str:
    return "each policy's best temperature" if how == BEST else f"temperature {spoken(how)}"


def glance(results: Results) -> Table:
    """The first columns are what no change of temperature alone can win; the last rows are what the baseline reaches untrained.

    Each policy's best temperature is told where one of them is not 0.
    """
    best, hot = results.mean_at(BEST), results.hottest
    sampled = any(results.best.values())
    more = [
        name
        for name in ("rubric_greedy", "length_greedy", f"reward_sampled_{hot}", f"kl_sampled_{hot}")
        if name in results.metrics
    ]
    rows = []
    for policy, found in results.judged.items():
        change = results.changes.get(policy, {})
        cells = [_cell("strict", found["strict_greedy"]), *_changed(change.get("strict_greedy"))]
        if sampled:
            at_best = _cell("strict", found[best])
            cells += [at_best | {"text": f"{at_best['text']} {at(results.best[policy])}"}]
            cells += _changed(change.get(best))[:1]
        rows.append((policy, cells + [_marked(results, policy, name) for name in more]))
    base = results.judged[results.baseline]
    for metric, gain in results.controls.items():
        cells = [_cell("strict", base[metric]), *_changed(gain)]
        rows.append((f"{results.baseline}, {means(results, metric)}", cells + [EMPTY] * (2 * sampled + len(more))))
    columns = ["greedy", "change", "gained, lost", *(["at its best temperature", "change"] if sampled else [])]
    return Table("At a glance", [*columns, *map(label, more)], rows)


def means(results: Results, metric: str) -> str:
    """How an untrained control reaches its accuracy: what is done with the baseline's samples, and at which temperature."""
    how, what = temperature(metric), short(metric)
    where = f"{at(results.best[results.baseline])}, its best" if how == BEST else f"at {spoken(how)}"
    return f"{'sampled' if what.startswith('mean@') else what} {where}"


def by_strata(results: Results) -> list[Table]:
    """For each stratum and temperature: how many answers are of which kind and right, and what a change is owed to."""
    found = []
    for name, temperatures in results.components.items():
        for how, policies in temperatures.items():
            shown = [f"{name}_sampled_{how}", f"strict_with_{name}_{how}", f"strict_without_{name}_{how}"]
            columns = [f"with {name}", f"right with {name}", f"right without {name}", "change of accuracy"]
            columns += [f"owed to more answers with {name}", f"to accuracy with {name}", f"to accuracy without {name}"]
            rows = []
            for policy in (results.baseline, *results.later):
                cells = [_marked(results, policy, metric) for metric in shown]
                parts = vars(policies[policy]).values() if policy in policies else ()
                cells += [_changed(Difference(part, None))[0] for part in parts] or [EMPTY] * 4
                rows.append((policy, cells))
            found.append(Table(f"Answers with and without {name}, sampled at {_of(how)}", columns, rows))
    return found


def _table(title: str, metrics: list[str], results: Results) -> Table:
    lenient = title.startswith("Lenient")
    columns = [label(name) if lenient else short(name) for name in metrics]
    return Table(
        title, columns, [(policy, [_marked(results, policy, name) for name in metrics]) for policy in results.judged]
    )


def _marked(results: Results, policy: str, metric: str) -> Cell:
    """A number with its interval, and an arrow where the paired interval of its change lies wholly above or below 0."""
    found, change = results.judged[policy].get(metric), results.changes.get(policy, {}).get(metric)
    if found is None:
        return EMPTY
    return _cell(kind_of(metric), found) | {"mark": MARKS[change.side] if change else ""}


def _cell(kind: str, estimate: Estimate) -> Cell:
    return {"text": text(kind, estimate), "interval": interval(kind, estimate), "mark": ""}


def _changed(change: Difference | None) -> list[Cell]:
    """A change of accuracy in points with its interval and arrow, and the numbers of problems gained and lost."""
    if change is None:
        return [EMPTY, EMPTY]
    low, high = (f"{100 * value:+.1f}" for value in (change.estimate.low, change.estimate.high))
    points = {"text": gain(change), "interval": f"{low} to {high}", "mark": MARKS[change.side]}
    if change.changes is None:
        return [points, EMPTY]
    p = change.changes.p
    sure = f"p < {SURE}" if p < SURE else f"p = {p:.3f}"
    return [points, {"text": f"{change.changes.gained}, {change.changes.lost}", "interval": sure, "mark": ""}]


def gain(change: Difference) -> str:
    """A change of accuracy in points, with its sign."""
    return f"{round(100 * change.estimate.mean, 1) + 0.0:+.1f}"


def text(kind: str, estimate: Estimate) -> str:
    """The mean as people read it."""
    return _written(kind, estimate.mean) + (" %" if kind in SHARES else "")


def interval(kind: str, estimate: Estimate) -> str:
    """The interval in the unit of `text`; of a share its part from 0 to 1, of which Student's over few seeds may know nothing."""
    ends = [estimate.low, estimate.high]
    if kind in SHARES:
        ends = [min(max(end, 0.0), 1.0) for end in ends]
    return " to ".join(_written(kind, end) for end in ends)


def _written(kind: str, value: float) -> str:
    rounded = round(100 * value, 1) if kind in SHARES else round(value, 2)
    return f"{rounded + 0.0:.{1 if kind in SHARES else 2}f}"  # + 0.0: no negative zero
