r"""Formulas in Markdown: `$...$` and `\(...\)` in a line, `$$...$$` and `\[...\]` on their own, as markdown-it's rules.

A formula's backslashes, asterisks and underscores are its own, so the rules come before those of Markdown. A `$` before
a space or after one is money, as in Pandoc, and so is one that a digit follows.
"""

import html
import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from tasks.extensions.labelling.mathematics import MOST, convert_latex_to_mathml

IN_LINE = "formula"
ON_ITS_OWN = "formula_block"
CLOSING = {"$$": "$$", r"\[": r"\]", r"\(": r"\)"}
LINES = 50  # of a formula on its own; without a bound, openings without an end would take time by their square
DOLLARS = re.compile(r"\$(?=[^\s$])((?:\\.|[^$\\])+)(?<!\s)\$(?!\d)", re.DOTALL)


def add_formula_rules(markdown: MarkdownIt) -> None:
    """Let `markdown` read and show formulas."""
    markdown.inline.ruler.before("escape", IN_LINE, _parse_inline_formula)
    markdown.block.ruler.before("fence", ON_ITS_OWN, _parse_formula_block, {"alt": ["paragraph", "blockquote", "list"]})
    markdown.add_render_rule(IN_LINE, _render_formula)
    markdown.add_render_rule(ON_ITS_OWN, _render_formula)


def _parse_inline_formula(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    if closing := CLOSING.get(opening):
        end = state.src.find(closing, state.pos + 2, min(state.posMax, state.pos + MOST + 4))
        if end <= state.pos + 2:
            return False
        content = state.src[state.pos + 2 : end]
        after = end + 2
    elif opening[:1] == "$" and (match := DOLLARS.match(state.src, state.pos, state.posMax)):
        opening = "$"
        content = match[1]
        after = match.end()
    else:
        return False
    if not silent:
        _push_formula_token(state, IN_LINE, content, opening)
    state.pos = after
    return True


def _parse_formula_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    begin = state.bMarks[start] + state.tShift[start]
    opening = state.src[begin : begin + 2]
    if opening not in ("$$", r"\[") or state.is_code_block(start):
        return False
    for line in range(start, min(end, start + LINES)):
        first = state.bMarks[line] + state.tShift[line]
        last = state.eMarks[line]
        if state.sCount[line] < state.blkIndent or first >= last:  # the end of a list's item, or a blank line
            return False
        if state.src[first + 2 * (line == start) : last].rstrip().endswith(CLOSING[opening]):
            break
    else:
        return False
    content = state.getLines(start, line + 1, state.blkIndent, False).strip()[2:-2]
    if not content.strip() or CLOSING[opening] in content:
        return False
    if not silent:
        _push_formula_token(state, ON_ITS_OWN, content, opening)
        state.line = line + 1
    return True


def _push_formula_token(state: StateInline | StateBlock, kind: str, content: str, opening: str) -> None:
    token = state.push(kind, "", 0)
    token.content = content
    token.markup = opening


def _render_formula(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, environment: EnvType
) -> str:
    token = tokens[index]
    opening = token.markup
    alone = token.type == ON_ITS_OWN
    formula = convert_latex_to_mathml(token.content, opening in ("$$", r"\["))
    if formula is None:  # what was written, as text
        formula = f"<code>{html.escape(opening + token.content + CLOSING.get(opening, '$'))}</code>"
    return f'<div class="formula">{formula}</div>\n' if alone else formula
