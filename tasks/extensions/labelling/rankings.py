"""Rankings as people write them, `D > C > A = B`, and as the record keeps them: a rank for each answer of the item.

The letters are the answers as they were shown, A the first one; ranks in the record are by the answers' places in the
item.
"""

import re
import string
from collections.abc import Sequence

from tasks.language.rewards import annotator


def get_answer_letters(count: int) -> str:
    """The names of so many answers, as they are shown."""
    return string.ascii_uppercase[:count]


def parse_ranking(text: str, names: str) -> tuple[int, ...]:
    """The rank of each answer, in the order of `names`, its letters; ValueError in one line if the text is no ranking
    of them.

    `D > C > A = B` for ABCD is (3, 3, 2, 1). Spaces and case do not matter.
    """
    signs = re.findall(r"\S", text.upper())
    ranked_names = signs[::2]
    for position, sign in enumerate(signs):
        if position % 2 and sign not in ">=":
            raise ValueError(
                f"expected > or = behind {signs[position - 1]}, got {sign!r}; such as {_format_example_ranking(names)}"
            )
        if not position % 2 and sign not in names:
            raise ValueError(
                f"expected a letter of {', '.join(names)}, got {sign!r}; such as {_format_example_ranking(names)}"
            )
    if len(signs) % 2 == 0:
        behind = f"a letter behind {signs[-1]}" if signs else "a ranking"
        raise ValueError(f"expected {behind}; such as {_format_example_ranking(names)}")
    if twice := [name for name in names if ranked_names.count(name) > 1]:
        raise ValueError(f"{twice[0]} stands {ranked_names.count(twice[0])} times; expected each letter once")
    if missing := [name for name in names if name not in ranked_names]:
        raise ValueError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there; expected each letter once"
        )
    groups = [[names.index(ranked_names[0])]]
    for sign, name in zip(signs[1::2], ranked_names[1:], strict=True):
        if sign == ">":
            groups.append([])
        groups[-1].append(names.index(name))
    return tuple(annotator.compute_ranks_of_groups(groups))


def format_ranking(ranks: Sequence[int]) -> str:
    """The inverse of `parse` for the first letters; ties in the order of the alphabet."""
    positions = range(len(ranks))
    return annotator.format_ranking_text(
        [[position for position in positions if ranks[position] == rank] for rank in sorted(set(ranks))]
    )


def convert_ranks_to_item_order(shown: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Ranks by the answers' places in the item, from those in the `order` in which the answers were shown."""
    placed = dict(zip(order, shown, strict=True))
    return tuple(placed[position] for position in range(len(order)))


def convert_ranks_to_shown_order(ranks: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The inverse of `convert_ranks_to_item_order`."""
    return tuple(ranks[position] for position in order)


def _format_example_ranking(names: str) -> str:
    return " > ".join(reversed(names[:3]))
