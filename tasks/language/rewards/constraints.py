"""The reward for following instructions that a program can check: the share of a prompt's constraints that a response
keeps.

A prompt brings its constraints in IFEval's form (arXiv:2311.07911): `instruction_id_list`, their names, and `kwargs`,
the arguments of each. constraint_kinds.py has all kinds.
"""

from collections.abc import Mapping
from typing import Any

from tasks.language.rewards.constraint_kinds import KINDS

IDS = "instruction_id_list"
ARGUMENTS = "kwargs"


def has_constraints(columns: Mapping[str, Any]) -> bool:
    """Whether a prompt has constraints, be they in order or not."""
    return columns.get(IDS) is not None


def is_constraint_satisfied(response: str, instruction: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the response keeps one constraint; a blank response keeps none, as in IFEval's strict accuracy."""
    kind = KINDS[instruction]
    return bool(response.strip()) and kind.holds(response, **{name: arguments[name] for name in kind.arguments})


def compute_satisfied_share(response: str, columns: Mapping[str, Any]) -> float:
    """The share of the constraints in `columns` that the response keeps, 0 to 1; `check` has found nothing wrong with
    them.
    """
    kept = [
        is_constraint_satisfied(response, instruction, arguments)
        for instruction, arguments in zip(columns[IDS], columns[ARGUMENTS], strict=True)
    ]
    return sum(kept) / len(kept)


def find_constraints_fault(columns: Mapping[str, Any]) -> str | None:
    """What is wrong with a prompt's constraints, in a line: which field, and what was expected; None if nothing is."""
    names = columns.get(IDS)
    arguments = columns.get(ARGUMENTS)
    if not isinstance(names, list) or not names:
        return f"{IDS}: expected a list of names of constraints, got {names!r:.60}"
    if not isinstance(arguments, list) or len(arguments) != len(names):
        return (
            f"{ARGUMENTS}: expected a list with the arguments of each of {len(names)} constraints, got "
            f"{arguments!r:.60}"
        )
    for index, (name, given_arguments) in enumerate(zip(names, arguments, strict=True)):
        if fault := _find_constraint_fault(name, given_arguments):
            return fault.replace("[]", f"[{index}]", 1)
    return None


def _find_constraint_fault(name: object, arguments: object) -> str | None:
    """What is wrong with one constraint; `[]` stands for its place. An argument that is null was not given."""
    if not isinstance(name, str) or name not in KINDS:
        return f"{IDS}[]: {name!r:.60} is none that can be checked; there are {', '.join(sorted(KINDS))}"
    wanted = KINDS[name].arguments
    if not isinstance(arguments, dict):
        return f"{ARGUMENTS}[]: expected the arguments of {name} by name, got {arguments!r:.60}"
    for field, kind in wanted.items():
        if arguments.get(field) is None:
            return f"{ARGUMENTS}[].{field}: {name} needs {kind.expected}, and there is none"
        if not kind.fits(arguments[field]):
            return f"{ARGUMENTS}[].{field}: {name} needs {kind.expected}, got {arguments[field]!r:.60}"
    if extra := {field for field, value in arguments.items() if value is not None} - wanted.keys():
        return f"{ARGUMENTS}[].{min(extra)}: {name} has no such argument; it has {', '.join(wanted) or 'none'}"
    if "nth_paragraph" in wanted and arguments["nth_paragraph"] > arguments["num_paragraphs"]:
        return (
            f"{ARGUMENTS}[].nth_paragraph: expected {arguments['num_paragraphs']} at most, the number of "
            f"paragraphs, got {arguments['nth_paragraph']}"
        )
    return None
