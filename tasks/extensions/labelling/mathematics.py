r"""LaTeX as MathML that is safe to put into a page, whatever the LaTeX says.

latex2mathml writes what it finds as it stands: `\text{<script>}` becomes an element, `\href{javascript:...}` an
attribute. So only its tree is used: known elements with known attributes are written anew, with everything else escaped
or left out. Macros, by which a short formula could grow without end, and formulas beyond MOST characters are not
converted.
"""

import html
import re
from xml.etree.ElementTree import Element

from latex2mathml import converter

MOST = 2_000  # characters of a formula
ELEMENTS = re.compile(
    "math|mrow|mi|mn|mo|mtext|mspace|mfrac|msqrt|mroot|msub|msup|msubsup|munder|mover|munderover|mtable|mtr|mtd|"
    "mstyle|mpadded|mphantom|menclose"
)
ATTRIBUTES = re.compile(
    "display|displaystyle|scriptlevel|mathvariant|stretchy|fence|form|separator|accent|largeop|movablelimits|linethickness|"
    "columnalign|columnlines|rowlines|columnspacing|rowspacing|width|height|depth|lspace|rspace|voffset|minsize|maxsize|"
    "mathsize|notation"
)
VALUE = re.compile(r"[\w.+\- ]{1,64}")
LENGTH = re.compile(r"\d{3,}")  # a space of hundreds of ems would push the answers off the page
MACROS = re.compile(r"\\(?:(?:re|provide)?newcommand|providecommand|[egx]?def|let|DeclareMathOperator)(?![A-Za-z])")


def convert_latex_to_mathml(latex: str, block: bool) -> str | None:
    """The formula as MathML; None where it is no LaTeX that can be shown, so that the text is shown instead."""
    if len(latex) > MOST or MACROS.search(latex):
        return None
    try:
        return _serialize_safe_element(converter.convert_to_element(latex, display="block" if block else "inline"))
    except (
        Exception
    ):  # the converter raises many kinds, KeyError and RecursionError among them, for what it cannot read
        return None


def _serialize_safe_element(element: Element) -> str:
    inner = _escape_text(element.text) + "".join(
        _serialize_safe_element(child) + _escape_text(child.tail) for child in element
    )
    if not ELEMENTS.fullmatch(element.tag):
        return inner
    kept = {
        name: value
        for name, value in element.attrib.items()
        if ATTRIBUTES.fullmatch(name) and VALUE.fullmatch(value) and not LENGTH.search(value)
    }
    attributes = "".join(f' {name}="{html.escape(value)}"' for name, value in kept.items())
    return f"<{element.tag}{attributes}>{inner}</{element.tag}>"


def _escape_text(text: str | None) -> str:
    """The tree has symbols as references such as `&#x0002B;`, beside the text of the formula; both become text."""
    return html.escape(html.unescape(text or ""))
