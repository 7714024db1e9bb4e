"""Statistics of a record, by hand; and in time that grows with the record only."""

import math
import random
import sys
from types import FrameType

import pytest

from tasks.common.estimates import estimate_share
from tasks.extensions.labelling.measures.biases import compute_first_shown_win_share, compute_longer_win_share
from tasks.extensions.labelling.measures.outcomes import (
    compute_judgement_similarity,
    compute_signed_strength,
    list_pairwise_outcomes,
)
from tasks.extensions.labelling.measures.statistics import compute_judgement_statistics
from tasks.language.judgements.judgement_log import JudgementRecord
from tasks.language.judgements.lines import VERDICTS, AnswerScores, EditValue, RankingValue
from tests.tasks.language.judgements.samples import flag, item, judgement, record_of, skip, undo, value_of

SHORT = item("no", "certainly")
FOUR = item("a", "bb", "cc", "d", mode="ranking", prompt="Moon?", sources=("sft", "dpo", "dpo", "sft"))
STEPS = item("1\n2\n3", mode="steps", prompt="Add!")
GOLD = item("right", "wrong", prompt="Gold?", gold={"strength": "a better"})


def test_the_scale_of_verdicts():
    assert [compute_signed_strength(verdict) for verdict in VERDICTS] == [1, 2, 3, 4, -1, -2, -3, -4, 0, 0]


def test_outcomes_by_hand():
    assert list_pairwise_outcomes(value_of("b slightly better")) == [(0, 1, 0.0)]
    assert list_pairwise_outcomes(value_of("both bad")) == [(0, 1, 0.5)]
    assert list_pairwise_outcomes(value_of((2, 1, 2))) == [(0, 1, 0.0), (0, 2, 0.5), (1, 2, 1.0)]
    assert list_pairwise_outcomes(value_of([1, -1])) == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a better", "a slightly better", 1.0),
        ("a better", "b better", 0.0),
        ("tie", "both bad", 1.0),
        ("tie", "a better", 0.0),
        ((3, 3, 2, 1), (4, 3, 2, 1), 5 / 6),
        ((1, 2), (2, 1), 0.0),
        ([1, 0, -1], [1, 1, -1], 2 / 3),
        ([1, -1, None], [1, 1, -1], 1 / 2),
    ],
)
def test_how_far_two_judgements_say_the_same(one, other, expected):
    assert (
        compute_judgement_similarity(value_of(one), value_of(other))
        == compute_judgement_similarity(value_of(other), value_of(one))
        == pytest.approx(expected)
    )


def test_what_cannot_be_compared():
    assert compute_judgement_similarity(EditValue(text="x"), EditValue(text="x")) is None
    assert compute_judgement_similarity(value_of([-1, None]), value_of([0, -1])) == 0.0


def test_the_two_biases_by_hand():
    """Of D > C > A = B shown as B, D, A, C: five pairs are ordered; D beats B but B was first; C loses to D, which was
    first, and so on.
    """
    line = judgement(FOUR, (3, 3, 2, 1), order=(1, 3, 0, 2))
    # better, worse: D C, D A, D B, C A, C B; shown first: D, D, B, A, B; so 2 of 5. Longer: D < C, D = A, D < B, C > A,
    # C = B: 1 of 3.
    assert compute_first_shown_win_share(line) == pytest.approx(2 / 5)
    assert compute_longer_win_share(line, FOUR) == pytest.approx(1 / 3)
    assert compute_first_shown_win_share(judgement(SHORT, "a better", order=(1, 0))) == 0.0
    assert compute_first_shown_win_share(judgement(SHORT, "tie")) is None
    assert compute_longer_win_share(judgement(SHORT, "b better"), SHORT) == 1.0
    assert compute_first_shown_win_share(judgement(STEPS, [1, 1, 1])) is None


