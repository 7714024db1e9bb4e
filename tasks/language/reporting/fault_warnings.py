"""The faults that a run shows of itself: a box on the report's page for each, by a threshold that stands here.

A box is given where the run's own numbers pass the threshold, and only then. What is said to have risen or fallen did
so beyond chance: the paired interval of its change lies wholly above or below 0, corrected for the number of policies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tasks.common import tables
from tasks.language.reporting import gain_warnings
from tasks.language.reporting.comparing import Answers, get_answer_temperature
from tasks.language.reporting.gold import GOLD
from tasks.language.reporting.metric_wording import format_estimate_mean, format_temperature
from tasks.language.reporting.reward_section import Section
from tasks.language.reporting.scoreboard import Results

UNENDED = 0.1  # share of a policy's answers that the length limit cut off
LONGER = 0.1  # growth of the mean length, as a share of the baseline's
PAID = 0.2  # correlation of reward and length among answers to one problem that are equally right
WRONG = 0.05  # accuracy that the policy with the highest reward lacks to the most accurate one
FORM = 0.1  # rise of the share of samples in the asked form, from the first to the last tenth of the steps
RIGHT_TOO = 0.2  # of that rise, the part by which the share of right samples has to rise as well
LESS_LIKELY = 0.2  # nats an answer; the cure of presets/fault-dpo-likelihood.yaml leaves less
ALIKE = 0.5  # share of the groups of answers without spread, at the end of training
AWAY = 0.01  # nats a token from the reference, at the end of training
# standard deviation over tokens of the KL term's derivative; at AWAY k2's and k3's are several times this
PUSHED_ALIKE = 0.01
SAMPLER = "sampling/logp_difference"  # of a curve
MISMATCH = 0.005  # nats by which a token's log-probability differs between sampling and training, before any update


@dataclass(frozen=True)
class WatchOut:
    """One box: a fault, a sentence for each policy that shows it, by its numbers, and what may help."""

    title: str
    found: list[str]
    advice: str


def collect_fault_warnings(
    results: Results,
    drawn: Mapping[str, pd.DataFrame],
    answers: Answers,
    baseline: Mapping[str, Any],
    reward: Section | None = None,
) -> list[WatchOut]:
    """The boxes of a run, from its evaluations, curves (`drawn`), answers and reward model; `baseline` is what the
    baseline's evaluation says of itself.
    """
    boxes = [
        *_iterate_gain_warnings(results, drawn, reward),
        *_iterate_evaluation_warnings(results, drawn, answers, baseline),
        *_iterate_curve_warnings(drawn),
    ]
    return [box for box in boxes if box.found]


def _iterate_gain_warnings(
    results: Results, drawn: Mapping[str, pd.DataFrame], reward: Section | None
) -> Iterator[WatchOut]:
    yield WatchOut(
        "The baseline or its control had not converged",
        [*gain_warnings.iterate_unconverged_warnings(results, drawn)],
        "Trained on, it gains by itself. Train it longer, or count against a control whose loss is flat.",
    )
    yield WatchOut(
        "The gain is paid for elsewhere",
        [*gain_warnings.iterate_tradeoff_warnings(results)],
        "What a reward does not see is given up for what it sees; or a control learned it from its demonstrations, and "
        "the policy did not. A reward that sees it, or fewer steps, help.",
    )
    yield WatchOut(
        "Gains by manner alone",
        [*gain_warnings.iterate_manner_only_warnings(results)],
        "The policy answers as a reader wants it more often, but solves no more problems.",
    )
    yield WatchOut(
        "The reward model adds nothing",
        [*gain_warnings.iterate_reward_model_gain_warnings(reward)],
        "What it says, the policy said before. More pairs, or labels that the policy does not foresee, help.",
    )
    yield WatchOut(
        "The reward model prefers right answers less than the policy does",
        [*gain_warnings.iterate_reward_correctness_warnings(reward)],
        "Its labels judge something else, or it has not learned all that they say. A reward that checks the answer has "
        "to count beside it.",
    )


def _iterate_evaluation_warnings(
    results: Results, drawn: Mapping[str, pd.DataFrame], answers: Answers, baseline: Mapping[str, Any]
) -> Iterator[WatchOut]:
    yield WatchOut(
        "Some test problems were left out",
        [*iterate_left_out_problem_warnings(baseline)],
        "Shorter answers or a longer context make room.",
    )
    yield WatchOut("Nothing to learn from", [*iterate_untrained_policy_warnings(results, drawn)], "Its log says why.")
    yield WatchOut(
        "Answers that do not end",
        [*iterate_unended_answer_warnings(results)],
        "Either answers need more room (evaluate.max_new_tokens), or the end token was never learned: is it in the "
        "loss of SFT?",
    )
    yield WatchOut(
        "The best policy by reward is not the best policy",
        [*iterate_misleading_reward_warnings(results)],
        "The reward model was trained to judge something else, or misjudges answers unlike those that it learned "
        "from. Do not choose a policy by its reward.",
    )
    yield WatchOut(
        "An over-optimised reward model",
        [*iterate_overoptimisation_warnings(results)],
        "A stronger pull to the reference, fewer steps or a better reward model help.",
    )
    yield WatchOut(
        "Longer answers are paid for",
        [*iterate_length_reward_warnings(results, answers)],
        "Pairs of equal length for the reward model, or a reward that does not grow with length, help.",
    )


def _iterate_curve_warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[WatchOut]:
    yield WatchOut(
        "The form is learned, right answers are not",
        [*iterate_form_only_warnings(drawn)],
        "A reward for the form alone is earned by any answer in that form. A reward for right answers "
        "has to count beside it.",
    )
    yield WatchOut(
        "Chosen answers became less likely",
        [*iterate_chosen_likelihood_warnings(drawn)],
        "The margin alone holds neither answer. A larger beta, or more weight of the chosen answers' likelihood "
        "(dpo.nll), holds the chosen ones.",
    )
    yield WatchOut(
        "Most groups teach nothing",
        [*iterate_zero_spread_warnings(drawn)],
        "Where all answers of a group earn the same, their advantages are 0. Harder or easier prompts, more "
        "samples or a finer reward give spread.",
    )
    yield WatchOut(
        "The KL term holds nothing",
        [*iterate_ineffective_kl_warnings(drawn)],
        "k1 in the loss pushes all tokens down alike, which on average has no effect. kl=k2 or k3 holds the policy.",
    )
    yield WatchOut(
        "The sampler is not the trainer",
        [*iterate_sampler_mismatch_warnings(drawn)],
        "Temperature, top-p or number format differ between sampling and training, and nothing corrects for it.",
    )


def iterate_left_out_problem_warnings(evaluation: Mapping[str, Any]) -> Iterator[str]:
    """An evaluation is of a part of the test problems."""
    if long := evaluation.get("too_long"):
        yield (
            f"{long} of the {evaluation['asked'] + long} test problems were left out: the models have no "
            "positions for their "
            "prompts and evaluate.max_new_tokens more."
        )


def iterate_untrained_policy_warnings(results: Results, drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A later policy took no step: it is the policy that it started from."""
    for name in results.later:
        if name in drawn and drawn[name].empty:
            yield f"{name}: there was nothing to learn from, so that it is the policy that it started from."


