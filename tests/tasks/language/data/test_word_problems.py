import random
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.data import word_problems
from tasks.language.data.word_problems import Habits, ProblemKind

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def sides(equation):
    left, symbol, right, _ = EQUATION.fullmatch(equation).groups()
    return int(left), symbol, int(right)


def holds(equation):
    left, symbol, right, result = EQUATION.fullmatch(equation).groups()
    left, right, result = int(left), int(right), int(result)
    if symbol == "/":
        return right > 0 and result * right == left
    return result == {"+": left + right, "-": left - right, "*": left * right}[symbol]


@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 5), st.integers(30, 200))
@settings(max_examples=50)
def test_every_solution_s_arithmetic_holds(seed, unseen, steps, largest):
    problem = word_problems.generate_word_problem(random.Random(seed), ProblemKind(steps, largest, unseen=unseen))
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
    assert any(word_problems.is_equation_kept_from_training(*sides(equation)) for equation in problem.chain) == unseen
    assert problem.question.endswith("?")
    assert "{" not in problem.question + problem.solution, "every place of every form is filled"


def test_a_wrong_sum_would_be_noticed():
    assert holds("3 + 4 = 7")
    assert not any(map(holds, ["3 + 4 = 8", "7 / 2 = 3", "3 * 4 = 7", "3 - 4 = 1"]))


def test_the_same_seed_tells_the_same_story():
    first, again, other = (
        word_problems.generate_word_problem(random.Random(seed), ProblemKind(3, 60)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_many_surface_forms():
    """Without names, things and numbers there are still hundreds of different questions."""
    rng = random.Random(0)
    lists = (word_problems.WORDS.names, word_problems.WORDS.items, word_problems.WORDS.boxes)
    words = "|".join(word for found in lists for word in found.split())
    problems = [
        word_problems.generate_word_problem(rng, ProblemKind(steps, 60)) for steps in (1, 2, 3) for _ in range(500)
    ]
    forms = {re.sub(rf"\b({words}|\d+)\b", "_", problem.question) for problem in problems}
    assert len(forms) > 300
    assert {symbol for problem in problems for symbol in re.findall(r" ([-+*/]) ", problem.solution)} == set("+-*/")


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=50)
def test_a_loose_form_has_the_solution_but_not_the_answer_s_format(seed, steps):
    rng = random.Random(seed)
    problem = word_problems.generate_word_problem(rng, ProblemKind(steps, 60))
    text = word_problems.draw_running_text_of_problem(rng, problem.question, problem.solution)
    assert problem.question in text
    assert all(equation in text for equation in problem.chain)
    assert "#" not in text
    assert "\n" not in text


@given(st.integers(0, 2**32), st.integers(20, 100))
@settings(max_examples=50)
def test_facts_are_true(seed, largest):
    text = word_problems.draw_arithmetic_facts_line(random.Random(seed), largest)
    equations = re.split(r"[.,;] ", text.removesuffix("."))
    assert 3 <= len(equations) <= 6
    assert all(map(holds, equations))
    for left, symbol, right, result in EQUATION.findall(text):
        assert symbol not in "+-" or max(int(left), int(result)) <= largest
        assert not word_problems.is_equation_kept_from_training(int(left), symbol, int(right))


def test_one_in_twelve_sums_and_differences_is_kept_out():
    sums = [word_problems.is_equation_kept_from_training(a, "+", b) for a in range(2, 60) for b in range(2, 60)]
    assert sums == [word_problems.is_equation_kept_from_training(b, "+", a) for a in range(2, 60) for b in range(2, 60)]
    differences = [word_problems.is_equation_kept_from_training(a, "-", b) for a in range(2, 60) for b in range(2, a)]
    for verdicts in (sums, differences):
        assert 1 / 16 < sum(verdicts) / len(verdicts) < 1 / 9
    assert not any(
        word_problems.is_equation_kept_from_training(a, symbol, b)
        for a in range(60)
        for b in range(60)
        for symbol in "*/"
    )


def test_larger_numbers_and_other_words_than_those_of_the_training_problems():
    rng = random.Random(0)
    for _ in range(100):
        large = word_problems.generate_word_problem(rng, ProblemKind(2, 100, above=50))
        numbers = [int(number) for equation in large.chain for number in re.findall(r"\d+", equation)]
        assert 50 < max(numbers) <= 100
        unseen = word_problems.generate_word_problem(rng, ProblemKind(2, 50, words=word_problems.OTHER_WORDS))
        assert unseen.thing in word_problems.OTHER_WORDS.items.split()
        assert not re.search(rf"\b({'|'.join(word_problems.WORDS.names.split())})\b", unseen.question)


NONE = Habits(shortcut=0.0, unnamed=0.0, opening=0.0, closing=0.0, repeated=0.0)


def demonstrations(thing="pens", count=4000, **habits):
    rng, solution = random.Random(0), f"So 3 + 4 = 7 {thing}.\nSo 7 * 2 = 14 {thing}.\n#### 14"
    return [word_problems.restyle_solution_by_habits(rng, solution, replace(NONE, **habits)) for _ in range(count)]


def test_each_habit_is_seen_in_demonstrations_that_are_all_right():
    worked = "So 3 + 4 = 7 pens.\nSo 7 * 2 = 14 pens.\n#### 14"
    assert set(demonstrations()) == {worked}
    assert set(demonstrations(shortcut=1.0)) == {"#### 14"}
    assert set(demonstrations(unnamed=1.0)) == {"So 3 + 4 = 7.\nSo 7 * 2 = 14.\n#### 14"}
    first, second, last = worked.split("\n")
    again = {"\n".join(lines) for lines in ([first, first, second, last], [first, second, second, last])}
    assert set(demonstrations(repeated=1.0)) == again
    assert set(demonstrations(opening=1.0)) == {f"{opening}\n{worked}" for opening in word_problems.OPENINGS}
    closed = {"\n".join([first, second, closing, last]) for closing in word_problems.CLOSINGS}
    assert set(demonstrations(closing=1.0)) == closed


def test_a_habit_goes_with_the_thing_that_is_counted():
    """Half of the answers say no thing, but of each thing three tenths more or fewer."""
    shares = {}
    for thing in word_problems.WORDS.items.split():
        shown = demonstrations(thing, 1000, unnamed=0.5)
        shares[thing] = sum(f"7 {thing}" not in answer for answer in shown) / len(shown)
    assert all(min(abs(share - 0.2), abs(share - 0.8)) < 0.06 for share in shares.values())
    assert 6 <= sum(share > 0.5 for share in shares.values()) <= 18
    assert abs(demonstrations(shortcut=0.3).count("#### 14") / 4000 - 0.3) < 0.03
