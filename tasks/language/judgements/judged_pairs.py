"""What people judged, as pairs and rankings to learn from.

A pairwise judgement is a pair with its level of strength, and one of a ranking is all pairs that differ in rank. An
edit is a demonstration, which is better than each of the answers shown. Ties and "both bad" give no pair, and neither
do two equal texts. Which of two answers is `a` is decided by the order in which they were shown, as in the annotator's
pairs.

Left out are items with a known answer, which measure people, and unannounced repeats, which measure whether they agree
with themselves. Of several judgements of one item by one person the last counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from tasks.common.tables import Record
from tasks.language.data.annotated_pairs import score_by_rubric
from tasks.language.data.comparison_rows import unify_comparison_columns
from tasks.language.judgements import judgement_log
from tasks.language.judgements.lines import (
    TIES,
    Answer,
    AnswerScores,
    EditValue,
    Item,
    Judgement,
    PairwiseValue,
    RankingValue,
)
from tasks.language.tables.preferences import LEVELS, STRENGTHS

MODES = ("pairwise", "ranking", "edit")
BETTER = LEVELS.index("")
MAJORITY = "majority"  # in place of a person's name
Prompt = tuple[str, str]  # its text, and the turns before it


@dataclass
class JudgedPairs:
    """Rows of Comparisons and Rankings, in the order of prompts, and what the judgements were."""

    pairs: list[Record]
    rankings: list[Record]
    prompts: list[str]  # the ids of all prompts that were judged
    judgements: dict[str, int]  # by mode
    people: int
    both_bad: int
    equal: int  # pairs of equal texts


@dataclass(frozen=True)
class Vote:
    """One person's word on two answers of an item, in the order shown."""

    answers: tuple[Answer, Answer]
    sign: int  # 1: the first is better, -1: the second, 0: a tie
    level: int  # the place in LEVELS
    person: str

    @property
    def numbers(self) -> tuple[int, int]:
        """Both samples' numbers in order; a demonstration comes before all."""
        first, second = sorted(-1 if answer.source == "edit" else answer.sample for answer in self.answers)
        return first, second


@dataclass
class _Asked:
    """A prompt with all that was said of answers to it."""

    id: str
    text: Prompt
    votes: list[Vote] = field(default_factory=list)
    rankings: list[tuple[Item, list[int], str]] = field(default_factory=list)  # ranks, and who ranked


def select_counted_judgements(judgement_record: judgement_log.JudgementRecord) -> list[Judgement]:
    """The judgements that pairs are made of."""
    last = {
        (judgement.item, judgement.person): judgement
        for judgement in judgement_record.judgements
        if judgement.mode in MODES and not judgement.repeat and judgement_record.items[judgement.item].gold is None
    }
    return list(last.values())


def build_judged_pairs(
    judgement_record: judgement_log.JudgementRecord,
    problems: Mapping[str, Record],
    sampled: Mapping[Prompt, str],
    disagreement: Literal["each", "majority"],
) -> JudgedPairs:
    """Pairs and rankings of all judgements that count.

    `problems` has the problems by their ids, so that answers to them have rubric points, and `sampled` the ids of
    prompts by their texts, where a prompt of the record is one of the responses'.
    """
    judgements = select_counted_judgements(judgement_record)
    prompts: dict[Prompt, _Asked] = {}
    prompt_ids = {*sampled.values()}
    for judgement in judgements:
        item = judgement_record.items[judgement.item]
        text = item.prompt, item.history
        if text not in prompts:
            prompts[text] = _Asked(sampled.get(text) or _make_unique_prompt_id(item.prompt_id, prompt_ids), text)
            prompt_ids.add(prompts[text].id)
        prompts[text].votes += _iterate_votes(item, judgement)
        if (ranks := _find_answer_ranks(judgement)) is not None:
            prompts[text].rankings.append((item, ranks, judgement.person))
    pairs: list[Record] = []
    rankings: list[Record] = []
    equal = 0
    for prompt in sorted(prompts.values(), key=lambda prompt: prompt.id):
        problem = problems.get(prompt.id)
        problem = problem if problem and problem["question"] == prompt.text[0] else None
        votes = sorted(prompt.votes, key=lambda vote: vote.numbers)
        different = [vote for vote in votes if vote.answers[0].text != vote.answers[1].text]
        equal += len(votes) - len(different)
        pairs += _iterate_pair_rows(
            prompt, _merge_votes_by_majority(different) if disagreement == "majority" else different, problem
        )
        rankings += _iterate_ranking_rows(prompt, problem)
    return JudgedPairs(
        unify_comparison_columns(pairs),
        _drop_incomplete_columns(rankings),
        [prompt.id for prompt in prompts.values()],
        {mode: sum(judgement.mode == mode for judgement in judgements) for mode in MODES},
        len({judgement.person for judgement in judgements}),
        sum(
            isinstance(judgement.value, PairwiseValue) and judgement.value.strength == TIES[1]
            for judgement in judgements
        ),
        equal,
    )