def iterate_unended_answer_warnings(results: Results) -> Iterator[str]:
    """A policy from the baseline on gives no end token before the length limit."""
    ended = {name: results.judged[name]["ended_greedy"].mean for name in (results.baseline, *results.later)}
    cut: dict[str, list[str]] = {}
    for name, share in ended.items():
        if share < 1 - UNENDED:
            cut.setdefault(f"{100 * (1 - share):.0f} %", []).append(name)
    if cut:
        shares = "; ".join(f"{share} of those of {', '.join(names)}" for share, names in cut.items())
        yield f"The length limit cut off greedy answers: {shares}."


def iterate_misleading_reward_warnings(results: Results) -> Iterator[str]:
    """The policy with the highest mean reward is far from the one that is right most often, in greedy answers or in
    samples.
    """
    judged = results.judged
    hot = results.highest_temperature
    if not results.answered:
        return
    kinds = {
        "greedy answers": ("reward_greedy", "strict_greedy"),
        f"answers sampled at {format_temperature(hot)}": (f"reward_sampled_{hot}", results.get_mean_metric(hot)),
    }
    for kind, (reward, accuracy) in kinds.items():
        if not all(reward in estimates for estimates in judged.values()):
            continue
        top, most = (max(judged, key=lambda name: judged[name][by].mean) for by in (reward, accuracy))
        if judged[most][accuracy].mean - judged[top][accuracy].mean > WRONG:
            scores = [
                f"{format_estimate_mean('reward', judged[name][reward])}, "
                f"{format_estimate_mean('strict', judged[name][accuracy])} right"
                for name in (top, most)
            ]
            yield f"{top} has the highest reward of {kind} ({scores[0]}). {most} is right most often ({scores[1]})."


