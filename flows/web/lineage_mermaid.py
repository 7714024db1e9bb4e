"""A lineage in Mermaid, which GitHub and GitLab draw in Markdown: raw data at the left, runs rounded, artifacts as
rectangles.
"""

import re
from collections.abc import Iterator

from flows.lineage.document import Document, replace_control_characters

SHAPES = {"raw": '[("{}")]', "artifact": '["{}"]', "run": '(["{}"])'}


def render_mermaid_flowchart(document: Document) -> str:
    """The whole lineage as a flowchart.

    An edge leads from an artifact to the run that read it, and from a run to what it made.
    """
    return "\n".join(
        [
            "flowchart LR",
            *_render_raw_data_nodes(document),
            *_render_nodes(document),
            *_render_edges(document),
            *_render_styles(document),
        ]
    )


def _assign_node_ids(document: Document) -> dict[str, str]:
    artifacts = {name: f"a{number}" for number, name in enumerate(document.artifacts)}
    return artifacts | {name: f"r{number}" for number, name in enumerate(document.runs)}


def _render_raw_data_nodes(document: Document) -> Iterator[str]:
    """Raw data in a group of its own, which keeps it together at the left."""
    ids = _assign_node_ids(document)
    raw = [artifact for artifact in document.artifacts.values() if artifact.raw]
    if raw:
        yield '  subgraph raw["raw data"]'
        for artifact in raw:
            yield f"    {ids[artifact.id]}{_render_node_shape('raw', artifact.path, artifact.hash[:8])}"
        yield "  end"


def _render_nodes(document: Document) -> Iterator[str]:
    ids = _assign_node_ids(document)
    for artifact in document.artifacts.values():
        if not artifact.raw:
            yield f"  {ids[artifact.id]}{_render_node_shape('artifact', artifact.path, artifact.hash[:8])}"
    for run in document.runs.values():
        label = f"run {run.id[:8]}" if run.recorded else "no run on record"
        yield f"  {ids[run.id]}{_render_node_shape('run', run.stage, label)}"


def _render_edges(document: Document) -> Iterator[str]:
    ids = _assign_node_ids(document)
    for run in document.runs.values():
        for need in run.inputs:
            yield f"  {ids[need]} --> {ids[run.id]}"
        for out in run.outs:
            yield f"  {ids[run.id]} --> {ids[out]}"
    for artifact in document.artifacts.values():
        for part in artifact.parts:
            yield f"  {ids[part]} --> {ids[artifact.id]}"


def _render_styles(document: Document) -> Iterator[str]:
    ids = _assign_node_ids(document)
    yield "  classDef asked stroke-width:3px"
    yield "  classDef broken stroke:#c62f26,stroke-dasharray:5"
    yield f"  class {ids[document.of]} asked"
    if broken := [ids[run.id] for run in document.runs.values() if not run.recorded]:
        yield f"  class {','.join(broken)} broken"


def _render_node_shape(kind: str, *lines: str) -> str:
    return SHAPES[kind].format("<br/>".join(map(_escape_label, lines)))


def _escape_label(content: str) -> str:
    """A label in which only letters, digits and what cannot mean anything to Mermaid, Markdown or HTML stands as it
    is.
    """
    return re.sub(r"[^\w ./@=-]", lambda match: f"#{ord(match[0])};", replace_control_characters(content))
