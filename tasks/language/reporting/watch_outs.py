"""The faults that a run shows of itself: a box on the report's page for each, by a threshold that stands here.

A box is given where the run's own numbers pass the threshold, and only then. What is said to have risen or fallen did so beyond chance: the
paired 95 % interval of its change lies wholly above or below 0.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tasks.common import tables
from tasks.language.reporting.comparing import Answers, answer_temperature
from tasks.language.reporting.scoreboard import Results, spoken, text

UNENDED = 0.1  # share of a policy's answers that the length limit cut off
LONGER = 0.1  # growth of the mean length, as a share of the baseline's
PAID = 0.2  # correlation of reward and length among answers to one problem that are equally right
WRONG = 0.05  # accuracy that the policy with the highest reward lacks to the most accurate one
ALIKE = 0.5  # share of the groups of answers without spread, at the end of training
MISMATCH = 0.005  # nats by which a token's log-probability differs between sampling and training, before any update


@dataclass(frozen=True)
class WatchOut:
    """One box: what is wrong, by which numbers, and what to look at."""

    title: str
    text: str


def watch_outs(
    results: Results, drawn: Mapping[str, pd.DataFrame], answers: Answers, baseline: Mapping[str, Any]
) -> list[WatchOut]:
    """The boxes of a run, from its evaluations, curves (`drawn`) and answers; `baseline` is what the baseline's evaluation says of itself."""
    return [
        *_left_out(baseline),
        *_untrained(results, drawn),
        *unended(results),
        *wrong_favourite(results),
        *over_optimised(results),
        *paid_by_length(results, answers),
        *less_likely(drawn),
        *groups_alike(drawn),
        *mismatched(drawn),
    ]


def _left_out(found: Mapping[str, Any]) -> Iterator[WatchOut]:
    """An evaluation is of a part of the test problems."""
    if long := found.get("too_long"):
        yield WatchOut(
            "Some test problems were left out",
            f"{long} of the {found['asked'] + long} test problems were left out: the models have no positions for their "
            "prompts and evaluate.max_new_tokens more.",
        )


def _untrained(results: Results, drawn: Mapping[str, pd.DataFrame]) -> Iterator[WatchOut]:
    """A later policy took no step: it is the policy that it started from."""
    for name in results.later:
        if name in drawn and drawn[name].empty:
            yield WatchOut(
                f"{name} did not train",
                f"{name}: there was nothing to learn from, so that it is the policy that it started from (its log says why).",
            )


def unended(results: Results) -> Iterator[WatchOut]:
    """A policy from the baseline on leaves answers open: it gives no end token before the length limit."""
    for name in (results.baseline, *results.later):
        found = results.judged[name]
        if (ended := found["ended_greedy"].mean) < 1 - UNENDED:
            yield WatchOut(
                f"{name} does not end its answers",
                f"{name}: the length limit cut off {100 * (1 - ended):.0f} % of its greedy answers (evaluate.max_new_tokens). "
                "Either answers need more room, or the end token was never learned: is it in the loss of SFT?",
            )


def wrong_favourite(results: Results) -> Iterator[WatchOut]:
    """The policy with the highest mean reward is not the one that is right most often, by far."""
    judged = results.judged
    if not results.answered or not all("reward_greedy" in found for found in judged.values()):
        return
    top, most = (max(judged, key=lambda name: judged[name][by].mean) for by in ("reward_greedy", "strict_greedy"))
    accuracy, reward = (judged[top][by] for by in ("strict_greedy", "reward_greedy"))
    if judged[most]["strict_greedy"].mean - accuracy.mean > WRONG:
        yield WatchOut(
            "The best model by reward is not the best model",
            f"{top} has the highest reward ({text('reward', reward)}), but only {text('strict', accuracy)} of its greedy answers "
            f"are right. {most} has {text('strict', judged[most]['strict_greedy'])} right with a reward of "
            f"{text('reward', judged[most]['reward_greedy'])}. The reward model misjudges answers of {top}'s kind: do not choose "
            "a model by it.",
        )