def iterate_overoptimisation_warnings(results: Results) -> Iterator[str]:
    """A policy gained reward and lost accuracy or gold answers, or where gold is not measured rubric points
    (arXiv:2210.10760).
    """
    hot = results.highest_temperature
    kinds = {"greedy": "greedy answers", f"sampled_{hot}": f"answers sampled at {format_temperature(hot)}"}
    for name in results.later:
        for kind, kind_label in kinds.items():
            changes = results.changes[name]
            accuracy = "strict_greedy" if kind == "greedy" else results.get_mean_metric(hot) if results.answered else ""
            reward = changes.get(f"reward_{kind}")
            gold = changes.get(f"gold_{kind}")
            rubric = None if GOLD in changes else changes.get(f"rubric_{kind}")
            fell = []
            if gold and gold.interval_sign < 0:
                fell.append(f"{-100 * gold.estimate.mean:.1f} points of gold answers")
            if rubric and rubric.interval_sign < 0:
                fell.append(f"{-rubric.estimate.mean:.2f} rubric points")
            if accuracy in changes and changes[accuracy].interval_sign < 0:
                fell.append(f"{-100 * changes[accuracy].estimate.mean:.1f} points of accuracy")
            if reward and reward.interval_sign > 0 and fell:
                yield (
                    f"{name}: against {results.baseline} it gained {reward.estimate.mean:.2f} of reward and lost "
                    f"{' and '.join(fell)} ({kind_label})."
                )
                break


def iterate_length_reward_warnings(results: Results, answers: Answers) -> Iterator[str]:
    """A policy's answers grew, its accuracy did not, and the reward model pays for length."""
    for name in results.later:
        changes = results.changes[name]
        length = changes.get("length_greedy")
        reward = changes.get("reward_greedy")
        if length is None or reward is None or length.interval_sign <= 0 or reward.interval_sign <= 0:
            continue
        grown = length.estimate.mean / results.judged[results.baseline]["length_greedy"].mean
        better = results.answered and changes["strict_greedy"].interval_sign > 0
        paid = compute_reward_length_correlation(
            answers[name], get_answer_temperature(results.highest_temperature, results.best, name)
        )
        if grown >= LONGER and not better and paid >= PAID:
            yield (
                f"{name}: its greedy answers are {100 * grown:.0f} % longer than {results.baseline}'s and earn "
                "more reward, but are not right "
                "more often. Among answers to one problem that are equally right, reward and length correlate by "
                f"{paid:.2f}."
            )


