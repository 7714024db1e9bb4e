"""A stage graph as a picture: layers from top to bottom, drawn as SVG for paper and screen, or written in Mermaid.

Arrows that others imply are left out.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from flows.web.graph_layout import Graph, NodePosition, compute_layered_layout, compute_transitive_reduction

# of a node, between neighbours and layers, in pixels
WIDTH = 150
HEIGHT = 58
GAP = 14
RISE = 30


@dataclass(frozen=True)
class Look:
    """How one node is drawn: the lines of text under its name, and its colours."""

    lines: Sequence[str]
    fill: str
    border: str


def render_mermaid_graph(graph: Graph, texts: Mapping[str, Sequence[str]]) -> str:
    """The graph as a Mermaid flowchart."""
    ids = {name: f"s{number}" for number, name in enumerate(graph)}
    lines = ["flowchart TD"]
    lines += [f'  {ids[name]}["{name}<br/>{"<br/>".join(texts[name])}"]' for name in graph]
    lines += [
        f"  {ids[need]} --> {ids[name]}"
        for name, needs in compute_transitive_reduction(graph).items()
        for need in needs
    ]
    return "\n".join(lines)


def render_graph_svg(graph: Graph, looks: Mapping[str, Look]) -> str:
    """The graph as one self-contained SVG element."""
    layers, chains = compute_layered_layout(
        compute_transitive_reduction(graph), dict.fromkeys(graph, WIDTH), GAP, 2 * GAP
    )
    left = min(position.x - position.width / 2 for layer in layers for position in layer) - 4
    right = max(position.x + position.width / 2 for layer in layers for position in layer) + 4
    height = len(layers) * (HEIGHT + RISE) - RISE + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} -4 {right - left:.0f} {height}" role="img" '
        f'aria-label="The pipeline: {len(graph)} stages" style="width:100%;max-width:{right - left:.0f}px;height:auto" '
        'font-family="system-ui, sans-serif">',
        '<defs><marker id="pt-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        *(_render_arrow(chain) for chain in chains),
        *(_render_node_box(position, looks[position.name]) for layer in layers for position in layer if position.name),
        "</svg>",
    ]
    return "\n".join(parts)


def _compute_node_top(position: NodePosition) -> float:
    return position.layer * (HEIGHT + RISE)


def _render_arrow(chain: Sequence[NodePosition]) -> str:
    path = f"M{chain[0].x:.0f} {_compute_node_top(chain[0]) + HEIGHT:.0f}"
    for upper, lower in itertools.pairwise(chain):
        start = _compute_node_top(upper) + HEIGHT
        end = _compute_node_top(lower)
        middle = (start + end) / 2
        path += f"C{upper.x:.0f} {middle:.0f} {lower.x:.0f} {middle:.0f} {lower.x:.0f} {end:.0f}"
        if not lower.name:
            path += f"V{end + HEIGHT:.0f}"
    return f'<path d="{path}" fill="none" stroke="#889" stroke-width="1.3" marker-end="url(#pt-tip)"/>'


def _render_node_box(position: NodePosition, look: Look) -> str:
    x = position.x - position.width / 2
    y = _compute_node_top(position)
    size = min(13.0, (WIDTH - 10) / (0.62 * len(position.name)))  # a long name gets a smaller font, and is never cut
    texts = [(size, 600, position.name), *((11.0, 400, line) for line in look.lines)]
    lines = "".join(
        f'<text x="{position.x:.0f}" y="{y + 18 + 16 * row:.0f}" text-anchor="middle" font-size="{size:.1f}" '
        f'font-weight="{weight}" fill="#111">{escape(text)}</text>'
        for row, (size, weight, text) in enumerate(texts)
    )
    return (
        f'<g><rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="{look.fill}" '
        f'stroke="{look.border}" stroke-width="1.6"/>{lines}</g>'
    )
