"""Where the nodes of a graph stand: in layers, each behind all that it needs, with the crossings of edges few and the
edges straight.

Arrows that others imply may be left out (the transitive reduction). A long edge has a place of its own in each layer
that it passes, so that it crosses no node. Layers may be drawn from top to bottom or from left to right: a place has a
layer and a position in it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Graph = Mapping[str, Sequence[str]]  # node -> the nodes it needs, in topological order


@dataclass
class NodePosition:
    """A node, or the point at which a long edge passes a layer (`name` is empty then)."""

    name: str
    layer: int
    width: float  # along the layer
    x: float = 0.0  # of its middle, along the layer


def compute_transitive_reduction(graph: Graph) -> dict[str, list[str]]:
    """The graph without the edges that a longer path implies."""
    above: dict[str, set[str]] = {}
    for name, needs in graph.items():
        above[name] = set(needs).union(*(above[need] for need in needs))
    return {
        name: [need for need in needs if not any(need in above[other] for other in needs)]
        for name, needs in graph.items()
    }


def compute_layered_layout(
    graph: Graph, widths: Mapping[str, float], gap: float, passing: float, *, bundled: bool = False
) -> tuple[list[list[NodePosition]], list[list[NodePosition]]]:
    """The places of each layer in order, and the chain of places that each edge runs through.

    `gap` is between neighbouring nodes, `passing` between neighbouring long edges. Edges that are `bundled` leave a
    node as one line.
    """
    nodes: dict[str, NodePosition] = {}
    for name, needs in graph.items():
        nodes[name] = NodePosition(name, max((nodes[need].layer + 1 for need in needs), default=0), widths[name])
    layers: list[list[NodePosition]] = [
        [] for _ in range(1 + max((position.layer for position in nodes.values()), default=0))
    ]
    for position in nodes.values():
        layers[position.layer].append(position)
    chains = []
    passed: dict[tuple[str, str, int], NodePosition] = {}
    for name, needs in graph.items():
        for need in needs:
            line = (need, "" if bundled else name)
            for layer in range(nodes[need].layer + 1, nodes[name].layer):
                if (*line, layer) not in passed:
                    passed[*line, layer] = NodePosition("", layer, passing - gap)
                    layers[layer].append(passed[*line, layer])
            between = [passed[*line, layer] for layer in range(nodes[need].layer + 1, nodes[name].layer)]
            chains.append([nodes[need], *between, nodes[name]])
    _order_and_place_layers(layers, chains, gap)
    return layers, chains


def _order_and_place_layers(layers: list[list[NodePosition]], chains: list[list[NodePosition]], gap: float) -> None:
    """Order and place each layer by the one above it, then by the one below it, in turns; the last turn goes
    upwards.
    """
    near: dict[int, list[NodePosition]] = {}
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            near.setdefault(id(upper), []).append(lower)
            near.setdefault(id(lower), []).append(upper)

    def wish(position: NodePosition, layer: int) -> float:
        around = [other.x for other in near.get(id(position), []) if other.layer == layer]
        return sum(around) / len(around) if around else position.x

    for layer in layers:
        _space_nodes_apart(layer, [0.0] * len(layer), gap)
    for sweep in range(8):
        step = -1 if sweep % 2 == 0 else 1
        for layer in layers if step < 0 else reversed(layers):
            layer.sort(key=lambda position: wish(position, position.layer + step))
            _space_nodes_apart(layer, [wish(position, position.layer + step) for position in layer], gap)


def _space_nodes_apart(layer: list[NodePosition], wishes: list[float], gap: float) -> None:
    """Give each place an x as near to the wished one as the widths allow: the mean of pushing all to the right and to
    the left.
    """
    apart = [(neighbour.width + other.width) / 2 + gap for neighbour, other in itertools.pairwise(layer)]
    rightwards = list(wishes)
    leftwards = list(wishes)
    for i in range(1, len(layer)):
        rightwards[i] = max(rightwards[i], rightwards[i - 1] + apart[i - 1])
    for i in reversed(range(len(layer) - 1)):
        leftwards[i] = min(leftwards[i], leftwards[i + 1] - apart[i])
    for position, right, left in zip(layer, rightwards, leftwards, strict=True):
        position.x = (right + left) / 2
