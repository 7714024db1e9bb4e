"""MkDocs' hook: the repository's pages as one site that needs no network, with every link as it stands on GitHub.

Pages keep their paths, so that a relative link means the same here and there; files that a page links to come along.
"""

import re
import sys
import textwrap
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from flows.web.stage_graph import Look, render_graph_svg  # noqa: E402

PAGES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LOG.md", "log/*.md", "docs/**/*.md"),
    *("tasks/extensions/*/*.md", "benchmarks/*.md", "data/raw/*/*.md"),
)
COMMENT = re.compile(r"\n?<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")
NODE = re.compile(r'(\w+)(?:\["([^"]*)"\])?')
SUBGRAPH = re.compile(r'subgraph \w+\["(.*?)"\]\n(.*?)\n\s*end\b', re.DOTALL)


def on_config(config: Any) -> Any:
    """Formulas and flow charts are drawn here, not by a script in the reader's browser."""
    fences = [{"name": name, "class": name, "format": draw} for name, draw in (("math", math), ("mermaid", chart))]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def on_files(files: Files, config: Any) -> Files:
    """The pages, and what they link to."""
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    linked = {
        file
        for page in pages
        for link in LINK.findall(page.read_text())
        if (file := (page.parent / link).resolve()).is_file() and file.is_relative_to(ROOT)
    }
    own = [
        File(file.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)
        for file in sorted({*pages, *linked, ROOT / "docs/site.css"})
    ]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *own])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Without the comments that say where a number comes from: behind a table they would be a row of it."""
    return COMMENT.sub("", markdown)


def math(source: str, *_: Any, **__: Any) -> str:
    """A formula as MathML, which browsers draw themselves."""
    return convert(source.strip(), display="block")


def chart(source: str, *_: Any, **__: Any) -> str:
    """A Mermaid flow chart as pictures, one for each subgraph."""
    parts = []
    for title, body in SUBGRAPH.findall(source):
        labels: dict[str, str] = {}
        needs: dict[str, list[str]] = {}
        for line in body.splitlines():
            chain = []
            for name, label in (NODE.search(part).groups() for part in line.split("-->")):
                labels[name] = label or labels.get(name, name)
                chain.append(name)
                needs.setdefault(name, [])
            for upper, lower in pairwise(chain):
                needs[lower].append(upper)
        parts += [f"<p><code>{escape(title)}</code></p>", _picture(labels, needs)]
    return "\n".join(parts)


def _picture(labels: dict[str, str], needs: dict[str, list[str]]) -> str:
    """Each node with its label on up to three lines, after those that it needs."""
    order: list[str] = []
    while left := [name for name in needs if name not in order]:
        order += [name for name in left if all(need in order for need in needs[name])]
    lines = {name: textwrap.wrap(labels[name], 26, break_long_words=False) for name in order}
    graph = {lines[name][0]: [lines[need][0] for need in needs[name]] for name in order}
    return render_graph_svg(graph, {lines[name][0]: Look(lines[name][1:], "#eef3fb", "#4a6fa5") for name in order})
