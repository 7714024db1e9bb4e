"""The pages on suites: their numbers, their words, and in a browser their answers to read, filter and sort."""

import pytest

from tasks.common.errors import DataError
from tasks.extensions.suites import answer_rows, pages
from tasks.extensions.suites.tests.results_by_hand import result
from tests import browser

HOSTILE = "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
CHROMIUM = pytest.mark.skipif(browser.PROGRAM is None, reason="needs chromium: apt install chromium")


def test_differences_and_flips_stand_on_the_page(tmp_path):
    base, ours = result("sft", [1, 0, 0, 1]), result("grpo", [1, 1, 1, 0])
    numbers = pages.write_suite_pages([base, ours], "sft", tmp_path)
    text = (tmp_path / "math500/suite.md").read_text()
    assert "gained 2, lost 1, p 0.56" in text
    assert "grpo is right on 75.0 % of MATH-500's problems (greedy; 95 % interval" in text
    assert "25.0 points above sft, which chance alone may explain." in text
    assert numbers == {
        "sft": {"math500": {"mean": 0.5}, "average": 0.5},
        "grpo": {"math500": {"mean": 0.75}, "average": 0.75},
    }
    assert "Differences to sft" in (tmp_path / "math500/suite.html").read_text()


def test_a_sure_gain_is_called_so(tmp_path):
    pages.write_suite_pages([result("sft", [0] * 20), result("grpo", [1] * 20)], "sft", tmp_path)
    assert "more than chance explains" in (tmp_path / "headline.txt").read_text()


def test_a_tie_is_no_gain(tmp_path):
    pages.write_suite_pages([result("grpo", [0, 1]), result("sft", [1, 0])], "sft", tmp_path)
    assert (tmp_path / "headline.txt").read_text().startswith("sft is right on 50.0 % of")
    assert "above" not in (tmp_path / "headline.txt").read_text()


def test_without_a_baseline_nothing_is_compared(tmp_path):
    pages.write_suite_pages([result("mine", [1, 0])], "", tmp_path)
    assert "Differences" not in (tmp_path / "math500/suite.html").read_text()


def test_one_policy_twice_is_one_line(tmp_path):
    with pytest.raises(DataError, match="sft stands twice for math500; expected each policy once"):
        pages.write_suite_pages([result("sft", [1]), result("sft", [0])], "sft", tmp_path)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("right_greedy", "greedy"),
        ("right_mean_at_8_t0.6", "mean@8 at t 0.6"),
        ("right_pass_at_4_t1.0", "pass@4 at t 1.0"),
        ("ended_greedy", "ended greedy"),
    ],
)
def test_columns_are_called_by_the_field_s_words(metric, said):
    assert pages.format_metric_name(metric) == said


def test_answers_are_whole_up_to_a_length():
    own = result("sft", [1, 0], samples=[[1, 0], [0, 0]], texts=["x" * 7000, "short"])
    found = answer_rows.build_answer_data([own], "sft")
    first, second = (problem[-1][0] for problem in found["problems"])
    assert (len(first[0]), second[0]) == (answer_rows.LONGEST + 4, "short")
    assert first[1:] == ["0", 1, 1, 5, "10", 0.5]
    assert found["methods"] == ["qwen", "box"]


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("profile")) as chromium:
        yield chromium.tab()


ROWS = "document.querySelectorAll('#answer-list .row').length"


def choose(tab, label, value):
    tab.value(
        f"(box => {{ box.value = '{value}'; box.dispatchEvent(new Event('change')); "
        f"}})(document.querySelector('select[aria-label={label}]'))"
    )


@CHROMIUM
def test_answers_are_read_filtered_and_sorted(tab, tmp_path):
    base = result("sft", [1, 0, 0, 1])
    ours = result("grpo", [1, 1, 1, 0], texts=["a", "b", HOSTILE, "needle"])
    pages.write_suite_pages([base, ours], "sft", tmp_path)
    tab.open((tmp_path / "math500/suite.html").as_uri())
    tab.wait(f"{ROWS} === 4")
    for kind, count in (("gained", 2), ("lost", 1), ("right", 3), ("apart", 3), ("nothing", 0), ("all", 4)):
        choose(tab, "Show", kind)
        assert tab.value(ROWS) == count, kind
    choose(tab, "Level", "2")
    assert tab.value(ROWS) == 2
    choose(tab, "Level", "")
    choose(tab, "Sort", "longest")
    assert "What is 3?" in tab.value("document.querySelector('#answer-list .row').innerText")
    tab.value("document.querySelectorAll('#answer-list .row').forEach(row => { row.open = true })")
    tab.wait("document.querySelectorAll('#answer-list .answer').length === 12")
    assert HOSTILE in tab.value("document.getElementById('answer-list').innerText"), "as text"
    assert tab.value("document.title") == "MATH-500"
    tab.value(
        "(box => { box.value = 'NEEDLE'; box.dispatchEvent(new Event('input')); "
        "})(document.querySelector('input[type=search]'))"
    )
    assert tab.value(ROWS) == 1
    for width in (390, 1600):
        tab.screen(width, 900)
        assert tab.value(f"({browser.SHOWS_HINT})('input[type=search]')"), width
        assert tab.value("document.documentElement.scrollWidth <= window.innerWidth"), width


@CHROMIUM
@pytest.mark.slow
def test_of_five_thousand_answers_the_first_fifty_are_written_and_all_are_counted(tab, tmp_path):
    right = [number % 3 for number in range(2500)]
    texts = [f"{number} " + "step by step " * 80 for number in range(2500)]
    pages.write_suite_pages([result(name, right, texts=texts) for name in ("sft", "grpo")], "sft", tmp_path)
    tab.open((tmp_path / "math500/suite.html").as_uri())
    tab.wait(f"{ROWS} === 50")
    choose(tab, "Show", "wrong")
    assert "834 of 2500 problems" in tab.value("document.querySelector('#answer-list p').textContent")
