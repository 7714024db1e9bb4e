"""Answers as they are shown: Markdown and mathematics as HTML in which nothing of an answer can act.

HTML in an answer is text. A link is its text with the address behind it, and an image is a link, so nothing is loaded
and nothing leads away from the page. Only this module and its two helpers make HTML of what others wrote.
"""

import html
from collections.abc import Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from tasks.extensions.labelling.formulas import add_formula_rules
from tasks.language.rewards.answers import ANSWER_LINE

MOST = 20_000  # characters of a text that is rendered; a longer one is shown as it is


@lru_cache(maxsize=1024)
def render_markdown_html(text: str, breaks: bool = True) -> str:
    """A text as HTML; with `breaks`, as answers are rendered, lines stay lines and `#### 12` is no heading."""
    if len(text) > MOST:
        return f"<pre>{html.escape(text)}</pre>"
    rendered: str = _build_markdown_parser(breaks).render(text)
    return rendered


@lru_cache(maxsize=2)
def _build_markdown_parser(breaks: bool) -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": breaks, "maxNesting": 20}).enable("table")
    markdown.disable(["image", "autolink"])
    add_formula_rules(markdown)
    if breaks:
        markdown.block.ruler.before(
            "heading", "answer_line", _parse_answer_line, {"alt": ["paragraph", "reference", "blockquote", "list"]}
        )
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _render_table_cell)
    markdown.add_render_rule("link_open", _render_link)
    markdown.add_render_rule("link_close", _render_link)
    return markdown


def _parse_answer_line(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A line by which rewards and accuracies read the final answer is a paragraph that shows its signs."""
    line = ANSWER_LINE.match(state.src, state.bMarks[start])
    if line is None:
        return False
    if not silent:
        state.push("paragraph_open", "p", 1)
        inline = state.push("inline", "", 0)
        inline.content = line[0].strip()
        inline.children = []
        state.push("paragraph_close", "p", -1)
        state.line = start + 1
    return True


def _render_link(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, environment: EnvType
) -> str:
    if tokens[index].nesting == 1:
        return '<span class="link">'
    depth = 0
    for token in reversed(tokens[: index + 1]):  # back to the link's beginning, which has the address
        depth -= token.nesting * token.type.startswith("link_")
        if depth == 0:
            return f"</span> <code>{html.escape(str(token.attrs['href']))}</code>"
    raise ValueError("a link ends that has not begun")


def _render_table_cell(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, environment: EnvType
) -> str:
    """A table's cell; the page's policy lets no style stand in an element."""
    token = tokens[index]
    side = str(token.attrs.pop("style", "")).removeprefix("text-align:")
    return f'<{token.tag} align="{html.escape(side)}">' if side else f"<{token.tag}>"
