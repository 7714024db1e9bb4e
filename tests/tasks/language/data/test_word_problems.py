import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.data import word_problems

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def holds(equation):
    left, symbol, right, result = EQUATION.fullmatch(equation).groups()
    left, right, result = int(left), int(right), int(result)
    if symbol == "/":
        return right > 0 and result * right == left
    return result == {"+": left + right, "-": left - right, "*": left * right}[symbol]


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(30, 200))
@settings(max_examples=50)
def test_every_solution_s_arithmetic_holds(seed, steps, largest):
    problem = word_problems.generate(random.Random(seed), steps, largest)
    *lines, last = problem.solution.split("\n")
    assert len(lines) == len(problem.chain) == steps
    assert last == f"#### {problem.answer}"
    value = None
    for line, equation in zip(lines, problem.chain, strict=True):
        assert [EQUATION.search(line).group()] == [equation]
        assert holds(equation)
        left, _, right, result = map(str, EQUATION.fullmatch(equation).groups())
        assert value is None or left == value, "each step goes on from the last one's result"
        assert re.search(rf"\b{right}\b", problem.question), "the number stands in the question"
        assert value is not None or re.search(rf"\b{left}\b", problem.question)
        value = result
        assert 0 < int(result) <= largest
        assert max(int(left), int(right)) <= largest
    assert str(problem.answer) == value
    assert problem.question.endswith("?")
    assert "{" not in problem.question + problem.solution, "every place of every form is filled"


def test_a_wrong_sum_would_be_noticed():
    assert holds("3 + 4 = 7")
    assert not any(map(holds, ["3 + 4 = 8", "7 / 2 = 3", "3 * 4 = 7", "3 - 4 = 1"]))


def test_the_same_seed_tells_the_same_story():
    first, again, other = (word_problems.generate(random.Random(seed), 3, 60) for seed in (1, 1, 2))
    assert first == again != other


def test_many_surface_forms():
    """Without names, things and numbers there are still hundreds of different questions."""
    rng = random.Random(0)
    words = "|".join([*word_problems.NAMES, *word_problems.ITEMS, *word_problems.BOXES])
    problems = [word_problems.generate(rng, steps, 60) for steps in (1, 2, 3) for _ in range(500)]
    forms = {re.sub(rf"\b({words}|\d+)\b", "_", problem.question) for problem in problems}
    assert len(forms) > 300
    assert {symbol for problem in problems for symbol in re.findall(r" ([-+*/]) ", problem.solution)} == set("+-*/")


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=50)
def test_a_loose_form_has_the_solution_but_not_the_answer_s_format(seed, steps):
    rng = random.Random(seed)
    problem = word_problems.generate(rng, steps, 60)
    text = word_problems.loose_form(rng, problem.question, problem.solution)
    assert problem.question in text
    assert all(equation in text for equation in problem.chain)
    assert "#" not in text
    assert "\n" not in text


@given(st.integers(0, 2**32), st.integers(20, 100))
@settings(max_examples=50)
def test_facts_are_true(seed, largest):
    text = word_problems.arithmetic_fact(random.Random(seed), largest)
    equations = re.split(r"[.,;] ", text.removesuffix("."))
    assert 3 <= len(equations) <= 6
    assert all(map(holds, equations))
    for left, symbol, _, result in EQUATION.findall(text):
        assert symbol not in "+-" or max(int(left), int(result)) <= largest


def test_demonstrations_are_worked_out_or_careless_in_two_ways():
    solution, rng = "3 + 4 = 7\n7 * 2 = 14\n#### 14", random.Random(0)
    forms = [word_problems.demonstration(rng, solution, shortcut=0.3, rambling=0.2) for _ in range(4000)]
    twice = {"3 + 4 = 7\n3 + 4 = 7\n7 * 2 = 14\n#### 14", "3 + 4 = 7\n7 * 2 = 14\n7 * 2 = 14\n#### 14"}
    assert set(forms) == {solution, "#### 14", *twice}
    assert abs(forms.count("#### 14") / 4000 - 0.3) < 0.03
    assert abs(sum(form in twice for form in forms) / 4000 - 0.2) < 0.03
    assert word_problems.demonstration(rng, solution, shortcut=0.0, rambling=0.0) == solution
