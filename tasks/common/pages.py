"""A report's pages from its templates: one self-contained HTML page and the same as Markdown, with the figures beside
them.

tasks/common/templates has what all reports share: the page's frame with its style, parts, and elements.js. A page may
have one script of our own, NAME.js beside its template, which runs after elements.js; the page's policy lets the
browser run that text and nothing else. `write_metrics` writes the few numbers of a report that plain `dvc metrics show`
is to print.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tasks.common.terminal import escape_control_characters, format_in_one_line

SHARED = Path(__file__).parent / "templates"
HEADLINE = "headline.txt"
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # what begins an element in Markdown


def write_report_pages(
    templates: Path, name: str, view: Mapping[str, object], figures: Mapping[str, str], out: Path
) -> None:
    """Render `name`.html and `name`.md from the folder `templates`; figures (SVG by name) become files, and `figures`
    in the templates.

    `sentence` of the view, with which a report begins, also becomes a file: a run ends with it.
    """
    out.mkdir(parents=True, exist_ok=True)
    script = templates / f"{name}.js"
    text = (SHARED / "elements.js").read_text() + script.read_text() if script.is_file() else ""
    parts = {
        "figures": figures,
        "out": out.as_posix(),
        "script": Markup(text),
        "script_digest": _compute_script_digest(text),
    }
    for kind in ("html", "md"):
        environment = Environment(
            loader=FileSystemLoader([templates, SHARED]),
            autoescape=True,
            finalize=_escape_markdown if kind == "md" else None,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["block"] = _render_preformatted_block
        environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
        template = environment.get_template(f"{name}.{kind}.j2")
        (out / f"{name}.{kind}").write_text(template.render(view, **parts))
    for figure, svg in figures.items():
        (out / f"{figure}.svg").write_text(svg)
    if "sentence" in view:
        (out / HEADLINE).write_text(f"{format_in_one_line(str(view['sentence']))}\n")


def _escape_markdown(value: object) -> object:
    """A value in a line of Markdown: a text is not HTML, has no line ends, and no power over a terminal that shows the
    file.
    """
    return (
        Markup(TAG.sub("&lt;", format_in_one_line(value)))
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def _render_preformatted_block(text: str) -> Markup:
    """A text of several lines as it is, as a block that HTML and Markdown both show so."""
    return Markup(f"<pre>\n{escape(escape_control_characters(text))}\n</pre>\n")


def _compute_script_digest(text: str) -> str:
    """How a page's policy names a script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_metrics(rows: Mapping[str, Mapping[str, float]], out: Path) -> None:
    """`out`/metrics/ROW.json for each row, of which `dvc metrics show` makes a table."""
    for name, numbers in rows.items():
        file = out / "metrics" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(numbers, indent=2) + "\n")