def over_optimised(results: Results) -> Iterator[WatchOut]:
    """A policy gained reward and lost accuracy or rubric points (arXiv:2210.10760)."""
    hot = results.hottest
    asked = [("reward_greedy", "rubric_greedy")]
    asked += [("reward_greedy", "strict_greedy")] if results.answered else []
    asked += [(f"reward_sampled_{hot}", f"rubric_sampled_{hot}")]
    asked += [(f"reward_sampled_{hot}", results.mean_at(hot))] if results.answered else []
    for name in results.later:
        changes = results.changes[name]
        for reward, gold in asked:
            if reward in changes and gold in changes and changes[reward].side > 0 > changes[gold].side:
                what = "the rubric's points" if gold.startswith("rubric") else "accuracy"
                fell = changes[gold].estimate.mean * (1 if gold.startswith("rubric") else 100)
                yield WatchOut(
                    f"{name} over-optimised the reward model",
                    f"{name}: against {results.baseline} the reward rose by {changes[reward].estimate.mean:.2f} while {what} fell by "
                    f"{-fell:.{2 if gold.startswith('rubric') else 1}f}"
                    f"{'' if gold.startswith('rubric') else ' points'} "
                    f"({'greedy answers' if gold.endswith('greedy') else f'answers sampled at {spoken(hot)}'}). A stronger pull to the "
                    "reference, fewer steps or a better reward model help.",
                )
                break


def paid_by_length(results: Results, answers: Answers) -> Iterator[WatchOut]:
    """A policy's answers grew, its accuracy did not, and the reward model pays for length."""
    for name in results.later:
        changes = results.changes[name]
        length, reward = changes.get("length_greedy"), changes.get("reward_greedy")
        if length is None or reward is None or length.side <= 0 or reward.side <= 0:
            continue
        grown = length.estimate.mean / results.judged[results.baseline]["length_greedy"].mean
        better = results.answered and changes["strict_greedy"].side > 0
        how = answer_temperature(results.hottest, results.best, name)
        paid = length_pay(answers[name], how)
        if grown >= LONGER and not better and paid >= PAID:
            yield WatchOut(
                f"{name} is paid for length",
                f"{name}: its greedy answers are {100 * grown:.0f} % longer than {results.baseline}'s and have more reward, but are not "
                f"right more often. Among answers to one problem that are equally right, reward and length correlate by {paid:.2f}.",
            )


def length_pay(generations: pd.DataFrame, temperature: float) -> float:
    """The correlation of reward and length among answers to one problem that are equally right; 0 where nothing varies."""
    drawn = generations[generations["temperature"] == temperature]
    equal = drawn.groupby(["problem_id", *(["strict"] if "strict" in drawn else [])])
    length, reward = (drawn[name] - equal[name].transform("mean") for name in ("length", "reward"))
    spread = float(np.sqrt((length**2).sum() * (reward**2).sum()))
    return float((length * reward).sum() / spread) if spread else 0.0


def less_likely(drawn: Mapping[str, pd.DataFrame]) -> Iterator[WatchOut]:
    """A preference-tuned policy's chosen answers became less likely, though its margin may have grown."""
    for name, frame in drawn.items():
        if "logps/chosen_change" not in frame or frame.empty:
            continue
        end = _end(frame)
        if end["logps/chosen_change"] < 0:
            further = end["rewards/rejected"] < end["rewards/chosen"]
            yield WatchOut(
                f"{name} made the chosen answers less likely",
                f"{name}: the chosen answers became less likely, by {-end['logps/chosen_change']:.2f} nats an answer against the "
                "reference (mean of the last tenth of the steps)."
                + (" The margin grew because the rejected ones fell further." if further else ""),
            )


def groups_alike(drawn: Mapping[str, pd.DataFrame]) -> Iterator[WatchOut]:
    """Most groups of answers have no spread of reward, so that they teach nothing."""
    for name, frame in drawn.items():
        if "frac_reward_zero_std" in frame and len(frame) and (share := _end(frame)["frac_reward_zero_std"]) >= ALIKE:
            yield WatchOut(
                f"Most of {name}'s groups teach nothing",
                f"{name}: in {100 * share:.0f} % of the groups all answers earned the same reward (mean of the last tenth of the "
                "steps). Their advantages are 0. Easier or harder prompts, more samples or a finer reward give them spread.",
            )


def mismatched(drawn: Mapping[str, pd.DataFrame]) -> Iterator[WatchOut]:
    """The sampler's probabilities are not the trainer's, before any update."""
    for name, frame in drawn.items():
        if "sampling/logp_difference" not in frame or frame.empty:
            continue
        if (apart := float(frame["sampling/logp_difference"].mean())) > MISMATCH:
            yield WatchOut(
                f"{name} samples from another distribution than it trains",
                f"{name}: before any update a token's log-probability differs by {apart:.3f} nats between sampling and training "
                "(mean over the steps). Temperature, top-p or number format differ, and nothing corrects for it.",
            )


def _end(frame: pd.DataFrame) -> pd.Series:
    """Means over the last tenth of the steps."""
    means: pd.Series = frame[tables.last_tenth(len(frame))].mean()
    return means
