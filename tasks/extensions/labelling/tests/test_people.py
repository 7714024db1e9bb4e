"""The real page in Chromium, with simulated people: all modes, reloads, and kill -9 of the server, again and again."""

import json
import random
import threading
import time

import pytest

from flows.engine.server_guard import find_free_port
from tasks.extensions.labelling import rankings
from tasks.extensions.labelling.item_view import convert_value_to_shown_order
from tasks.extensions.labelling.tests.pages import COUNTS, Server
from tasks.extensions.labelling.tests.people import Person
from tasks.language.judgements.judgement_log import read_judgement_record
from tests.browser import PROGRAM, Browser

KILLS = 8  # in each of four modes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="needs chromium: apt install chromium")]


def rows(mode, count):
    """Prompts with answers that say what they are worth."""
    chance = random.Random(mode)
    for number in range(count):
        answers = [f"answer {n} to {number}, worth {chance.randrange(9)}" for n in range(COUNTS[mode])]
        if mode == "steps":
            answers = ["\n".join(f"step {n} of {number} is {chance.choice(['right', 'wrong'])}" for n in range(4))]
        yield {"prompt": f"question {number}", "answers": answers}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def people(browser):
    """Three people, each with a browser's store of its own."""
    made = (("anna", 0.9, 0.0, 0.0), ("bert", 0.7, 0.3, 0.02), ("carla", 1.0, 0.0, 0.05))
    found = [Person(browser.tab(), *one, random.Random(one[0])) for one in made]
    for person in found:
        person.tab.screen(1280, 900)
    yield found
    faults = [event for event in browser.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    browser.events.clear()
    away = ("net::ERR", "the server responded with a status of 403")
    unexpected = [fault for fault in faults if not any(words in json.dumps(fault) for words in away)]
    assert not unexpected, "the page has no errors but that the server was away"


def file_of(folder, mode, count):
    path = folder / "items.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(mode, count)))
    return path


@pytest.mark.parametrize("mode", COUNTS)
def test_no_judgement_is_lost(mode, tmp_path, people):
    chance, kills = random.Random(f"kills {mode}"), 0
    with Server(tmp_path, file_of(tmp_path, mode, 30), mode, find_free_port(), "--overlap=3") as server:
        for person in people:
            person.open(server.address)
        while kills < KILLS:
            person = chance.choice(people)
            if person.said and chance.random() < 0.1:
                person.undo()
            if chance.random() < 0.2:
                person.judge(mode)
                person.wait()
                continue
            kills += 1
            killer = threading.Timer(chance.random() ** 2 * 0.1, server.kill)
            person.judge(mode, killer.start)
            killer.join()
            if chance.random() < 0.5:  # the page finds the server again by itself
                person.tab.wait(
                    "document.querySelector('#trouble:not([hidden])') || "
                    + "document.querySelector('.prompt:not([data-seen])')"
                )
                server.start()
            else:  # or is loaded anew, while it may be asking
                server.start()
                person.open(server.address)
            person.wait()
        while open_ := [person for person in people if not person.finished()]:
            open_[0].judge(mode)
            open_[0].wait()
        assert "stopped; 90 judgements" in server.interrupt()
    record = read_judgement_record(server.record)
    for person in people:
        own = [line for line in record.judgements if line.person == person.name]
        assert [in_page(record, line) for line in own] == person.said
        assert all(line.seconds >= person.pace for line in own)
    assert len({line.judgement for line in record.judgements}) == len(record.judgements) == 90


def in_page(record, line):
    """A judgement of the record as the person saw and said it."""
    item = record.items[line.item]
    texts = item.steps if line.mode == "steps" else [item.answers[place].text for place in line.order]
    return [*texts], convert_value_to_shown_order(line.value, line.order).model_dump(mode="json", by_alias=True)


def test_what_the_page_does_beside(tmp_path, people):
    """A name is asked for at first, the token leaves the address, faults are said, skip, flag, raw text, help, hostile
    answers.
    """
    anna = people[0]
    tab, file = anna.tab, tmp_path / "items.jsonl"
    hostile = "<script>document.title = 'hurt'</script><img src=x onerror=\"document.title = 'hurt'\"> $x^2$"
    file.write_text("".join(json.dumps({"prompt": f"q{n}", "answers": [hostile, f"*b* {n}"]}) + "\n" for n in range(4)))
    with Server(tmp_path, file, "pairwise", find_free_port()) as server:
        tab.open(server.address)
        tab.wait("document.querySelector('#naming[open]')")
        tab.type("an<na")
        tab.press("Enter")
        tab.wait("document.querySelector('#naming-fault').textContent")
        tab.value("document.querySelector('#name').value = 'anna'")
        tab.press("Enter")
        tab.wait("document.querySelector('.prompt') && !document.querySelector('dialog[open]')")
        assert "token" not in tab.value("location.href")
        assert tab.value("document.querySelectorAll('.answers math').length") == 1
        assert tab.value("document.querySelectorAll('.answers script, .answers img').length") == 0
        assert tab.value("document.title") == "Label \N{EN DASH} Posttrain"
        tab.press("Enter")
        assert tab.value("document.querySelector('#fault').textContent") == "Choose a verdict first."
        for key, dialog in (("?", "keys"), ("g", "guidelines"), ("f", "flagging")):
            tab.press(key)
            tab.wait(f"document.querySelector('#{dialog}[open]')")
            if key == "f":
                tab.type("odd")
                tab.press("Enter")
                tab.wait("document.querySelector('#status').textContent === 'Flagged.'")
            else:
                tab.press("Escape")
            tab.wait("!document.querySelector('dialog[open]')")
        tab.press("r")
        assert tab.value("getComputedStyle(document.querySelector('.answer .raw')).display") == "block"
        anna.leave()
        tab.press("s")
        anna.wait()
        anna.leave()
        tab.press("0")
        tab.press("Enter")
        anna.wait()
        assert tab.value("document.querySelector('#status').textContent").startswith("Saved. 1 of 4")
        tab.open(server.address)  # the name is remembered
        tab.wait("document.querySelector('.prompt')")
        assert tab.value("document.querySelector('#who').textContent") == "anna"
    record = read_judgement_record(server.record)
    assert [line.value.strength for line in record.judgements] == ["both bad"]
    assert ([line.reason for line in record.flags], len(record.skips)) == (["odd"], 1)


def test_a_server_with_another_token_gets_nothing_and_the_judgement_stays(tmp_path, people):
    anna = people[0]
    with Server(tmp_path, file_of(tmp_path, "pairwise", 3), "pairwise", find_free_port()) as server:
        anna.open(server.address)
        right = server.address
        server.kill()
        server.start(token="another")
        anna.judge("pairwise")
        anna.tab.wait("document.querySelector('#fault').textContent.includes('open the address')")
        server.kill()
        server.start()
        anna.open(right)
        anna.tab.wait("document.querySelector('#progress').textContent.startsWith('1 of 3')")
    assert len(read_judgement_record(server.record).judgements) == 1


def test_a_better_answer_that_is_being_written_outlives_a_reload(tmp_path, people):
    anna = people[0]
    with Server(tmp_path, file_of(tmp_path, "edit", 3), "edit", find_free_port()) as server:
        anna.open(server.address)
        anna.tab.press("1")
        anna.tab.value("document.execCommand('insertText', false, 'so far \\ud83d')")  # half an emoji
        text = anna.tab.value("document.querySelector('textarea').value")
        anna.open(server.address)
        assert anna.tab.value("document.querySelector('textarea').value") == text
        anna.tab.value("document.querySelector('textarea').focus()")
        anna.leave()
        anna.tab.press("Enter", modifiers=2)
        anna.wait()
        assert anna.tab.value("document.querySelector('textarea').value") == ""
    [line] = read_judgement_record(server.record).judgements
    assert "so far" in text
    assert (line.value.text, line.value.start) == (text.replace("\ud83d", "\ufffd"), line.order[0])


def test_the_page_reads_rankings_as_the_record_does(tmp_path, people):
    """The two readers of `D > G > A = B`, on texts with faults and without."""
    tab, chance = people[0].tab, random.Random(0)
    texts = ["", " ", "a>b>c>d", "D > C > A = B", "A=B=C=D", "A > B", "A > A > B > C > D", "E > A"]
    for _ in range(300):
        first, *others = chance.sample("ABCDabcdE", 4) if chance.random() < 0.5 else chance.sample("ABCD", 4)
        texts.append(first + "".join(chance.choice([" > ", "=", ">", " = ", " > ", " "]) + name for name in others))
    with Server(tmp_path, file_of(tmp_path, "ranking", 2), "ranking", find_free_port()) as server:
        people[0].open(server.address)
        read_by_page = tab.value(
            "import('/static/ranking.js').then(it => "
            f"{json.dumps(texts)}.map(text => (({{tiers, fault}}) => fault ? null : it.ranks(tiers, "
            "[...'ABCD']))(it.parse(text, [...'ABCD']))))"
        )
    assert sum(ranks is not None for ranks in read_by_page) > 30
    for text, ranks in zip(texts, read_by_page, strict=True):
        try:
            expected = [*rankings.parse_ranking(text, "ABCD")]
        except ValueError:
            expected = None
        assert ranks == expected, text


def test_time_in_which_the_page_is_hidden_does_not_count(tmp_path, people):
    tab = people[0].tab
    with Server(tmp_path, file_of(tmp_path, "pairwise", 3), "pairwise", find_free_port()) as server:
        people[0].open(server.address)
        hide = (
            "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}}); "
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        tab.value(hide.format("true"))
        time.sleep(5)
        tab.value(hide.format("false"))
        people[0].judge("pairwise")
        people[0].wait()
    assert read_judgement_record(server.record).judgements[0].seconds < 5


@pytest.mark.parametrize("mode", COUNTS)
def test_a_phone_shows_everything_in_its_width(mode, tmp_path, people):
    tab = people[0].tab
    tab.screen(360, 740, dark=True)
    with Server(tmp_path, file_of(tmp_path, mode, 3), mode, find_free_port()) as server:
        people[0].open(server.address)
        assert tab.value("document.documentElement.scrollWidth") == 360
        tree = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "radio", "textbox", "link", "combobox", "dialog", "progressbar"}
        nameless = [one for one in tree if one.get("role", {}).get("value") in roles and not one["name"]["value"]]
        assert not nameless, "a screen reader has a name for everything"
        small = (
            "[...document.querySelectorAll('main button, main .choice, footer button')].filter(one => "
            "one.getBoundingClientRect().height < 38)"
        )
        assert tab.value(f"{small}.map(one => one.outerHTML)") == []
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        tab.open(server.address.replace("/?", "/statistics?"))
        tab.wait("document.querySelector('h1')?.textContent === 'Statistics'")
        assert tab.value("document.documentElement.scrollWidth") == 360
