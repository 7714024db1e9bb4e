"""Which classes are made by Python alone, so that nothing else looks at their docstrings and methods."""

from collections.abc import Collection

from flows.engine.edits import names
from flows.engine.edits.facts import Facts


def plain_classes(modules: Collection[Facts]) -> frozenset[str]:
    """Classes whose making leaves methods and docstrings alone, so that pydantic, pandera and others do not see them.

    Classes of one name count as one.
    """
    found: dict[str, tuple[set[str], bool]] = {}
    for facts in modules:
        for name, (bases, others) in facts.classes.items():
            before = found.setdefault(name, (set(), False))
            found[name] = before[0] | set(bases), before[1] or others
    plain = {name for name, (_, others) in found.items() if not others}
    while True:
        left = {name for name in plain if all(_is_plain_base(base, plain) for base in found[name][0])}
        if left == plain:
            return frozenset(plain)
        plain = left


def _is_plain_base(base: str, plain: Collection[str]) -> bool:
    return base in names.PLAIN_BASES or base.rpartition(".")[2] in plain