def compute_reward_length_correlation(generations: pd.DataFrame, temperature: float) -> float:
    """The correlation of reward and length among answers to one problem that are equally right; 0 where nothing
    varies.
    """
    drawn = generations[generations["temperature"] == temperature]
    equal = drawn.groupby(["problem_id", *(["strict"] if "strict" in drawn else [])])
    length, reward = (drawn[name] - equal[name].transform("mean") for name in ("length", "reward"))
    spread = float(np.sqrt((length**2).sum() * (reward**2).sum()))
    return float((length * reward).sum() / spread) if spread else 0.0


def iterate_form_only_warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """More of a policy's samples are in the asked form at the end than at the start, and hardly more are right."""
    names = ["rewards/format", "rewards/verifiable"]
    for name, frame in drawn.items():
        if not {*names} <= {*frame} or frame.empty:
            continue
        start = _average_first_tenth(frame)[names]
        end = _average_last_tenth(frame)[names]
        form, right = end - start
        if form >= FORM and right < RIGHT_TOO * form:
            ends = [f"from {100 * start[part]:.0f} to {100 * end[part]:.0f} %" for part in names]
            yield (
                f"{name}: samples that end with a line `#### N` went {ends[0]}, samples that are right {ends[1]} "
                "(first against last tenth "
                "of the steps)."
            )


def iterate_chosen_likelihood_warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A preference-tuned policy's chosen answers became less likely, though its margin may have grown."""
    for name, frame in drawn.items():
        if "logps/chosen_change" not in frame or frame.empty:
            continue
        end = _average_last_tenth(frame)
        if end["logps/chosen_change"] < -LESS_LIKELY:
            further = end["rewards/rejected"] < end["rewards/chosen"]
            yield (
                f"{name}: the chosen answers became less likely, by {-end['logps/chosen_change']:.2f} nats an "
                "answer against the "
                "reference (mean of the last tenth of the steps)."
                + (" The margin grew because the rejected ones fell further." if further else "")
            )


def iterate_zero_spread_warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Most groups of answers have no spread of reward."""
    for name, frame in drawn.items():
        if (
            "frac_reward_zero_std" in frame
            and len(frame)
            and (share := _average_last_tenth(frame)["frac_reward_zero_std"]) >= ALIKE
        ):
            yield (
                f"{name}: in {100 * share:.0f} % of the groups all answers earned the same reward (mean of the "
                "last tenth of the steps)."
            )


def iterate_ineffective_kl_warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """A policy left the reference, and the KL term in its loss pushes all tokens alike, near or far
    (arXiv:2506.09477).
    """
    for name, frame in drawn.items():
        if not {"kl", "kl_slope_std"} <= {*frame} or frame.empty:
            continue
        end = _average_last_tenth(frame)
        if end["kl"] >= AWAY and end["kl_slope_std"] < PUSHED_ALIKE:
            yield (
                f"{name}: it is {end['kl']:.3f} nats a token from the reference, and the KL term in its loss "
                "pushes all tokens down alike "
                "(mean of the last tenth of the steps)."
            )


def iterate_sampler_mismatch_warnings(drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """The sampler's probabilities are not the trainer's, before any update."""
    for name, frame in drawn.items():
        if SAMPLER in frame and len(frame) and (apart := float(frame[SAMPLER].mean())) > MISMATCH:
            yield (
                f"{name}: before any update a token's log-probability differs by {apart:.3f} nats between sampling "
                "and training "
                "(mean over the steps)."
            )


def _average_first_tenth(frame: pd.DataFrame) -> pd.Series:
    """Means over the first tenth of the steps, as many as the last tenth has."""
    means: pd.Series = frame.head(len(frame[tables.slice_last_tenth(len(frame))])).mean()
    return means


def _average_last_tenth(frame: pd.DataFrame) -> pd.Series:
    """Means over the last tenth of the steps."""
    means: pd.Series = frame[tables.slice_last_tenth(len(frame))].mean()
    return means
