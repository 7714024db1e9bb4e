"""What people say through the page's calls, and what is in the record then: every mode, undo, retries, several
people.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tasks.extensions.labelling.guard import HEADER
from tasks.extensions.labelling.tests.pages import QUIET, TOKEN, call, item, judge, serving, some
from tasks.language.judgements import judged_pairs
from tasks.language.judgements.judgement_log import read_judgement_record
from tasks.language.judgements.lines import PairwiseValue
from tasks.language.steps import people as steps_people
from tests.tasks.language import judged

VALUES = {
    "pairwise": {"strength": "a slightly better"},
    "ranking": {"ranks": [2, 1, 3, 3], "scores": [None, {"helpful": 5, "truthful": 4, "harmless": 3}, None, None]},
    "steps": {"labels": [1, -1]},
    "edit": {"text": "better", "from": 1},
}


def post(client, path, **body):
    return client.post(path, json=body)


def lines(folder):
    return [json.loads(line) for line in (folder / "people.jsonl").read_text().splitlines()]


def shown_texts(told):
    """What the page shows of the answers, in its order."""
    return re.findall(r'<article.*?<pre class="raw" dir="auto">(.*?)</pre>', told["html"], re.DOTALL)


@pytest.mark.parametrize("mode", VALUES)
def test_a_judgement_is_on_disk_in_the_item_s_places_before_the_next_item_comes(tmp_path, mode):
    items = some(mode)
    orders = set()
    with serving(tmp_path, items) as client:
        told = call(client, "/next", person="anna")
        for number in range(len(items)):
            assert (told["done"], told["wanted"], told["mode"]) == (number, len(items), mode)
            following = judge(client, told, VALUES[mode])
            first, last = lines(tmp_path)[-2:]
            assert (first["kind"], last["kind"], last["judgement"]) == ("item", "judgement", told["judgement"])
            order = last["order"]
            orders.add(tuple(order))
            texts = [first["answers"][place]["text"] for place in order]
            assert mode == "steps" or shown_texts(told) == texts
            value, said = last["value"], VALUES[mode]
            if mode == "pairwise":
                assert value["strength"] == ("a slightly better" if order == [0, 1] else "b slightly better")
            elif mode == "ranking":
                assert [value["ranks"][place] for place in order] == said["ranks"]
                assert [value["scores"][place] for place in order] == said["scores"]
            elif mode == "edit":
                assert value == {"text": "better", "from": order[1]}
            else:
                assert value == said
            told = following
        assert (told["mode"], told["done"]) == ("", len(items))
        assert "Nothing is left" in told["html"]
    assert mode == "steps" or len(orders) > 1, "the sides are drawn"


@pytest.mark.parametrize("verdict", ["tie", "both bad", "b significantly better", "a better"])
def test_every_verdict_is_said_of_what_was_shown(tmp_path, verdict):
    with serving(tmp_path, some("pairwise", 8)) as client:
        told = call(client, "/next", person="anna")
        for _ in range(8):
            told = judge(client, told, {"strength": verdict})
    other = {"b significantly better": "a significantly better", "a better": "b better"}.get(verdict, verdict)
    found = {(tuple(line.order), line.value.strength) for line in read_judgement_record(tmp_path).judgements}
    assert found == {((0, 1), verdict), ((1, 0), other)}


@pytest.mark.parametrize("mode", VALUES)
def test_no_source_no_expected_value_and_no_order_is_in_what_a_page_gets(tmp_path, mode):
    gold = {"pairwise": {"strength": "a better"}, "ranking": {"ranks": [1, 2, 3, 4]}, "steps": {"labels": [1, 0]}}
    items = [*some(mode, 4), item(mode, 9, gold=gold.get(mode))]
    with serving(tmp_path, items, replace(QUIET, gold=0.5, repeats=0.3)) as client:
        page = client.get("/").text
        told = call(client, "/next", person="anna")
        shapes = set()
        while told["mode"]:
            shapes.add(tuple(sorted(told)))
            everything = page + json.dumps(told)
            for secret in ("secret-", "hidden-", "700000", "900000", '"gold', '"order', '"repeat', "expected"):
                assert secret not in everything, secret
            told = judge(client, told, VALUES[mode])
        assert len(shapes) == 1, "gold items and repeats look like others"
    assert mode in ("edit", "steps") or any(line.repeat for line in read_judgement_record(tmp_path).judgements)


def test_the_same_judgement_sent_again_counts_once(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        told = call(client, "/next", person="anna")
        first = judge(client, told, {"strength": "tie"})
        again = judge(client, told, {"strength": "tie"})
        assert first["item"] == again["item"]
        assert again["done"] == 1
    assert len(read_judgement_record(tmp_path).judgements) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"value": {"strength": "a better"}},
        {"value": {"ranks": [1, 2]}},
        {"value": {"labels": [1]}},
        {"person": "bert"},
        {"item": "other"},
    ],
)
def test_another_judgement_with_a_used_ticket_is_refused(tmp_path, change):
    with serving(tmp_path, some("pairwise", 2)) as client:
        told = call(client, "/next", person="anna")
        following = judge(client, told, {"strength": "b better"})
        said = {
            "judgement": told["judgement"],
            "item": told["item"],
            "person": "anna",
            "value": {"strength": "b better"},
        }
        changed = {**said, **change}
        if changed["item"] == "other":
            changed["item"] = following["item"]
        answer = post(client, "/judge", **changed, seconds=1)
        assert (answer.status_code, answer.json()["fault"]) == (
            409,
            "another judgement was saved from this page; load it anew",
        )
        assert post(client, "/judge", **said, seconds=9).status_code == 200, "the same one is known"
    assert len(read_judgement_record(tmp_path).judgements) == 1


def test_a_judgement_whose_answer_was_lost_is_known_after_a_restart(tmp_path):
    """And one that was not saved is taken by the new server, in the order in which it was shown."""
    items = some("ranking")
    with serving(tmp_path, items) as client:
        saved = call(client, "/next", person="anna")
        lost = judge(client, saved, VALUES["ranking"])
    with serving(tmp_path, items) as client:
        judge(client, saved, VALUES["ranking"])
        judge(client, lost, VALUES["ranking"])
        judge(client, lost, VALUES["ranking"])
    found = lines(tmp_path)
    assert [line["kind"] for line in found] == ["item", "judgement"] * 2
    for said, shown in zip(found[1::2], (saved, lost), strict=True):
        texts = [answer["text"] for answer in found[found.index(said) - 1]["answers"]]
        assert shown_texts(shown) == [texts[place] for place in said["order"]]


def test_two_tabs_of_one_person_do_not_judge_an_item_twice(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        one, other = (call(client, "/next", person="anna") for _ in range(2))
        assert one["item"] == other["item"]
        judge(client, one, {"strength": "tie"})
        answer = post(
            client,
            "/judge",
            **{k: other[k] for k in ("judgement", "item")},
            person="anna",
            value={"strength": "tie"},
            seconds=1,
        )
        assert (answer.status_code, answer.json()["fault"]) == (409, "you have judged this item elsewhere meanwhile")
    assert len(read_judgement_record(tmp_path).judgements) == 1


def test_a_ticket_is_for_its_person_and_its_item(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        told = call(client, "/next", person="anna")
        other = call(client, "/next", person="bert")
        for judgement, shown, person in (
            (told["judgement"], told, "bert"),
            (other["judgement"], told, "anna"),
            ("0" * 32, told, "anna"),
        ):
            answer = post(
                client,
                "/judge",
                judgement=judgement,
                item=shown["item"],
                person=person,
                value={"strength": "tie"},
                seconds=1,
            )
            assert answer.status_code == 409
        answer = post(
            client,
            "/judge",
            judgement=told["judgement"],
            item="0" * 16,
            person="anna",
            value={"strength": "tie"},
            seconds=1,
        )
        assert answer.json()["fault"] == "this item is not asked about any more"
    assert not read_judgement_record(tmp_path).judgements


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"strength": "a lot better"},
        {"ranks": [1, 2]},
        {"labels": [1, 1]},
        {"text": ""},
        {"strength": "tie", "x": 1},
        3,
        None,
    ],
)
def test_a_value_that_is_none_of_the_item_is_refused(tmp_path, value):
    with serving(tmp_path, some("pairwise")) as client:
        told = call(client, "/next", person="anna")
        answer = post(
            client, "/judge", judgement=told["judgement"], item=told["item"], person="anna", value=value, seconds=1
        )
        assert answer.status_code in (409, 422)
        assert not lines(tmp_path)
        for seconds in (-1, "1e999", None):
            body = {
                "judgement": told["judgement"],
                "item": told["item"],
                "person": "anna",
                "value": {"strength": "tie"},
            }
            assert post(client, "/judge", **body, seconds=seconds).status_code == 422


@pytest.mark.parametrize("mode", VALUES)
def test_undo_is_a_line_and_goes_back_to_the_item_as_it_was_judged(tmp_path, mode):
    with serving(tmp_path, some(mode)) as client:
        told = call(client, "/next", person="anna")
        assert told["undo"] is None
        following = judge(client, told, VALUES[mode])
        back = call(client, "/undo", judgement=following["undo"], person="anna")
        assert back["item"] == told["item"]
        assert back["judgement"] != told["judgement"]
        assert shown_texts(back) == shown_texts(told)
        checked = re.findall(r'value="([^"]*)" checked', back["html"])
        expected = {"pairwise": ["a slightly better"], "ranking": ["5", "4", "3"], "steps": ["1", "-1"], "edit": []}
        assert checked == expected[mode]
        if mode == "ranking":
            assert 'value="B &gt; A &gt; C = D"' in back["html"]
        if mode == "edit":
            assert 'data-from="1">better</textarea>' in back["html"]
        again = call(client, "/undo", judgement=following["undo"], person="anna")
        assert again["item"] == told["item"], "an undo whose answer was lost"
        assert not read_judgement_record(tmp_path).judgements
        judge(client, again, VALUES[mode])
    assert [line["kind"] for line in lines(tmp_path)] == ["item", "judgement", "undo", "judgement"]
    assert len(read_judgement_record(tmp_path).judgements) == 1


def test_nobody_takes_back_what_another_said(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        judgement = call(client, "/next", person="anna")
        judge(client, judgement, {"strength": "tie"})
        assert post(client, "/undo", judgement=judgement["judgement"], person="bert").status_code == 409
        assert post(client, "/undo", judgement="0" * 32, person="anna").status_code == 409
    assert len(read_judgement_record(tmp_path).judgements) == 1


def test_skip_and_flag_are_lines(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        told = call(client, "/next", person="anna")
        for _ in range(2):
            assert call(client, "/flag", item=told["item"], person="anna", reason="no <b>sense</b>") == {}
        for again in (False, True):
            following = call(client, "/skip", item=told["item"], person="anna", again=again)
            assert following["item"] != told["item"]
    found = read_judgement_record(tmp_path)
    assert [line.reason for line in found.flags] == ["no <b>sense</b>"]
    assert [line.item for line in found.skips] == [told["item"]]


def test_progress_is_of_what_the_pipeline_waits_for_in_all_files_of_the_record(tmp_path):
    """The stage counts a pair for each person, and neither gold items nor repeats."""
    items = [*some("pairwise", 6), *(item("pairwise", 10 + n, gold={"strength": "tie"}) for n in range(3))]
    others = item("pairwise", 9)
    judged.write(tmp_path / "bert.jsonl", [others, judged.judgement(others, PairwiseValue(strength="tie"), "bert")])
    with serving(tmp_path, items, replace(QUIET, gold=0.5, repeats=0.3), wanted=3) as client:
        told = call(client, "/next", person="anna")
        assert told["pipeline"] == {"done": 1, "wanted": 3, "seconds_left": pytest.approx(30.0)}
        while told["mode"]:
            told = judge(client, told, {"strength": "tie"}, seconds=3.0)
        assert told["pipeline"] == {"done": 7, "wanted": 3, "seconds_left": 0.0}
        assert "7 of 3 that the pipeline waits for" in client.get("/statistics").text
    record = read_judgement_record(tmp_path)
    assert len(record.judgements) > len(judged_pairs.select_counted_judgements(record)) == 7


def test_solutions_are_counted_once_whoever_judges_their_steps(tmp_path):
    with serving(tmp_path, some("steps", 3), wanted=2) as client:
        for person, counted in (("anna", 1), ("bert", 1), ("anna", 2)):
            told = judge(client, call(client, "/next", person=person), {"labels": [1, -1]}, person)
            assert told["pipeline"]["done"] == counted
            assert counted == len(steps_people.collect_judged_solutions(read_judgement_record(tmp_path)))


def test_without_a_pipeline_that_waits_progress_is_of_the_items(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        assert call(client, "/next", person="anna")["pipeline"] is None
        assert "0 of 12</span>" in client.get("/statistics").text


def test_two_people_at_once_share_items_and_lose_nothing(tmp_path):
    items = some("pairwise", 8)
    with serving(tmp_path, items) as client:

        def work(person):
            told = call(client, "/next", person=person)
            said = {}
            while told["mode"]:
                said[told["judgement"]] = told["item"]
                told = judge(client, told, {"strength": "tie"}, person)
            return said

        with ThreadPoolExecutor(4) as pool:
            found = [*pool.map(work, ("anna", "bert", "carla", "dora"))]
    record = read_judgement_record(tmp_path)
    assert {line.judgement: line.item for line in record.judgements} == {k: v for one in found for k, v in one.items()}
    people = {item.item: {line.person for line in record.judgements if line.item == item.item} for item in items}
    assert all(len(who) >= 2 for who in people.values())
    assert sum(map(len, people.values())) == len(record.judgements), "nobody judges an item twice"


def test_an_item_of_somebody_who_has_left_goes_to_others(tmp_path, monkeypatch):
    with serving(tmp_path, some("pairwise", 1), replace(QUIET, overlap=1)) as client:
        assert call(client, "/next", person="anna")["mode"]
        assert not call(client, "/next", person="bert")["mode"]
        monkeypatch.setattr("tasks.extensions.labelling.session.GONE_SECONDS", 0.0)
        assert call(client, "/next", person="bert")["mode"]


def test_the_statistics_page_shows_what_the_record_says(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        assert "0 judgements" in client.get("/statistics").text
        for person in ("anna", "bert"):
            told = call(client, "/next", person=person)
            while told["mode"]:
                texts = shown_texts(told)
                better = "a" if texts[0].endswith("0") else "b"
                told = judge(client, told, {"strength": f"{better} better"}, person)
        page = client.get("/statistics").text
    assert "12 judgements of 6 items" in page
    assert "12 of 12" in page
    assert "2 s each (median)" in page
    assert re.search(r"better of a pair</th><td>1.00|better of a pair</th><td>\N{EN DASH}", page)
    assert "secret-a" in page
    assert "<svg" in page
    assert "style=" not in page


def test_a_full_disk_is_said_and_nothing_is_shown_in_its_place(tmp_path, monkeypatch):
    with serving(tmp_path, some("pairwise")) as client:
        told = call(client, "/next", person="anna")

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("tasks.language.judgements.judgement_log.os.write", full)
            answer = post(
                client,
                "/judge",
                judgement=told["judgement"],
                item=told["item"],
                person="anna",
                value={"strength": "tie"},
                seconds=1,
            )
            assert answer.status_code == 503
            assert "No space left" in answer.json()["fault"]
        judge(client, told, {"strength": "tie"})
    assert len(read_judgement_record(tmp_path).judgements) == 1


def test_the_page_needs_nothing_from_elsewhere(tmp_path):
    with serving(tmp_path, some("pairwise")) as client:
        pages = [client.get(path, headers={HEADER: TOKEN}).text for path in ("/", "/statistics")]
        found = [link for page in pages for link in re.findall(r'(?:src|href)="([^"]*)"', page)]
        assert found
        assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in found)
        assert not [
            page for page in pages if re.search(r"<script(?! type=\"module\" src=)|<style| on\w+=| style=", page)
        ]
        for link in {link for link in found if link.startswith("/static/")}:
            assert client.get(link).status_code == 200
