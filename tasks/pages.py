"""A report's pages from its templates: one self-contained HTML page and the same as Markdown, with the figures beside them.

tasks/templates has what all reports share: the page's frame with its style, and parts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

SHARED = Path(__file__).parent / "templates"


def write(templates: Path, name: str, view: Mapping[str, Any], figures: Mapping[str, str], out: Path) -> None:
    """Render `name`.html and `name`.md from the folder `templates`; figures (SVG by name) become files, and `figures` in them."""
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
