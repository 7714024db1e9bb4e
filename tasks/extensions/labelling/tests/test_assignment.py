"""Which item comes next: shared, blind, the same after a kill, with gold items and repeats at their shares."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.extensions.labelling.assignment import Assignment, AssignmentSettings, Progress
from tasks.language.judgements.judgement_log import JudgementRecord
from tests.tasks.language.judgements.samples import item, judgement, skip, undo

PLAIN = AssignmentSettings(seed=1, overlap=2, gold=0.0, repeats=0.0, gap=3)
ITEMS = [item("yes", "no", prompt=f"Why {number}?") for number in range(12)]
GOLD = [item("yes", "no", prompt=f"Gold {number}?", gold={"strength": "a better"}) for number in range(8)]


class Office:
    """People who judge what they get."""

    def __init__(self, items=ITEMS, settings=PLAIN):
        self.assignment, self.record, self.said = Assignment(items, settings), JudgementRecord(), 0
        for one in items:
            self.record.add(one)

    def next(self, person, **others):
        return self.assignment.next(self.record, person, **others)

    def judge(self, person):
        """What the person judged; None: nothing was left."""
        shown = self.next(person)
        if shown is not None:
            self.said += 1
            given = {"order": shown.order, "repeat": shown.repeat, "number": self.said}
            self.record.add(judgement(shown.item, "tie", person, **given))
        return shown


def test_each_item_is_judged_by_as_many_people_as_wanted_and_by_nobody_twice():
    office = Office()
    for _ in ITEMS:
        for person in ("anna", "bert", "carl"):
            office.judge(person)
    judged = Counter(line.item for line in office.record.judgements)
    assert judged == {one.item: 2 for one in ITEMS}
    assert len({(line.person, line.item) for line in office.record.judgements}) == 24
    shared = {
        tuple(sorted({line.person for line in office.record.judgements if line.item == one.item})) for one in ITEMS
    }
    assert len(shared) > 1, "not always the same two"


def test_what_others_began_is_finished_first():
    office = Office()
    begun = {office.judge("anna").item.item for _ in range(5)}
    assert {office.judge("bert").item.item for _ in range(5)} == begun
    assert office.judge("bert").item.item not in begun
    assert office.judge("carl").item.item not in begun, "these have two already"


def test_people_go_through_the_items_in_orders_of_their_own_and_see_the_sides_in_both_orders():
    sequences = {person: [] for person in ("anna", "bert")}
    for person, sequence in sequences.items():
        office = Office()
        sequence += [office.judge(person) for _ in ITEMS]
        assert {shown.order for shown in sequence} == {(0, 1), (1, 0)}
        assert {shown.item.item for shown in sequence} == {one.item for one in ITEMS}
    anna, bert = ([shown.item.item for shown in sequence] for sequence in sequences.values())
    assert anna != bert
    other = Office(settings=AssignmentSettings(seed=2, overlap=2, gold=0.0, repeats=0.0, gap=3))
    assert [other.judge("anna").item.item for _ in ITEMS] != anna


def test_the_left_side_is_each_answers_in_half_of_the_cases():
    items = [item("yes", "no", prompt=str(number)) for number in range(1000)]
    office = Office(items)
    left = sum(office.assignment.shown(one.item, "anna", 0).order[0] for one in items)
    assert abs(left - 500) < 50  # three deviations are 47


def test_after_a_kill_or_an_undo_the_same_comes_in_the_same_order():
    office = Office(ITEMS + GOLD, AssignmentSettings(seed=1, overlap=2, gold=0.3, repeats=0.3, gap=3))
    for _ in range(15):
        shown = office.next("anna")
        assert shown == office.next("anna"), "asking changes nothing"
        again = Assignment(ITEMS + GOLD, office.assignment.settings)
        assert again.next(office.record, "anna") == shown
        office.judge("anna")
        office.record.add(undo(office.record.judgements[-1]))
        assert office.next("anna") == shown
        office.judge("anna")


def test_an_item_before_somebody_else_counts_as_theirs():
    office = Office(ITEMS[:1], AssignmentSettings(seed=1, overlap=1, gold=0.0, repeats=0.0, gap=3))
    assert office.next("anna", before_others={"bert": ITEMS[0].item}) is None
    assert office.next("anna", before_others={"anna": ITEMS[0].item}) is not None


def test_a_skipped_item_comes_last_and_then_no_more_and_goes_to_others():
    office = Office()
    first = office.next("anna").item
    office.record.add(skip(first))
    seen = [office.judge("anna").item.item for _ in ITEMS[1:]]
    assert first.item not in seen
    assert office.next("anna").item == first
    assert {office.judge("bert").item.item for _ in ITEMS} == {one.item for one in ITEMS}
    office.record.add(skip(first, at="2026-01-31T13:00:00Z"))
    assert office.next("anna") is None


def test_gold_items_and_repeats_come_unannounced_at_their_shares():
    items = [item("yes", "no", prompt=f"Why {number}?") for number in range(400)]
    gold = [item("yes", "no", prompt=f"Gold {number}?", gold={"strength": "tie"}) for number in range(200)]
    office = Office(items + gold, AssignmentSettings(seed=3, overlap=1, gold=0.1, repeats=0.2, gap=10))
    shown = []
    while (one := office.judge("anna")) is not None:
        shown.append(one)
    kinds = Counter("repeat" if one.repeat else "gold" if one.item.gold else "new" for one in shown)
    assert kinds["new"] == 400
    assert kinds["repeat"] / len(shown) == pytest.approx(0.2, abs=0.05)
    assert kinds["gold"] / len(shown) == pytest.approx(0.1, abs=0.04)
    places = defaultdict(list)
    for place, one in enumerate(shown):
        places[one.item.item].append((place, one.repeat))
    repeated = [found for found in places.values() if len(found) > 1]
    assert all([repeat for _, repeat in found] == [0, 1] for found in repeated)
    assert all(found[1][0] - found[0][0] > 10 for found in repeated)


def test_a_repeat_comes_as_soon_as_the_gap_allows_with_sides_drawn_anew_and_can_be_skipped():
    office = Office([*ITEMS, *GOLD], AssignmentSettings(seed=1, overlap=1, gold=0.0, repeats=1.0, gap=3))
    shown = [office.judge("anna") for _ in range(5)]
    assert [one.repeat for one in shown] == [0, 0, 0, 0, 1]
    assert shown[4].item == shown[0].item
    second = office.next("anna")
    assert (second.item, second.repeat) == (shown[1].item, 1)
    office.record.add(skip(second.item))
    assert office.next("anna").repeat == 0, "what was skipped does not come again, and the rest is too new"
    orders = [[office.assignment.shown(one.item, "anna", repeat).order for repeat in (0, 1)] for one in ITEMS]
    assert {first == again for first, again in orders} == {True, False}


def test_everybody_gets_gold_items_whoever_has_judged_them():
    office = Office(ITEMS + GOLD, AssignmentSettings(seed=1, overlap=2, gold=0.5, repeats=0.0, gap=3))
    for person in ("anna", "bert"):
        while office.judge(person) is not None:
            pass
    judged = defaultdict(set)
    for line in office.record.judgements:
        judged[line.item].add(line.person)
    assert any(len(judged[one.item]) == 2 for one in GOLD)
    only = Office(GOLD)
    for person in ("anna", "bert", "carl"):
        assert len([*iter(lambda office=only, name=person: office.judge(name), None)]) == len(GOLD)


def test_progress_by_hand():
    office = Office()
    assert office.assignment.progress(office.record, "anna") == Progress(0, 12, None)
    for _ in range(4):
        office.judge("anna")
    for _ in range(2):
        office.judge("bert")
    assert office.assignment.progress(office.record, "anna") == Progress(4, 12, 16.0)  # 8 more at 2 seconds
    assert office.assignment.progress(office.record, "carl") == Progress(0, 10, 20.0)  # two have two people already
    assert office.assignment.compute_total_progress(office.record) == Progress(6, 24, 36.0)


@hypothesis_settings(max_examples=25)
@given(
    people=st.lists(st.sampled_from(["anna", "bert", "carl"]), max_size=80),
    acts=st.lists(st.sampled_from(["judge", "judge", "judge", "skip", "undo"]), min_size=80, max_size=80),
    overlap=st.integers(1, 3),
    shares=st.sampled_from([(0.0, 0.0), (0.3, 0.3), (0.0, 1.0), (1.0, 0.0)]),
)
def test_whatever_people_do_nobody_gets_a_new_item_twice_or_one_too_often(people, acts, overlap, shares):
    office = Office(ITEMS[:6] + GOLD[:3], AssignmentSettings(0, overlap, *shares, gap=2))
    for number, (person, act) in enumerate(zip(people, acts, strict=False)):
        shown = office.next(person)
        own = [line for line in office.record.judgements if line.person == person]
        if act == "undo" and own:
            office.record.add(undo(own[-1]))
        elif act == "skip" and shown is not None:
            office.record.add(skip(shown.item, person, at=f"2026-01-31T12:00:{number % 60:02}Z"))
        elif shown is not None:
            before = [line.item for line in own].count(shown.item.item)
            assert shown.repeat == before <= 1
            office.judge(person)
    by_item = defaultdict(set)
    for line in office.record.judgements:
        by_item[line.item].add(line.person)
    assert all(len(by_item[one.item]) <= overlap for one in ITEMS[:6])
