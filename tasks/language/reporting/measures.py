"""What an evaluation measures: one value for each problem and metric, and over all problems means with 95 % intervals.

A metric is called KIND_HOW: strict_greedy, rubric_sampled_t0.5, strict_mean_at_8_t1.0. The name of a sampled metric
ends in the temperature: t0.5, or tbest for the policy's own best temperature, chosen on validation problems. Where that
is 0, every sample is the greedy answer.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import pandas as pd

from tasks.common import estimates
from tasks.common.estimates import Estimate
from tasks.language.rewards import answers
from tasks.language.rewards.numerals import parse_number_ignoring_percent
from tasks.language.rewards.ranking_accuracy import compute_pair_order_agreement, has_worked_steps

ANSWERS: dict[str, Callable[[str], str | None]] = {
    "strict": answers.find_strict_answer_number,
    "lenient": answers.find_final_answer_number,
}
WHY = ("timed_out", "unjudged")  # an answer is not right
# Kinds of answers. Each is a column of the generations.
STRATA: dict[str, Callable[[str], bool]] = {"steps": has_worked_steps}
SHARES = (*ANSWERS, *WHY, "ended", "gold", *STRATA)  # of answers; the others are means of numbers
NUMBERS = ("manner", "rubric", "correctness", "reasoning", "clarity", "reward", "length", "kl")
BEST = "tbest"
RIGHT_ANSWER = object()  # whatever its form
RIGHT = {  # of an answer
    "strict": "is right by the line `#### N` at its end (or, if the reference is no number, is marked and right)",
    "lenient": "is right, whatever its form",
}
MEANS = {  # of answers
    "timed_out": "share whose formula took too long to judge, or ended the process that judges it; they count as wrong",
    "unjudged": "share that nobody can judge, since the reference cannot be read; they count as not right",
    "ended": "share that the end token closed within the length limit",
    "gold": "share that is right, with the reference's steps, each result named, and nothing else; no reward and "
    "no pair is made from it",
    "steps": "share that shows a worked step",
    "manner": "mean share of the points for manner, which need no right answer: results named, steps "
    "valid, brief, in order",
    "rubric": "mean rubric points, of 10",
    "correctness": "mean rubric points for the final answer, of 5",
    "reasoning": "mean rubric points for steps that hold and lead to the answer, of 3",
    "clarity": "mean rubric points for plain and concise answers, of 2",
    "reward": "mean score by the reward model, of which only differences mean something",
    "length": "mean length in tokens, the end token included",
}
METRICS = {
    **{f"{name}_greedy": f"The share of the problems whose greedy answer {right}." for name, right in RIGHT.items()},
    **{f"{name}_greedy": f"Of the greedy answers, the {mean}." for name, mean in MEANS.items()},
    **{
        f"{name}_{how}_T": text.format(right)
        for name, right in RIGHT.items()
        for how, text in {
            "mean_at_K": "The share of the K answers to a problem that {}, a mean over problems.",
            "pass_at_K": "The probability that at least one of K answers {} (unbiased estimate).",
            "majority_at_K": "The share of the problems where the commonest of K answers {}; a tie counts by chance.",
            "best_of_K": "The share of the problems where the answer that the reward model scores highest of K {}.",
        }.items()
    },
    **{f"{name}_sampled_T": f"Of the sampled answers, the {mean}." for name, mean in MEANS.items()},
    "kl_sampled_T": "The mean log-ratio of a sampled answer to the reference, both at T: an estimate of the KL "
    "divergence in nats (k1).",
    "reference_loss": "The mean negative log-likelihood a token of the problems' reference responses, in nats; "
    "lower is better. Measured where no answers are known.",
    "ranking_sampled_T": "The share of the pairs of a problem's answers with different rubric points that the "
    "reward model orders as the rubric does.",
    "ranking_with_steps_sampled_T": "The same share over the pairs in which both answers show steps: whether the "
    "reward model sees more than that steps are shown.",
}


def format_temperature_suffix(temperature: float) -> str:
    """How a metric names a temperature."""
    return f"t{float(temperature)}"


def compute_problem_measures(
    generations: pd.DataFrame, references: Mapping[str, str], temperatures: Mapping[str, float], pass_at: Sequence[int]
) -> pd.DataFrame:
    """One row for each problem by its id, one column for each metric; `temperatures` by their names in metrics.

    `references` has the right answer to each problem.
    """
    greedy = generations[generations["temperature"] == 0].set_index("problem_id")
    columns = [
        name for name in (*SHARES, *NUMBERS) if name in generations and name != "kl"
    ]  # of greedy answers it is none
    values = {f"{name}_greedy": greedy[name].astype(float) for name in columns}
    for how, temperature in temperatures.items():
        sampled = generations[generations["temperature"] == temperature]
        if temperature == 0:
            draws = range(generations["sample"].max() + 1)
            sampled = pd.concat([sampled.assign(sample=draw) for draw in draws]).drop(columns="kl", errors="ignore")
        values |= {f"{name}_{how}": column for name, column in _iterate_sampled_measures(sampled, references, pass_at)}
    return pd.DataFrame(values).sort_index()


def _iterate_sampled_measures(
    sampled: pd.DataFrame, references: Mapping[str, str], pass_at: Sequence[int]
) -> Iterator[tuple[str, pd.Series]]:
    """Metrics of the answers drawn at one temperature, k to each problem."""
    problems = sampled.groupby("problem_id")
    k = int(problems.size().iloc[0])
    means = problems[[name for name in (*SHARES, *NUMBERS) if name in sampled]].mean()
    for name, find in ANSWERS.items():
        if name not in sampled:
            continue
        correct = problems[name].sum()
        yield f"{name}_mean_at_{k}", means[name]
        for at in pass_at:
            yield f"{name}_pass_at_{at}", pd.Series(estimates.pass_at_k(correct, k, at), correct.index)
        yield f"{name}_majority_at_{k}", _compute_majority_correctness(problems[["response", name]], references, find)
        if "reward" in sampled:
            yield f"{name}_best_of_{k}", _compute_best_of_correctness(sampled, name)
    for name in means.columns.drop(list(ANSWERS), errors="ignore"):
        yield f"{name}_sampled", means[name]


def collect_answer_votes(
    texts: Sequence[str], right: Sequence[bool], reference: str, find: Callable[[str], str | None]
) -> tuple[list[Hashable | None], Hashable]:
    """What each answer to a problem votes for, None for nothing, and the right vote.

    Numbers are one answer if they are equal, others if their texts are.
    """

    if (right_number := parse_number_ignoring_percent(reference)) is not None:
        return [parse_number_ignoring_percent(find(text) or "") for text in texts], right_number
    marked = [mark.text if (mark := answers.find_marked_answer(text)) else None for text in texts]
    right_texts = {text for text, correct in zip(marked, right, strict=True) if correct and text}
    return [RIGHT_ANSWER if text in right_texts else text for text in marked], RIGHT_ANSWER


def _compute_majority_correctness(
    answered: Iterable[tuple[object, pd.DataFrame]], references: Mapping[str, str], find: Callable[[str], str | None]
) -> pd.Series:
    """Whether the commonest answer is right, for each problem."""
    return pd.Series(
        {
            str(problem_id): estimates.majority_vote_accuracy(
                *collect_answer_votes(
                    drawn["response"].tolist(), drawn.iloc[:, 1].tolist(), references[str(problem_id)], find
                )
            )
            for problem_id, drawn in answered
        }
    )


def _compute_best_of_correctness(sampled: pd.DataFrame, name: str) -> pd.Series:
    tables = [sampled.pivot(index="problem_id", columns="sample", values=column) for column in ("reward", name)]
    return pd.Series(estimates.best_of_k_accuracy(*tables), tables[0].index)


def summarise_measures(values: pd.DataFrame, seed: int, resamples: int) -> dict[str, Estimate]:
    """Every column's mean over problems: shares with Wilson's interval, other means with a bootstrap one."""
    return {
        name: estimates.estimate_share(values[name])
        if name.startswith(tuple(f"{kind}_" for kind in SHARES))
        else estimates.bootstrap_mean(values[name], seed, resamples)
        for name in map(str, values)
    }


def compute_ranking_accuracies(
    generations: pd.DataFrame, temperatures: Mapping[str, float], seed: int, resamples: int
) -> dict[str, Estimate]:
    """Share of the pairs of one problem's answers that the reward orders as the rubric does; nothing where there is no
    reward.

    Pairs of equal points and of equal texts are left out.
    """
    result = {}
    columns = ("reward", "rubric", "response")
    for how, temperature in temperatures.items() if {"reward", "rubric"} <= {*generations} else ():
        problems = generations[generations["temperature"] == temperature].groupby("problem_id")
        orderings = [compute_pair_order_agreement(*(rows[name].tolist() for name in columns)) for _, rows in problems]
        for kind, pairs in (("ranking", "all"), ("ranking_with_steps", "both_show_steps")):
            right = [ordering[pairs].sum() for ordering in orderings]
            count = [len(ordering[pairs]) for ordering in orderings]
            if sum(count):
                result[f"{kind}_sampled_{how}"] = estimates.bootstrap_ratio(right, count, seed, resamples)
    return result