def _make_unique_prompt_id(name: str, prompt_ids: set[str]) -> str:
    """The prompt's own id; with a number behind it where another text has this id."""
    numbered = (f"{name}#{number}" for number in range(2, len(prompt_ids) + 3))
    return name if name not in prompt_ids else next(candidate for candidate in numbered if candidate not in prompt_ids)


def _iterate_votes(item: Item, judgement: Judgement) -> Iterator[Vote]:
    value = judgement.value
    if isinstance(value, PairwiseValue):
        first, second = judgement.order
        strength_index = STRENGTHS.index(value.strength) if value.strength in STRENGTHS else None
        sign = 0 if strength_index is None else (1 if strength_index < len(LEVELS) else -1) * (1 if first == 0 else -1)
        yield Vote(
            (item.answers[first], item.answers[second]), sign, (strength_index or 0) % len(LEVELS), judgement.person
        )
    elif isinstance(value, RankingValue):
        scores = value.scores or [None] * len(value.ranks)
        for pair in combinations(range(len(value.ranks)), 2):
            first, second = sorted(pair, key=judgement.order.index)
            apart = value.ranks[second] - value.ranks[first]
            winner, loser = (first, second) if apart > 0 else (second, first)
            yield Vote(
                (item.answers[first], item.answers[second]),
                (apart > 0) - (apart < 0),
                _compute_preference_level(abs(apart), scores[winner], scores[loser]),
                judgement.person,
            )
    elif isinstance(value, EditValue):
        written = Answer(sample=0, source="edit", text=value.text, ended=True, tokens=None)
        for answer in item.answers:
            yield Vote((written, answer), 1, BETTER, judgement.person)


def _compute_preference_level(apart: int, winner: AnswerScores | None, loser: AnswerScores | None) -> int:
    """By how much one of two ranked answers is better.

    Where both have scores, by the difference of their means over helpful, truthful and harmless: significantly from 2
    points on, better from 1, slightly above 0, else negligibly. Without scores by their distance in rank: slightly at
    1, better at 2, significantly from 3 on.
    """
    if winner is None or loser is None:
        return min(apart, len(LEVELS) - 1)
    gap = float(np.mean([*winner.model_dump().values()]) - np.mean([*loser.model_dump().values()]))
    return sum((gap > 0, gap >= 1, gap >= 2))


def _find_answer_ranks(judgement: Judgement) -> list[int] | None:
    """The ranks of an item's answers; a pairwise judgement ranks two, which tie if both are bad, and an edit none."""
    if isinstance(judgement.value, RankingValue):
        return list(judgement.value.ranks)
    if isinstance(judgement.value, PairwiseValue):
        strength = judgement.value.strength
        return [1, 1] if strength in TIES else [1, 2] if strength.startswith("a") else [2, 1]
    return None


