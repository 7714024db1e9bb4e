"""A report's pages from its templates: one self-contained HTML page and the same as Markdown, with the figures beside them.

tasks/common/templates has what all reports share: the page's frame with its style, and parts. `write_metrics` writes the few numbers of
a report that plain `dvc metrics show` is to print.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

SHARED = Path(__file__).parent / "templates"


def write(templates: Path, name: str, view: Mapping[str, object], figures: Mapping[str, str], out: Path) -> None:
    """Render `name`.html and `name`.md from the folder `templates`; figures (SVG by name) become files, and `figures` in the templates."""
    out.mkdir(parents=True, exist_ok=True)
    for kind in ("html", "md"):
        environment = Environment(
            loader=FileSystemLoader([templates, SHARED]),
            autoescape=kind == "html",
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        template = environment.get_template(f"{name}.{kind}.j2")
        (out / f"{name}.{kind}").write_text(template.render(view, figures=figures, out=out.as_posix()))
    for figure, svg in figures.items():
        (out / f"{figure}.svg").write_text(svg)


def write_metrics(rows: Mapping[str, Mapping[str, float]], out: Path) -> None:
    """`out`/metrics/ROW.json for each row, of which `dvc metrics show` makes a table."""
    for name, numbers in rows.items():
        file = out / "metrics" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(numbers, indent=2) + "\n")
