"""A stage graph as a picture: layers from top to bottom, drawn as SVG for paper and screen, or written in Mermaid.

Arrows that others imply are left out (the transitive reduction). A long arrow has a place of its own in each layer that it
passes, so that it crosses no stage.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Graph = Mapping[str, Sequence[str]]  # node -> the nodes it needs, in topological order
WIDTH, HEIGHT, GAP, RISE = 150, 58, 14, 30  # of a node, between neighbours and layers, in pixels


@dataclass(frozen=True)
class Look:
    """How one node is drawn: the lines of text under its name, and its colours."""

    lines: Sequence[str]
    fill: str
    border: str


@dataclass
class Place:
    """A node, or the point at which a long arrow passes a layer (`name` is empty then)."""

    name: str
    layer: int
    width: float
    x: float = 0.0


def reduced(graph: Graph) -> dict[str, list[str]]:
    """The graph without the edges that a longer path implies."""
    above: dict[str, set[str]] = {}
    for name, needs in graph.items():
        above[name] = set(needs).union(*(above[need] for need in needs))
    return {
        name: [need for need in needs if not any(need in above[other] for other in needs)]
        for name, needs in graph.items()
    }


def mermaid(graph: Graph, texts: Mapping[str, Sequence[str]]) -> str:
    """The graph as a Mermaid flowchart."""
    ids = {name: f"s{number}" for number, name in enumerate(graph)}
    lines = ["flowchart TD"]
    lines += [f'  {ids[name]}["{name}<br/>{"<br/>".join(texts[name])}"]' for name in graph]
    lines += [f"  {ids[need]} --> {ids[name]}" for name, needs in reduced(graph).items() for need in needs]
    return "\n".join(lines)


def svg(graph: Graph, looks: Mapping[str, Look]) -> str:
    """The graph as one self-contained SVG element."""
    layers, chains = _layout(reduced(graph))
    left = min(place.x - place.width / 2 for layer in layers for place in layer) - 4
    right = max(place.x + place.width / 2 for layer in layers for place in layer) + 4
    height = len(layers) * (HEIGHT + RISE) - RISE + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} -4 {right - left:.0f} {height}" role="img" '
        f'aria-label="The pipeline: {len(graph)} stages" style="width:100%;max-width:{right - left:.0f}px;height:auto" '
        'font-family="system-ui, sans-serif">',
        '<defs><marker id="pt-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        *(_arrow(chain) for chain in chains),
        *(_box(place, looks[place.name]) for layer in layers for place in layer if place.name),
        "</svg>",
    ]
    return "\n".join(parts)


def _layout(graph: Graph) -> tuple[list[list[Place]], list[list[Place]]]:
    """The places of each layer from left to right, and the chain of places that each arrow runs through."""
    nodes: dict[str, Place] = {}
    for name, needs in graph.items():
        nodes[name] = Place(name, max((nodes[need].layer + 1 for need in needs), default=0), WIDTH)
    layers: list[list[Place]] = [[] for _ in range(1 + max((place.layer for place in nodes.values()), default=0))]
    for place in nodes.values():
        layers[place.layer].append(place)
    chains = []
    for name, needs in graph.items():
        for need in needs:
            between = [Place("", layer, GAP) for layer in range(nodes[need].layer + 1, nodes[name].layer)]
            for place in between:
                layers[place.layer].append(place)
            chains.append([nodes[need], *between, nodes[name]])
    _arrange(layers, chains)
    return layers, chains


def _arrange(layers: list[list[Place]], chains: list[list[Place]]) -> None:
    """Order and place each layer by the one above it, then by the one below it, in turns; the last turn goes upwards."""
    near: dict[int, list[Place]] = {}
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            near.setdefault(id(upper), []).append(lower)
            near.setdefault(id(lower), []).append(upper)

    def wish(place: Place, layer: int) -> float:
        around = [other.x for other in near.get(id(place), []) if other.layer == layer]
        return sum(around) / len(around) if around else place.x

    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(8):
        step = -1 if sweep % 2 == 0 else 1
        for layer in layers if step < 0 else reversed(layers):
            layer.sort(key=lambda place: wish(place, place.layer + step))
            _spread(layer, [wish(place, place.layer + step) for place in layer])


def _spread(layer: list[Place], wishes: list[float]) -> None:
    """Give each place an x as near to the wished one as the widths allow: the mean of pushing all to the right and to the left."""
    rightwards, leftwards = list(wishes), list(wishes)
    for i in range(1, len(layer)):
        rightwards[i] = max(rightwards[i], rightwards[i - 1] + _apart(layer[i - 1], layer[i]))
    for i in reversed(range(len(layer) - 1)):
        leftwards[i] = min(leftwards[i], leftwards[i + 1] - _apart(layer[i], layer[i + 1]))
    for place, right, left in zip(layer, rightwards, leftwards, strict=True):
        place.x = (right + left) / 2


def _apart(left: Place, right: Place) -> float:
    return (left.width + right.width) / 2 + GAP


def _top(place: Place) -> float:
    return place.layer * (HEIGHT + RISE)


def _arrow(chain: Sequence[Place]) -> str:
    path = f"M{chain[0].x:.0f} {_top(chain[0]) + HEIGHT:.0f}"
    for upper, lower in itertools.pairwise(chain):
        start, end = _top(upper) + HEIGHT, _top(lower)
        middle = (start + end) / 2
        path += f"C{upper.x:.0f} {middle:.0f} {lower.x:.0f} {middle:.0f} {lower.x:.0f} {end:.0f}"
        if not lower.name:
            path += f"V{end + HEIGHT:.0f}"
    return f'<path d="{path}" fill="none" stroke="#889" stroke-width="1.3" marker-end="url(#pt-tip)"/>'


def _box(place: Place, look: Look) -> str:
    x, y = place.x - place.width / 2, _top(place)
    size = min(13.0, (WIDTH - 10) / (0.62 * len(place.name)))  # a long name gets a smaller font, and is never cut
    texts = [(size, 600, place.name), *((11.0, 400, line) for line in look.lines)]
    lines = "".join(
        f'<text x="{place.x:.0f}" y="{y + 18 + 16 * row:.0f}" text-anchor="middle" font-size="{size:.1f}" '
        f'font-weight="{weight}" fill="#111">{escape(text)}</text>'
        for row, (size, weight, text) in enumerate(texts)
    )
    return (
        f'<g><rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="{look.fill}" '
        f'stroke="{look.border}" stroke-width="1.6"/>{lines}</g>'
    )