def _merge_votes_by_majority(votes: Iterable[Vote]) -> list[Vote]:
    """One vote for each two texts: for the side that more people are on, at the mean of their levels; a draw is a
    tie.
    """
    by_texts: dict[frozenset[str], list[Vote]] = {}
    for vote in votes:
        by_texts.setdefault(frozenset(answer.text for answer in vote.answers), []).append(vote)
    agreed = []
    for pair_votes in by_texts.values():
        first = pair_votes[0].answers
        signs = [vote.sign if vote.answers[0].text == first[0].text else -vote.sign for vote in pair_votes]
        side = (sum(signs) > 0) - (sum(signs) < 0)
        levels = [vote.level for vote, sign in zip(pair_votes, signs, strict=True) if sign == side]
        person = MAJORITY if len(pair_votes) > 1 else pair_votes[0].person
        agreed.append(Vote(first, side, int(sum(levels) / len(levels) + 0.5) if side else 0, person))
    return agreed


def _iterate_pair_rows(prompt: _Asked, votes: Iterable[Vote], problem: Record | None) -> Iterator[Record]:
    ids: dict[str, int] = {}
    for vote in votes:
        if not vote.sign:
            continue
        a, b = vote.answers
        chosen, rejected = (a, b) if vote.sign > 0 else (b, a)
        name = f"{prompt.id}/{'-'.join('edit' if answer.source == 'edit' else str(answer.sample) for answer in (a, b))}"
        ids[name] = ids.get(name, 0) + 1
        sampled = a.tokens is not None and b.tokens is not None
        yield {
            "comparison_id": name if ids[name] == 1 else f"{name}#{ids[name]}",
            "prompt_id": prompt.id,
            "prompt": prompt.text[0],
            "history": prompt.text[1],
            "chosen": chosen.text,
            "rejected": rejected.text,
            "chosen_ended": chosen.ended,
            "rejected_ended": rejected.ended,
            "chosen_score": _compute_rubric_score(problem, chosen),
            "rejected_score": _compute_rubric_score(problem, rejected),
            "strength": STRENGTHS[vote.level if vote.sign > 0 else len(LEVELS) + vote.level],
            "chosen_tokens": list(chosen.tokens or ()) if sampled else None,
            "rejected_tokens": list(rejected.tokens or ()) if sampled else None,
            "person": vote.person,
        }


def _iterate_ranking_rows(prompt: _Asked, problem: Record | None) -> Iterator[Record]:
    names: dict[str, int] = {}
    for item, ranks, person in prompt.rankings:
        name = f"{prompt.id}/{person}"
        names[name] = names.get(name, 0) + 1
        samples = [answer.sample for answer in item.answers]
        numbers = samples if len(set(samples)) == len(samples) else range(len(samples))
        for answer, number, rank in zip(item.answers, numbers, ranks, strict=True):
            yield {
                "ranking_id": name if names[name] == 1 else f"{name}#{names[name]}",
                "prompt_id": prompt.id,
                "prompt": prompt.text[0],
                "history": prompt.text[1],
                "person": person,
                "sample": number,
                "response": answer.text,
                "ended": answer.ended,
                "tokens": list(answer.tokens) if answer.tokens is not None else None,
                "rank": rank,
                "score": _compute_rubric_score(problem, answer),
            }


def _drop_incomplete_columns(rankings: list[Record]) -> list[Record]:
    """Without the columns that are not known of all answers."""
    left_out = {name for name in ("tokens", "score") if any(row[name] is None for row in rankings)}
    if not any(row["history"] for row in rankings):
        left_out.add("history")
    return [{name: value for name, value in row.items() if name not in left_out} for row in rankings]


def _compute_rubric_score(problem: Record | None, answer: Answer) -> float | None:
    return None if problem is None else float(score_by_rubric(problem, answer.text, answer.ended).total)
