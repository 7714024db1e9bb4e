"""A lineage as a picture from left to right: raw data at the left, what was asked for at the right, each run in one box
with its outputs.

The picture is SVG whose every node is a link to the node's facts (`#run-...`, `#artifact-...`), so it can be used with
a keyboard and without scripts. An edge goes from the artifact that was read to the run that read it. Edges that a
longer way implies are drawn too, but marked as such: the page shows them where they are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from html import escape

from flows.lineage.document import (
    CLEAN,
    Artifact,
    Document,
    StageExecution,
    format_page_anchor,
    replace_control_characters,
)
from flows.web.graph_layout import NodePosition, compute_layered_layout, compute_transitive_reduction

# of a box, its run and each of its outputs, in pixels
WIDTH = 158
HEADER = 42
ROW = 22
# between layers, boxes of a layer and edges that pass it, and around all
ALONG = 40
GAP = 14
PASSING = 9
MARGIN = 14
LETTERS = 28  # of a name that are drawn; its title has all
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path '
    'd="M0 0L8 4L0 8z"/></marker>'
)


@dataclass(frozen=True)
class Box:
    """A run with its outputs below it, or an artifact that no run of this lineage made."""

    run: StageExecution | None
    artifacts: Sequence[Artifact]
    needs: Sequence[str]  # ids of the artifacts that went in

    @property
    def height(self) -> float:
        return (HEADER if self.run else 0) + ROW * len(self.artifacts) * (1 if self.run else 2)


def render_lineage_svg(document: Document) -> str:
    """The picture as one SVG element, without styles: the page has them."""
    boxes = build_lineage_boxes(document)
    owner = {artifact.id: name for name, box in boxes.items() for artifact in box.artifacts}
    needs = {name: sorted({owner[need] for need in box.needs}) for name, box in boxes.items()}
    graph = {name: needs[name] for name in TopologicalSorter(needs).static_order()}
    layers, chains = compute_layered_layout(
        compute_transitive_reduction(graph),
        {name: box.height for name, box in boxes.items()},
        GAP,
        PASSING,
        bundled=True,
    )
    positions = {position.name: position for layer in layers for position in layer if position.name}
    every = [position for layer in layers for position in layer]
    top = min(position.x - position.width / 2 for position in every) - MARGIN
    height = max(position.x + position.width / 2 for position in every) + MARGIN - top
    width = _compute_layer_x(len(layers)) - ALONG + 2 * MARGIN
    through = {(chain[0].name, chain[-1].name): chain for chain in chains}
    edges = [  # those that others imply are drawn first, below the others
        (
            direct,
            _render_edge(
                need,
                name,
                boxes[name],
                _compute_edge_start(boxes[owner[need]], positions[owner[need]], need),
                way,
                direct,
            ),
        )
        for name, box in boxes.items()
        for need in box.needs
        for direct in [(owner[need], name) in through]
        for way in [through[owner[need], name][1:] if direct else [positions[name]]]
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-MARGIN} {top:.0f} {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" '
            f'height="{height:.0f}" role="group" aria-label="The lineage as a graph, raw data at the left">',
            f"<defs>{TIP}</defs>",
            *(edge for _, edge in sorted(edges)),
            *(
                _render_box(boxes[position.name], position, document.of)
                for layer in layers
                for position in layer
                if position.name
            ),
            "</svg>",
        ]
    )


def build_lineage_boxes(document: Document) -> dict[str, Box]:
    """The boxes by the id of their run, or of their artifact; together they hold each run and each artifact once."""
    alone = {
        artifact.id: Box(None, [artifact], artifact.parts)
        for artifact in document.artifacts.values()
        if artifact.run is None
    }
    made = {
        run.id: Box(run, [document.artifacts[out] for out in run.outs], run.inputs) for run in document.runs.values()
    }
    return alone | made


def shorten_path_label(path: str) -> str:
    """The end of a path, which says more than its beginning, where it is too long to be drawn."""
    plain = replace_control_characters(path)
    return plain if len(plain) <= LETTERS else "…" + plain[1 - LETTERS :]


def get_run_box_class(run: StageExecution) -> str:
    """The class of a run's box: whether it is on record, and whether its code was a commit's."""
    return "broken" if not run.recorded else "clean" if run.dirty in CLEAN else "dirty"


def _compute_layer_x(layer: int) -> float:
    return layer * (WIDTH + ALONG)


def _compute_edge_start(box: Box, position: NodePosition, artifact: str) -> tuple[float, float]:
    """Where an artifact's edges begin: at the right of its row."""
    if box.run is None:
        return _compute_layer_x(position.layer) + WIDTH, position.x
    row = [output.id for output in box.artifacts].index(artifact)
    return _compute_layer_x(position.layer) + WIDTH, position.x - position.width / 2 + HEADER + ROW * (row + 0.5)


