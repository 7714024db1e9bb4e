"""An item as a person sees it, and what the person says of it, carried between the places of the page and those of the
record.

A page knows answers by letters alone, A the one that was shown first. Neither sources nor ids of samples, rewards,
expected values or the drawn order are in what it gets.
"""

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from tasks.extensions.labelling import rankings
from tasks.extensions.labelling.assignment import Shown
from tasks.extensions.labelling.rendering import render_markdown_html
from tasks.language.judgements.lines import CRITERIA, EditValue, PairwiseValue, RankingValue, Value

WORDS = ("significantly better", "better", "slightly better", "negligibly better")
VERDICTS = (  # of a pair as it was shown, the key of each, and its words
    *((f"a {words}", str(key), f"A {words}") for key, words in enumerate(WORDS, 1)),
    ("tie", "5", "Tie"),
    *((f"b {words}", str(key), f"B {words}") for key, words in enumerate(WORDS[::-1], 6)),
    ("both bad", "0", "Both bad"),
)
LABELS = ((1, "good"), (0, "neutral"), (-1, "bad"))
OTHER = {"a": "b", "b": "a"}


def convert_value_to_item_order(value: Value, order: Sequence[int]) -> Value:
    """What was said of answers in the `order` in which they were shown, as said of the item's answers."""
    match value:
        case PairwiseValue():
            return _swap_sides(value) if list(order) == [1, 0] else value
        case RankingValue():
            scores = value.scores and tuple(value.scores[order.index(index)] for index in range(len(order)))
            return RankingValue(ranks=rankings.convert_ranks_to_item_order(value.ranks, order), scores=scores)
        case EditValue(start=int(start)):
            return value.model_copy(update={"start": order[start]})
    return value


def convert_value_to_shown_order(value: Value, order: Sequence[int]) -> Value:
    """The inverse of `convert_value_to_item_order`."""
    inverse = [order.index(index) for index in range(len(order))]
    return convert_value_to_item_order(value, inverse)


def _swap_sides(value: PairwiseValue) -> PairwiseValue:
    side = value.strength[:2]
    rest = value.strength[1:]
    return PairwiseValue(strength=OTHER[side[0]] + rest) if side in ("a ", "b ") else value


def build_item_context(shown: Shown, value: Value | None) -> dict[str, Any]:
    """What the item's template shows; `value` is what the person said before, in the places of the item."""
    item = shown.item
    count = len(shown.order)
    before = convert_value_to_shown_order(value, shown.order) if value is not None else None
    names = rankings.get_answer_letters(count)
    return {
        "mode": item.mode,
        "prompt": _render_text_fields(item.prompt),
        "history": [
            {"role": str(turn["role"]), **_render_text_fields(_format_turn_text(turn))}
            for turn in json.loads(item.history or "[]")
        ],
        "answers": [
            {"letter": name, "ended": item.answers[index].ended, **_render_text_fields(item.answers[index].text)}
            for name, index in zip(names, shown.order, strict=True)
        ],
        "steps": [_render_text_fields(step) for step in item.steps],
        "value": before and before.model_dump(by_alias=True),
        "ranking": rankings.format_ranking(before.ranks) if isinstance(before, RankingValue) else "",
        "example": " > ".join([*names[:1:-1], " = ".join(names[:2])]),
        "criteria": CRITERIA,
        "verdicts": VERDICTS,
        "labels": LABELS,
    }


def _format_turn_text(turn: dict[str, Any]) -> str:
    """A turn's words; a call of a tool, or what else is no text, as JSON."""
    content = turn.get("content")
    calls = [json.dumps(call.get("function", call), ensure_ascii=False) for call in turn.get("tool_calls") or []]
    texts = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)] if content else []
    return "\n".join([*texts, *calls])


def _render_text_fields(text: str) -> dict[str, str]:
    return {"text": text, "html": Markup(render_markdown_html(text))}
