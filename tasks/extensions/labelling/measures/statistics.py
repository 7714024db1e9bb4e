"""What the record of judgements says of the people, the answers and the work: all that the statistics page shows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from tasks.common.estimates import Estimate, estimate_share
from tasks.extensions.labelling.measures import biases
from tasks.extensions.labelling.measures.outcomes import compute_judgement_similarity, list_pairwise_outcomes
from tasks.extensions.labelling.measures.questions import Agreement, compute_question_agreements
from tasks.extensions.labelling.measures.strengths import Comparison, Strength, estimate_bradley_terry_strengths
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import Item, Judgement, PairwiseValue

Shares = Mapping[str, float | None]  # by judgement, from 0 to 1; None: it says nothing


@dataclass(frozen=True)
class JudgementStatistics:
    """Of some judgements, each with its 95 % interval; None where there is nothing to say it from."""

    gold: Estimate | None  # how far judgements of gold items say what is expected
    repeats: Estimate | None  # how far repeats say what the person said the first time
    first_shown: Estimate | None  # how often the answer shown first wins; 1/2 without a bias
    longer: Estimate | None  # how often the longer answer wins


@dataclass(frozen=True)
class PersonStatistics:
    """One person's judgements."""

    person: str
    judgements: int
    skips: int
    flags: int
    seconds: float | None  # median
    measured: JudgementStatistics


@dataclass(frozen=True)
class Disputed:
    """An item that people judge differently: `disagreement` is 1 less how far any two of them say the same, on
    average.
    """

    item: Item
    people: int
    disagreement: float


@dataclass(frozen=True)
class Statistics:
    """Of the judgements that count. Repeats count only for `repeats`, the time and the two biases."""

    judgements: int
    items: int  # judged at least once
    modes: Mapping[str, int]  # judgements by mode
    verdicts: Mapping[str, int]  # judgements of pairs by verdict
    measured: JudgementStatistics
    people: Sequence[PersonStatistics]
    agreement: Sequence[Agreement]
    strengths: Sequence[Strength]  # of the answers' sources
    disputed: Sequence[Disputed]  # most disagreement first, none without any
    seconds: float | None  # median
    hours: float  # in all


def compute_judgement_statistics(record: JudgementRecord) -> Statistics:
    """All of it; for ten thousand judgements in about a second."""
    judgements = record.judgements
    first = _index_first_judgements(judgements)
    values = (
        _compute_gold_similarities(record, first.values()),
        _compute_repeat_similarities(judgements, first),
        {line.judgement: biases.compute_first_shown_win_share(line) for line in judgements},
        {line.judgement: biases.compute_longer_win_share(line, record.items[line.item]) for line in judgements},
    )
    return Statistics(
        judgements=len(judgements),
        items=len({line.item for line in judgements}),
        modes=Counter(line.mode for line in judgements),
        verdicts=Counter(line.value.strength for line in judgements if isinstance(line.value, PairwiseValue)),
        measured=_estimate_judgement_statistics(judgements, values),
        people=_compute_person_statistics(record, judgements, values),
        agreement=compute_question_agreements(first.values()),
        strengths=estimate_bradley_terry_strengths(_list_source_comparisons(record, first.values())),
        disputed=_list_disputed_items(record, first.values()),
        seconds=_compute_median_seconds(judgements),
        hours=sum(line.seconds for line in judgements) / 3600,
    )


def _index_first_judgements(judgements: Sequence[Judgement]) -> dict[tuple[str, str], Judgement]:
    """By person and item, the judgement that is not a repeat; the last of several."""
    return {(line.person, line.item): line for line in judgements if line.repeat == 0}


def _compute_gold_similarities(record: JudgementRecord, judgements: Iterable[Judgement]) -> Shares:
    golds = ((line, record.items[line.item].gold) for line in judgements)
    return {line.judgement: compute_judgement_similarity(line.value, gold) for line, gold in golds if gold is not None}


def _compute_repeat_similarities(judgements: Sequence[Judgement], first: Mapping[tuple[str, str], Judgement]) -> Shares:
    before = ((line, first.get((line.person, line.item))) for line in judgements if line.repeat)
    return {
        line.judgement: compute_judgement_similarity(line.value, original.value)
        for line, original in before
        if original is not None
    }


def _compute_person_statistics(
    record: JudgementRecord, judgements: Sequence[Judgement], values: Sequence[Shares]
) -> list[PersonStatistics]:
    by_person: dict[str, list[Judgement]] = defaultdict(list)
    for line in judgements:
        by_person[line.person].append(line)
    skips, flags = (Counter(skip_or_flag.person for skip_or_flag in lines) for lines in (record.skips, record.flags))
    return [
        PersonStatistics(
            person=person,
            judgements=len(lines),
            skips=skips[person],
            flags=flags[person],
            seconds=_compute_median_seconds(lines),
            measured=_estimate_judgement_statistics(lines, values),
        )
        for person, lines in sorted(by_person.items())
    ]


def _estimate_judgement_statistics(judgements: Sequence[Judgement], values: Sequence[Shares]) -> JudgementStatistics:
    def estimate(shares: Shares) -> Estimate | None:
        defined_shares = [value for line in judgements if (value := shares.get(line.judgement)) is not None]
        return estimate_share(defined_shares) if defined_shares else None

    return JudgementStatistics(*map(estimate, values))


def _compute_median_seconds(judgements: Sequence[Judgement]) -> float | None:
    """The median; 0 stands for a time that is not known, as of judgements from other tools."""
    durations = [line.seconds for line in judgements if line.seconds > 0]
    return median(durations) if durations else None


def _list_source_comparisons(record: JudgementRecord, judgements: Iterable[Judgement]) -> list[Comparison]:
    """The answers' sources against each other.

    A gold item's better answer was known before, so it says nothing of them.
    """
    comparisons = []
    for line in judgements:
        item = record.items[line.item]
        for outcome in list_pairwise_outcomes(line.value) if item.gold is None else ():
            first = item.answers[outcome.first].source
            second = item.answers[outcome.second].source
            comparisons.append(Comparison(first, second, outcome.score, line.item))
    return comparisons


def _list_disputed_items(record: JudgementRecord, judgements: Iterable[Judgement]) -> list[Disputed]:
    by_item: dict[str, list[Judgement]] = defaultdict(list)
    for line in judgements:
        by_item[line.item].append(line)
    rows = []
    for item, lines in by_item.items():
        pairs = [
            compute_judgement_similarity(judgement.value, other.value) for judgement, other in combinations(lines, 2)
        ]
        similarities = [value for value in pairs if value is not None]
        if similarities and sum(similarities) < len(similarities):
            rows.append(Disputed(record.items[item], len(lines), 1 - sum(similarities) / len(similarities)))
    return sorted(rows, key=lambda row: (-row.disagreement, -row.people, row.item.item))