def _render_edge(
    need: str, name: str, box: Box, start: tuple[float, float], way: Sequence[NodePosition], direct: bool
) -> str:
    (x, y) = start
    path = f"M{start[0]:.0f} {start[1]:.0f}"
    for position in way:
        end = _compute_layer_x(position.layer)
        height = position.x - position.width / 2 + HEADER / 2 if position.name and box.run else position.x
        middle = end - ALONG / 2 if direct else (x + end) / 2
        path += f"C{max(middle, x):.0f} {y:.0f} {middle:.0f} {height:.0f} {end:.0f} {height:.0f}"
        if not position.name:
            end += WIDTH
            path += f"H{end:.0f}"
        x = end
        y = height
    to = format_page_anchor("run" if box.run else "artifact", name)
    kind = "edge" if direct else "edge implied"
    return (
        f'<path class="{kind}" data-from="{format_page_anchor("artifact", need)}" data-to="{to}" d="{path}" '
        'marker-end="url(#tip)"/>'
    )


def _render_box(box: Box, position: NodePosition, target: str) -> str:
    x = _compute_layer_x(position.layer)
    y = position.x - position.width / 2
    parts = [] if box.run is None else [_render_run(box.run, x, y)]
    below = y + (HEADER if box.run else 0)
    for row, artifact in enumerate(box.artifacts):
        parts.append(_render_artifact(artifact, x, below + row * ROW, target, alone=box.run is None))
    frame = f'<rect class="frame" x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{box.height:.0f}" rx="7"/>'
    kind = get_run_box_class(box.run) if box.run else "raw-data" if box.artifacts[0].raw else "folder"
    return f'<g class="box {kind}">{"".join(parts)}{frame}</g>'


def _render_run(run: StageExecution, x: float, y: float) -> str:
    when = (run.started or "").replace("T", " ")[5:16]
    second = " · ".join(filter(None, (when, run.id[:8]))) if run.recorded else "no run on record"
    texts = [(13.0, "name", shorten_path_label(run.stage)), (10.5, "fact", second)]
    title = f"run of {run.stage}, {run.id}" if run.recorded else f"run of {run.stage}: none is on record"
    # a rounded top, and corners at the bottom where the outputs follow
    shape = f'<path d="M{x:.0f} {y + HEADER:.0f}v{7 - HEADER}q0 -7 7 -7h{WIDTH - 14}q7 0 7 7v{HEADER - 7}z"/>'
    return _render_node_link("run", run.id, title, shape, _render_text_lines(texts, x, y + 17, 16))


def _render_artifact(artifact: Artifact, x: float, y: float, target: str, *, alone: bool) -> str:
    kinds = ["artifact", *["raw"] * artifact.raw, *["asked"] * (artifact.id == target)]
    title = f"{artifact.path} {artifact.hash}{' (raw data)' * artifact.raw}"
    if alone:
        fact = f"{'raw data' if artifact.raw else f'folder of {len(artifact.parts)} outputs'} · {artifact.hash[:8]}"
        shape = f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{2 * ROW}" rx="7"/>'
        return _render_node_link(
            " ".join(kinds),
            artifact.id,
            title,
            shape,
            _render_text_lines(
                [(12.0, "name", shorten_path_label(artifact.path)), (10.5, "fact", fact)], x, y + 19, 16
            ),
        )
    shape = f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{ROW}"/>'
    texts = _render_text_lines([(11.0, "path", shorten_path_label(artifact.path))], x, y + 15, 0)
    return _render_node_link(" ".join(kinds), artifact.id, title, shape, texts, artifact.run)


def _render_node_link(kinds: str, identifier: str, title: str, shape: str, texts: str, run: str | None = None) -> str:
    """A node as a link to its facts; `run` is the one that made it."""
    target = format_page_anchor(kinds.partition(" ")[0], identifier)
    made = f' data-run="{format_page_anchor("run", run)}"' if run else ""
    return (
        f'<a class="node {kinds}" href="#{target}" data-node="{target}"{made} aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{shape}{texts}</a>"
    )


def _render_text_lines(lines: Sequence[tuple[float, str, str]], x: float, y: float, apart: float) -> str:
    """Lines of text from the left; a long one gets a smaller font, down to where it would be unreadable."""
    return "".join(
        f'<text class="{kind}" x="{x + 9:.0f}" y="{y + apart * row:.0f}" '
        f'font-size="{_compute_font_size(text, size):.1f}">{escape(text)}</text>'
        for row, (size, kind, text) in enumerate(lines)
    )


def _compute_font_size(text: str, size: float) -> float:
    return min(size, (WIDTH - 18) / (0.62 * max(1, len(text))))