def test_statistics_by_hand():
    taken_back = judgement(SHORT, "a better", number=9)
    record = record_of(
        *(SHORT, FOUR, STEPS, GOLD, taken_back, undo(taken_back)),
        judgement(SHORT, "a better", seconds=1),
        judgement(SHORT, "b better", "bert", seconds=4),
        judgement(SHORT, "a slightly better", "carl", seconds=9),
        judgement(SHORT, "b better", repeat=1, seconds=3),
        judgement(GOLD, "a significantly better", order=(1, 0), seconds=3),
        judgement(GOLD, "tie", "bert", seconds=4),
        judgement(STEPS, [1, 1, -1], seconds=2),
        judgement(STEPS, [1, 0, -1], "bert", seconds=2),
        *(skip(FOUR), skip(FOUR, "bert"), skip(STEPS, "bert"), flag(FOUR)),
    )
    found = compute_judgement_statistics(record)
    assert (found.judgements, found.items, found.seconds) == (8, 3, 3.0)
    assert found.hours == pytest.approx(28 / 3600)
    assert found.modes == {"pairwise": 6, "steps": 2}
    assert found.verdicts == {
        "a better": 1,
        "b better": 2,
        "a slightly better": 1,
        "a significantly better": 1,
        "tie": 1,
    }
    assert found.measured.gold == estimate_share([1.0, 0.0])
    assert found.measured.repeats == estimate_share([0.0])
    assert found.measured.first_shown == estimate_share([1.0, 0.0, 1.0, 0.0, 0.0])
    assert found.measured.longer == estimate_share([0.0, 1.0, 0.0, 1.0])  # right and wrong are of one length
    anna, bert, carl = found.people
    assert (anna.person, anna.judgements, anna.skips, anna.flags, anna.seconds) == ("anna", 4, 1, 1, 2.5)
    assert (bert.person, bert.judgements, bert.skips, bert.flags) == ("bert", 3, 2, 0)
    assert (anna.measured.gold, bert.measured.gold, carl.measured.gold) == (
        estimate_share([1.0]),
        estimate_share([0.0]),
        None,
    )
    assert carl.measured.repeats is None
    sft, dpo = found.strengths  # no is of sft, certainly of dpo; gold items say nothing
    assert (sft.name, sft.wins, sft.losses, dpo.wins) == ("sft", 2, 1, 1)
    assert sft.strength == pytest.approx(math.log(2) / 2)
    assert [(one.item, one.people, one.disagreement) for one in found.disputed] == [
        (GOLD, 2, 1.0),
        (SHORT, 3, pytest.approx(2 / 3)),
        (STEPS, 2, pytest.approx(1 / 3)),
    ]


def test_agreement_by_question():
    """Of the pair two of three people say a; the package's number for 1 0 1 and 1 1/2 is 1 - (4/2 * .. ) as in
    test_agreement.py.
    """
    scores = RankingValue(ranks=(1, 1), scores=(AnswerScores(helpful=1, truthful=5, harmless=5), None))
    both = item("x", "y", mode="ranking", prompt="Both?")
    record = record_of(
        *(SHORT, STEPS, both),
        judgement(SHORT, "a better"),
        judgement(SHORT, "a slightly better", "bert"),
        judgement(STEPS, [1, -1, None]),
        judgement(STEPS, [1, -1, None], "bert"),
        judgement(both, (1, 1)).model_copy(update={"value": scores}),
        judgement(both, (1, 1), "bert").model_copy(update={"value": scores}),
    )
    found = {one.question: one for one in compute_judgement_statistics(record).agreement}
    assert list(found) == [
        "better of a pair",
        "how much better",
        "better in a ranking",
        "helpful",
        "truthful",
        "harmless",
        "steps",
    ]
    assert found["better of a pair"].alpha is None, "all said a"
    assert found["how much better"].by_level == {"nominal": 0.0, "ordinal": 0.0, "interval": 0.0}
    assert (found["steps"].alpha, found["steps"].units, found["steps"].by_person) == (
        1.0,
        2,
        {"anna": 1.0, "bert": 1.0},
    )
    assert found["helpful"].units == 1
    assert (found["steps"].level, found["better of a pair"].level) == ("ordinal", "nominal")


def test_what_all_say_alike_is_not_disputed():
    record = record_of(SHORT, judgement(SHORT, "a better"), judgement(SHORT, "a slightly better", "bert"))
    assert list(compute_judgement_statistics(record).disputed) == []


def test_a_time_that_is_not_known_counts_for_nothing():
    record = record_of(SHORT, judgement(SHORT, "tie", seconds=0), judgement(SHORT, "tie", "bert", seconds=5))
    found = compute_judgement_statistics(record)
    assert (found.seconds, [one.seconds for one in found.people]) == (5.0, [None, 5.0])


def test_an_empty_record_has_statistics_too():
    found = compute_judgement_statistics(JudgementRecord())
    assert (found.judgements, found.seconds, found.hours, found.measured.gold) == (0, None, 0.0, None)
    assert list(found.people) == list(found.agreement) == list(found.strengths) == list(found.disputed) == []


def test_the_statistics_of_twice_as_many_judgements_take_twice_as_many_steps():
    """Counted in calls of Python's functions: what grew with the square of the record would ask for four times as
    many.
    """
    calls = {number: steps_of_statistics(number) for number in (125, 250)}
    assert calls[250] < 2.2 * calls[125], calls


def steps_of_statistics(items: int) -> int:
    draw, record, calls = random.Random(0), JudgementRecord(), 0
    for number in range(items):
        texts = [f"{place}" * draw.randint(1, 50) for place in range(4 if number % 2 else 2)]
        one = item(*texts, mode="ranking" if number % 2 else "pairwise", prompt=str(number))
        record.add(one)
        for person in ("anna", "bert", "carl", "dora"):
            said = tuple(draw.sample(range(1, 5), 4)) if number % 2 else draw.choice(VERDICTS)
            record.add(judgement(one, said, person))

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = compute_judgement_statistics(record)
    finally:
        sys.setprofile(None)
    assert found.judgements == 4 * items
    return calls
