"""A lineage as a page of its own: the graph to click, and the facts of every artifact and run.

The page needs no network, no server and no script: with one, a click shows a node's facts beside the graph and what is
before and behind it; without, the facts stand below the graph as a list. Its policy allows the one style and the one
script that it carries, by their digests, and nothing else. Each node has an address, `lineage.html#run-ID` or
`#artifact-PATH@HASH` (document.format_page_anchor).
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_repository import PlanError
from flows.lineage.document import CLEAN, Document, StageExecution, format_page_anchor
from flows.params.files import write_file_atomically
from flows.web.lineage_picture import get_run_box_class, render_lineage_svg

TEMPLATES = Path(__file__).parent / "templates"
Metrics = Mapping[str, Mapping[str, float]]  # run -> its metrics


def write_lineage_page(root: Path, document: Document, file: Path | None = None) -> Path:
    """Write the page, with the metrics that MLflow's database has; returns its path, lineage-PATH.html where none is
    given.
    """
    named = re.sub(r"[^A-Za-z0-9._-]+", "-", document.artifacts[document.of].path)
    target = file or Path(f"lineage-{named}.html")
    if not target.absolute().parent.is_dir():
        raise PlanError(f"{target}: its folder does not exist")
    write_file_atomically(
        target, render_lineage_page(document, mlflow_run_lookup.load_run_metrics(root, document.runs)).encode()
    )
    return target


def render_lineage_page(document: Document, metrics: Metrics | None = None) -> str:
    """The page as HTML. `metrics` are shown with their runs."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    style, script = ((TEMPLATES / f"lineage.{kind}").read_text() for kind in ("css", "js"))
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    artifacts = document.artifacts
    runs = document.runs
    return environment.get_template("lineage.html.j2").render(
        asked=artifacts[document.of],
        summary=_format_summary(document),
        legend=_build_legend(document),
        artifacts=artifacts.values(),
        runs=runs,
        readers=document.group_readers_by_artifact(),
        metrics={
            run: {name: f"{value:.6g}" for name, value in run_metrics.items()}
            for run, run_metrics in (metrics or {}).items()
        },
        anchors={name: format_page_anchor("artifact", name) for name in artifacts}
        | {name: format_page_anchor("run", name) for name in runs},
        labels={name: f"{artifact.path} {artifact.hash[:8]}" for name, artifact in artifacts.items()}
        | {name: _format_run_label(run) for name, run in runs.items()},
        dirty=lambda run: "" if run.dirty in CLEAN else f", changed: {run.dirty}",
        picture=render_lineage_svg(document),
        style=Markup(style),
        script=Markup(script),
        style_digest=_compute_csp_digest(style),
        script_digest=_compute_csp_digest(script),
    )


def _format_summary(document: Document) -> str:
    """What the page shows, counted; a break of the chain is named."""
    raw = sum(artifact.raw for artifact in document.artifacts.values())
    broken = [run.stage for run in document.runs.values() if not run.recorded]
    made = len(document.artifacts) - raw
    counts = (
        f"{_format_count(len(document.runs), 'run')} made {_format_count(made, 'artifact')} from "
        f"{_format_count(raw, 'raw input')}."
    )
    return counts + (f" The chain breaks at {', '.join(broken)}: no run is on record." if broken else "")


def _format_count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _build_legend(document: Document) -> dict[str, str]:
    """What the looks of boxes mean, of those that are in the picture: class -> meaning."""
    meanings = {
        "clean": "a run and what it made",
        "dirty": "a run whose code differed from its commit",
        "broken": "no run on record",
        "raw-data": "raw data",
        "folder": "a folder that several runs filled",
    }
    looks = {get_run_box_class(run) for run in document.runs.values()}
    looks |= {
        "raw-data" if artifact.raw else "folder" for artifact in document.artifacts.values() if artifact.run is None
    }
    return {look: meaning for look, meaning in meanings.items() if look in looks}


def _format_run_label(run: StageExecution) -> str:
    return f"{run.stage}, run {run.id[:8]}" if run.recorded else f"{run.stage}, no run on record"


def _compute_csp_digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
