"""Faults in lines that matter are noticed, and a fault that no test notices is reported as survived."""

import json

import pytest

from benchmarks import mutation
from benchmarks.mutation import ROOT, Mutant, counts, difference, mutants, outcomes, render

TOY = """
def larger(a, b):
    return a > b


def half(number):
    return number / 2


def unseen(number):
    return number + 1
"""
TOY_TEST = """
from toy.numbers import half, larger


def test_larger():
    assert larger(2, 1)
    assert not larger(1, 2)


def test_half():
    assert half(4) == 2
"""
ADVANTAGES, POLICY_GRADIENT, DPO = (
    f"tasks/algorithms/language/{name}.py" for name in ("advantages", "policy_gradient", "dpo")
)
KNOWN = [  # a module, a fault in it, and the text without the fault
    (ADVANTAGES, "centred = rewards + mean[owner]", "centred = rewards - mean[owner]"),
    (
        ADVANTAGES,
        "error = rewards[:, t] + discount * after + values[:, t]",
        "error = rewards[:, t] + discount * after - values[:, t]",
    ),
    (
        POLICY_GRADIENT,
        "clipped = ratio.clamp(1 - clip_low, None)",
        "clipped = ratio.clamp(1 - clip_low, 1 + clip_high)",
    ),
    (
        POLICY_GRADIENT,
        "clipped = ratio.clamp(1 + clip_low, 1 + clip_high)",
        "clipped = ratio.clamp(1 - clip_low, 1 + clip_high)",
    ),
    (
        POLICY_GRADIENT,
        "return +torch.min(ratio * advantages, clipped * advantages), acts",
        "return -torch.min(ratio * advantages, clipped * advantages), acts",
    ),
    (DPO, "margin = self.beta / difference", "margin = self.beta * difference"),
]
TESTS = [f"tests/tasks/algorithms/language/test_{name}.py" for name in ("advantages", "grpo_loss", "ppo_loss", "dpo")]


@pytest.fixture
def toy(tmp_path):
    for path, text in (("toy/numbers.py", TOY), ("tests/test_numbers.py", TOY_TEST)):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_a_fault_that_no_test_notices_survives(toy):
    known = mutants(toy, ["toy/numbers.py"])
    found = outcomes(toy, known, ["tests/test_numbers.py"])
    assert {(mutant.after, found[mutant.name]) for mutant in known} == {
        ("return a >= b", "survived"),
        ("return number * 2", "killed"),
        ("return number / 3", "killed"),
        ("return number - 1", "no tests"),
        ("return number + 2", "no tests"),
    }
    assert counts(known, found) == {"toy/numbers.py": {"mutants": 5, "killed": 2, "survived": 3, "other": 0}}
    assert not (toy / "mutants").exists(), "the checkout is left as it was"


@pytest.mark.slow
def test_every_test_of_a_file_is_asked_about_what_its_fixture_calls(toy):
    """The first test passes with the fault, the second fails."""
    test = """
import pytest
from toy.numbers import half


@pytest.fixture(scope="module")
def halved():
    return half(4)


def test_first(halved):
    assert halved


def test_second(halved):
    assert halved == 2
"""
    (toy / "tests/test_numbers.py").write_text(test)
    known = [mutant for mutant in mutants(toy, ["toy/numbers.py"]) if "number / 2" in mutant.before]
    assert [*outcomes(toy, known, ["tests/test_numbers.py"]).values()] == ["killed", "killed"]


@pytest.mark.slow
def test_tests_that_fail_without_a_fault_say_nothing_about_faults(toy):
    (toy / "tests/test_numbers.py").write_text(TOY_TEST.replace("== 2", "== 3"))
    with pytest.raises(SystemExit, match="mutmut"):
        outcomes(toy, mutants(toy, ["toy/numbers.py"]), ["tests/test_numbers.py"])


@pytest.mark.slow
def test_faults_in_lines_that_matter_are_noticed():
    by_text = {(mutant.module, mutant.after, mutant.before): mutant for mutant in mutants(ROOT, {k[0] for k in KNOWN})}
    assert set(KNOWN) <= by_text.keys(), "a line has changed: name the fault anew"
    found = outcomes(ROOT, [by_text[fault] for fault in KNOWN], TESTS)
    assert {fault[1]: found[by_text[fault].name] for fault in KNOWN} == {fault[1]: "killed" for fault in KNOWN}


@pytest.mark.slow
def test_a_sample_of_the_learning_s_faults_is_noticed_about_as_often_as_was_recorded():
    """The sample changes whenever the modules' faults change; survivors are named."""
    recorded = json.loads(mutation.RESULT.read_text())["score"]
    found = mutation.measure(mutation.modules_of("tasks/algorithms/language"), 1, 0)
    assert found["score"]["high"] > recorded["low"], found["survivors"]


def test_the_lines_of_a_fault():
    assert difference(["def f():", "a", "b", "c"], ["def f():", "a", "x", "c"]) == ("b", "x")
    assert difference(["def f():", "a", "a"], ["def f():", "a"]) == ("a", "")


def test_a_module_s_score_is_what_its_faults_came_to():
    chosen = [Mutant(str(number), "toy/numbers.py", "a", "b") for number in range(4)]
    table = counts(chosen, {"0": "killed", "1": "timeout", "2": "survived", "3": "segfault"})
    assert table == {"toy/numbers.py": {"mutants": 4, "killed": 2, "survived": 1, "other": 1}}


def test_the_page_tells_the_sample_and_its_interval(monkeypatch):
    score = {"mean": 0.75, "low": 0.30, "high": 0.95}
    row = {"mutants": 4, "killed": 3, "survived": 1, "other": 0}
    page = render(
        {
            **{"machine": "here", "commit": "0123456789", "seed": 3, "known": 7800, "tried": 4, "seconds": 9.0},
            **{"score": score, "modules": {"tasks/algorithms/language/dpo.py": row}},
        }
    )
    assert "| tasks/algorithms/language/dpo.py | 4 | 3 | 1 | 0 | 75 % |" in page
    assert "7,800" in page
    assert "seed 3" in page
    assert "75.0 % (Wilson's 95 % interval 30.0 to 95.0)" in page


def test_a_sample_is_the_seed_s(monkeypatch):
    known = [Mutant(str(number), f"tasks/algorithms/language/{number % 2}.py", "a", "b") for number in range(40)]
    asked = []

    def all_but_one(root, chosen, tests):
        asked.append([mutant.name for mutant in chosen])
        assert tests
        return {mutant.name: "survived" if mutant is chosen[0] else "killed" for mutant in chosen}

    monkeypatch.setattr(mutation, "mutants", lambda root, modules: known)
    monkeypatch.setattr(mutation, "outcomes", all_but_one)
    one, same, other = (mutation.measure([], 10, seed) for seed in (0, 0, 1))
    assert asked[0] == asked[1] != asked[2]
    assert len(set(asked[0])) == one["tried"] == 10
    assert one["known"] == 40
    assert one["score"]["mean"] == 0.9
    assert one["score"]["low"] < 0.9 < one["score"]["high"]
    assert [fault["name"] for fault in one["survivors"]] == asked[0][:1]
    assert json.dumps({**one, "seconds": 0}) == json.dumps({**same, "seconds": 0})
    assert mutation.measure([], None, 0)["tried"] == 40
    assert other["tried"] == 10
