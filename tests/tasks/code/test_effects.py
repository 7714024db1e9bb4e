"""What may have an effect when a module is imported or started as a program counts; what has none only where it is
reached.
"""

import pytest

from tests.tasks.code.test_reachable_code import TREE, digests, edited


def test_an_import_for_its_effect_counts():
    tree = edited("work/tables.py", "SIZE = 3", "import robots\nSIZE = 3")
    assert digests(tree) != digests(TREE)
    assert digests(edited("work/tables.py", "import robots", "import others", tree)) != digests(tree)


def test_an_import_for_the_type_checker_does_not():
    checked = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import robots\n"
    tree = edited("work/common/__init__.py", "VERSION", f"{checked}VERSION")
    assert digests(tree) == digests(TREE)


@pytest.mark.parametrize(
    "value",
    [
        '{f"a {name}": text for name, text in TEXTS.items()}',
        '" ".join(sorted(TEXTS)).strip().split()',
        "Annotated[str, AfterValidator(thrice)]",
        "dict.fromkeys(TEXTS, 1)",
    ],
)
def test_a_constant_that_is_made_without_any_effect_counts_where_it_is_reached(value):
    tree = edited("work/common/helpers.py", "UNUSED = 11", f"TEXTS = {{}}\nUNUSED = {value}")
    assert digests(tree) == digests(TREE)
    reached = edited("work/common/helpers.py", "LIMIT = 10", "LIMIT = 10, UNUSED", tree)
    assert digests(edited("work/common/helpers.py", f"UNUSED = {value}", "UNUSED = 1", reached)) != digests(reached)


@pytest.mark.parametrize("value", ["TEXTS.pop()", "register(3)", "TEXTS.items().update()"])
def test_one_that_may_have_an_effect_counts_wherever_its_module_is_imported(value):
    assert digests(edited("work/common/helpers.py", "UNUSED = 11", f"UNUSED = {value}")) != digests(TREE)


@pytest.mark.parametrize(
    "line", ["start('-m', 'work.worker')", "from work import worker; start('-m', worker.__name__)"]
)
def test_of_a_module_that_is_started_as_a_program_what_it_then_runs_counts(line):
    worker = "def judge(): return 1\nif __name__ == '__main__':\n    print(judge() + 1)\n"
    tree = {**edited("work/tables.py", "return lazily", f"{line}\n    return lazily"), "work/worker.py": worker}
    assert digests(edited("work/worker.py", "judge() + 1", "judge() + 2", tree)) != digests(tree)
