"""Faults are drawn evenly, tried on the tests near to them, and reported as what came of them; faults in lines that
matter are noticed.
"""

import functools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import mutation, result_files
from benchmarks.mutation import (
    ROOT,
    Mutant,
    draw_mutants,
    extract_differing_lines,
    generate_function_mutants,
    list_module_functions,
    render,
)
from tests.reach import files_of

HALVES = """
def half(number):
    return number / 2


class Numbers:
    def larger(self, a, b):
        return a > b


def unseen(number):
    return number + 1
"""
LONG = "def {name}(a, b):\n" + "    a = a * 2 + b - 3\n    return a\n"
TOY = {
    "tasks/halves/numbers.py": HALVES,
    "tasks/halves/checked.py": "def limit():\n    return 1\n\n\nassert limit() == 1\n",
    "tests/test_checked.py": "from tasks.halves.checked import limit\n\n\ndef test_limit():\n    assert limit\n",
    "tasks/long/first.py": LONG.format(name="first"),
    "flows/second.py": LONG.format(name="second"),
    "flows/deep/third.py": LONG.format(name="third"),
    "benchmarks/none.py": LONG.format(name="of_no_flow"),
    "tests/test_numbers.py": """
from tasks.halves.numbers import Numbers, half


def test_larger():
    assert Numbers().larger(2, 1)
    assert not Numbers().larger(1, 2)


def test_half():
    assert half(4) == 2
""",
}
NUMBERS = "tasks/halves/numbers.py"
NOTICED = Mutant(NUMBERS, "half", "return number / 2", "return number * 2")
IN_A_CLASS = Mutant(NUMBERS, "Numbers.larger", "return a > b", "return a >= b")
AT_IMPORT = Mutant("tasks/halves/checked.py", "limit", "return 1", "return 2")
GONE = Mutant(NUMBERS, "deleted", "return 1", "return 2")
ADVANTAGES, POLICY_GRADIENT, DPO = (
    f"tasks/algorithms/language/{name}.py" for name in ("advantages", "policy_gradient", "dpo")
)
KNOWN = [  # a module, the text without a fault, and with it
    (ADVANTAGES, "centred = rewards - mean[owner]", "centred = rewards + mean[owner]"),
    (
        ADVANTAGES,
        "error = rewards[:, t] + discount * after - values[:, t]",
        "error = rewards[:, t] + discount * after + values[:, t]",
    ),
    (
        POLICY_GRADIENT,
        "clipped = ratio.clamp(1 - clip_low, 1 + clip_high)",
        "clipped = ratio.clamp(1 - clip_low, None)",
    ),
    (
        POLICY_GRADIENT,
        "clipped = ratio.clamp(1 - clip_low, 1 + clip_high)",
        "clipped = ratio.clamp(1 + clip_low, 1 + clip_high)",
    ),
    (
        POLICY_GRADIENT,
        "return -torch.min(ratio * advantages, clipped * advantages), acts",
        "return +torch.min(ratio * advantages, clipped * advantages), acts",
    ),
    (DPO, "margin = self.beta * difference", "margin = self.beta / difference"),
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with code in four folders of flows/ and tasks/, and tests of one of them."""
    root = tmp_path_factory.mktemp("toy")
    for path, text in TOY.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


# Tries the faults of a file until so many have an outcome, and then the rest; in a process that has no threads and no
# other children.
TRY = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from benchmarks import mutation

file, tree, stop, preloaded = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
mutation.PRELOADED = mutation.PRELOADED if preloaded == "preloaded" else ()
mutants = [mutation.Mutant(**row) for row in json.loads(file.read_text())]
kept = []

def keep():
    kept.append([asdict(mutant) for mutant in mutants])
    if len(kept) == stop:
        raise KeyboardInterrupt

try:
    mutation.run_mutant_trials(tree, "toy", mutants, 1 if stop else 2, keep)
except KeyboardInterrupt:
    mutants[0].outcomes["toy"]["test"] += ", not tried again"
    mutation.run_mutant_trials(tree, "toy", mutants, 2, keep)
file.write_text(json.dumps([kept[stop - 1], kept[-1]]))
"""


def tried(
    folder: Path, tree: Path, mutants: Sequence[Mutant], stop: int = 0, preloaded: str = ""
) -> list[list[Mutant]]:
    """The faults after so many outcomes, and with all of them."""
    file = folder / "mutants.json"
    file.write_text(json.dumps([*map(asdict, mutants)]))
    command = [sys.executable, "-c", TRY, str(file), str(tree), str(stop), preloaded]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [[Mutant(**row) for row in rows] for rows in json.loads(file.read_text())]


def words(mutants: Iterable[Mutant]) -> list[tuple[str, str] | None]:
    """The outcome of each fault and the test that failed; None where it was not tried."""
    outcomes = [mutant.outcomes.get("toy") for mutant in mutants]
    return [outcome and (outcome["outcome"], outcome["test"]) for outcome in outcomes]


def test_functions_and_methods_have_faults_with_the_text_of_the_module(toy: Path) -> None:
    functions = {function.name: function for function in list_module_functions(toy, NUMBERS)}
    assert [*functions] == ["half", "unseen", "Numbers.larger"]
    assert generate_function_mutants(toy, functions["half"]) == {
        ("return number / 2", "return number * 2"): HALVES.replace("number / 2", "number * 2"),
        ("return number / 2", "return number / 3"): HALVES.replace("number / 2", "number / 3"),
    }
    assert generate_function_mutants(toy, functions["Numbers.larger"]) == {
        ("return a > b", "return a >= b"): HALVES.replace("a > b", "a >= b")
    }


def test_a_draw_is_the_seed_s_and_the_same_number_from_each_folder_of_code(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "generate_function_mutants", functools.cache(generate_function_mutants))
    drawn = draw_mutants(toy, 9, 0, files_of(toy))
    assert drawn == draw_mutants(toy, 9, 0, files_of(toy))
    assert drawn != draw_mutants(toy, 9, 1, files_of(toy))
    counts = Counter(mutant.module.rpartition("/")[0] for mutant in drawn)
    assert counts.keys() == {"tasks/halves", "tasks/long", "flows", "flows/deep"}
    assert sorted(counts.values()) == [2, 2, 2, 3]
    for mutant in drawn:
        [function] = [one for one in list_module_functions(toy, mutant.module) if one.name == mutant.function]
        assert (mutant.before, mutant.after) in generate_function_mutants(toy, function)


def test_each_fault_is_tried_once_and_the_checkout_stays_as_it_was(toy: Path, tmp_path: Path) -> None:
    """Noticed by a test, by a file of tests that cannot be imported, or not; the run is stopped after two, and goes
    on.
    """
    files = {file: file.read_text() for file in toy.rglob("*.py")}
    first, whole = tried(tmp_path, toy, [NOTICED, IN_A_CLASS, AT_IMPORT, GONE], stop=2)
    killed = ("killed", "tests/test_numbers.py::test_half")
    assert words(first) == [killed, ("survived", ""), None, None]
    assert words(whole) == [
        ("killed", "tests/test_numbers.py::test_half, not tried again"),
        ("survived", ""),
        ("killed", "tests/test_checked.py"),
        ("gone", ""),
    ]
    assert {file: file.read_text() for file in toy.rglob("*") if file.is_file()} == files


def test_a_function_that_has_moved_is_tried_where_it_is_now(toy: Path, tmp_path: Path) -> None:
    """In a file of the same name, if its lines are the same; its own file comes first."""
    trials = mutation.Trials(toy, tmp_path, 1)
    text = HALVES.replace("number / 2", "number * 2")
    assert trials.build_mutated_source(NOTICED) == (NUMBERS, text)
    assert trials.build_mutated_source(replace(NOTICED, module="tasks/elsewhere/numbers.py")) == (NUMBERS, text)
    assert trials.build_mutated_source(replace(NOTICED, module="tasks/elsewhere/others.py")) is None
    assert trials.build_mutated_source(replace(NOTICED, before="return 2 * number")) is None
    assert (tmp_path / "copy0" / NUMBERS).read_text() == HALVES


def test_another_checkout_is_tried_with_the_faults_of_the_first(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes are in the file as they come, by column."""
    result = tmp_path / "results/mutation.json"
    outcomes = iter(["killed", "survived"])

    def tries(tree, column, mutants, processes, keep):
        assert tree == toy
        for mutant in mutants:
            mutant.outcomes[column] = {"outcome": next(outcomes), "test": "", "seconds": 1.0}
            keep()
            seen.append(result_files.load_result(result)["mutants"])

    seen: list[list[dict[str, object]]] = []
    monkeypatch.setattr(mutation, "run_mutant_trials", tries)
    options = ["mutation", "--tree", str(toy), "--result", str(result), "--sample", "1", "--seed"]
    for seed, column in (("3", "old"), ("4", "new")):
        monkeypatch.setattr("sys.argv", [*options, seed, "--column", column])
        mutation.main()
    monkeypatch.setattr("sys.argv", [*options, "3", "--column", "third", "--unless-killed-by", "old"])
    mutation.main()
    [before], [after] = seen
    assert [*after["outcomes"]] == ["old", "new"]
    assert {**after, "outcomes": None} == {**before, "outcomes": None}
    kept = result_files.load_result(result)
    assert (kept["seed"], kept["columns"]) == (3, ["old", "new"]), "the old tests noticed it: nothing was tried"


def test_a_share_is_of_all_faults() -> None:
    tried = Mutant("tasks/x.py", "f", "a", "b", {"old": {"outcome": "killed", "test": "", "seconds": 2.0}})
    page = render(
        {"machine": "", "seed": 3, "columns": ["old"], "mutants": [asdict(tried), asdict(Mutant("x", "y", "a", "b"))]}
    )
    assert "| old | 1 | 1 | 0 | 0 | 0 |  | 2 |" in page


def test_the_lines_of_a_fault() -> None:
    assert extract_differing_lines(["def f():", "a", "b", "c"], ["def f():", "a", "x", "c"]) == ("b", "x")
    assert extract_differing_lines(["def f():", "a", "a"], ["def f():", "a"]) == ("a", "")


def test_the_page_has_each_column_s_share_and_what_only_the_earlier_tests_noticed() -> None:
    def outcome(word: str) -> dict[str, object]:
        return {"outcome": word, "test": "tests/test_x.py::test_it" * (word == "killed"), "seconds": 2.0}

    pairs = [("killed", "survived"), ("timeout", "killed"), ("survived", "gone"), ("exit 3", "killed")]
    mutants = [
        Mutant("tasks/x.py", f"f{n}", "a", "b", {"old": outcome(old), "new": outcome(new)})
        for n, (old, new) in enumerate(pairs)
    ]
    page = render({"machine": "a machine", "seed": 3, "columns": ["old", "new"], "mutants": [*map(asdict, mutants)]})
    assert "mutmut made 4 faults" in page
    assert "seed 3" in page
    assert "| old | 4 | 2 | 1 | 0 | 1 | 66.7 % (20.8 to 93.9) | 8 |" in page, "Wilson's interval of 2 in 3"
    assert "| new | 4 | 2 | 1 | 1 | 0 | 66.7 % (20.8 to 93.9) | 8 |" in page
    lost = page.partition("not by those of new\n\n")[2]
    assert lost == "- tasks/x.py, f0: `a` -> `b`; survived; before by tests/test_x.py::test_it\n"


@pytest.mark.slow
def test_faults_in_lines_that_matter_are_noticed(tmp_path: Path) -> None:
    mutants = []
    for module, before, after in KNOWN:
        names = [
            one.name
            for one in list_module_functions(ROOT, module)
            if (before, after) in generate_function_mutants(ROOT, one)
        ]
        assert len(names) == 1, f"{before}: the line has changed: name the fault anew"
        mutants.append(Mutant(module, names[0], before, after))
    _, whole = tried(tmp_path, ROOT, mutants, preloaded="preloaded")
    assert [outcome and outcome[0] for outcome in words(whole)] == ["killed"] * len(KNOWN)
