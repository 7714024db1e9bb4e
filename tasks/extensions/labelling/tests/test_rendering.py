"""Answers as HTML: what Markdown and formulas become, and that nothing in an answer can act."""

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.extensions.labelling.mathematics import ATTRIBUTES, ELEMENTS, convert_latex_to_mathml
from tasks.extensions.labelling.rendering import MOST, render_markdown_html

TAGS = re.compile("p|br|h[1-6]|ul|ol|li|blockquote|pre|code|em|strong|hr|table|thead|tbody|tr|th|td|span|div")


class Page(HTMLParser):
    """The elements and attributes of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def check_harmless(html):
    """Known elements; of their attributes those that lay out."""
    for tag, attributes in Page(html).found:
        assert TAGS.fullmatch(tag) or ELEMENTS.fullmatch(tag), tag
        for name, value in attributes.items():
            layout = (name, value) in {("class", "link"), ("class", "formula")}
            layout |= tag == "code" and name == "class" and value.startswith("language-")
            layout |= tag == "ol" and name == "start" and value.isdigit()
            layout |= tag in ("td", "th") and name == "align" and value in ("left", "center", "right")
            assert layout or (ELEMENTS.fullmatch(tag) and ATTRIBUTES.fullmatch(name)), (tag, name, value)


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "[x](javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    '[x](https://a.example "onmouseover=alert(1)")',
    "![x](https://a.example/pixel.png)",
    "<https://a.example>",
    '```js" onload=alert(1)\nx\n```',
    r"$\text{<script>alert(1)</script>}$",
    r"$\text{&lt;script&gt;alert(1)}$",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\style{position:fixed}{x}$ $\class{answers}{x}$ $\id{submit}{x}$",
    r'$\color{red" onload="alert(1)}{x}$',
    r"$\hspace{99999em}x$",
    r"$\unicode{<script>}$",
    "\\[ <math><mtext><script>alert(1)</script> \\]",
    "<style>*{display:none}</style><meta http-equiv=refresh content=0;url=//a.example><base href=//a.example>",
    "<form action=//a.example><input type=submit form=x></form>",
    "\x00<\x00script>",
    "| a |\n|:-:|\n| <b onclick=x> |",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_an_answer_acts(text):
    check_harmless(render_markdown_html(text))


PIECES = st.sampled_from(
    [*HOSTILE, *"$<>\"'&\\[](){}`*_#|\n ", "$$", r"\(", r"\)", r"\text{", r"\href{", "<a ", "x", "```"]
)


@given(st.lists(PIECES, max_size=25).map("".join) | st.text())
@example("$x$" * 3)
def test_nothing_in_any_answer_acts(text):
    check_harmless(render_markdown_html(text))


@given(st.text(alphabet=r"\{}[]_^&abcfrtexhi<>\"'=; #$%", max_size=60))
def test_a_formula_of_any_signs_is_harmless(latex):
    check_harmless(convert_latex_to_mathml(latex, True) or "")


def test_markdown_reads_as_it_is_meant():
    html = render_markdown_html("# T\n\none\ntwo *three*\n\n- a\n- b\n\n| x |\n|---|\n| 1 |")
    tags = [tag for tag, _ in Page(html).found]
    assert tags == ["h1", "p", "br", "em", "ul", "li", "li", "table", "thead", "tr", "th", "tbody", "tr", "td"]


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("3 + 4 = 7\n#### 7", "<p>3 + 4 = 7</p>\n<p>#### 7</p>\n"),
        ("####7", "<p>####7</p>\n"),
        ("- 3 + 4\n#### 7", "<ul>\n<li>3 + 4</li>\n</ul>\n<p>#### 7</p>\n"),
        ("> 3 + 4\n#### 7", "<blockquote>\n<p>3 + 4</p>\n</blockquote>\n<p>#### 7</p>\n"),
        ("#### 7\n---", "<p>#### 7</p>\n<hr />\n"),
        ("> #### 7", "<blockquote>\n<h4>7</h4>\n</blockquote>\n"),
        ("```\n#### 7\n```", "<pre><code>#### 7\n</code></pre>\n"),
        ("### 7", "<h3>7</h3>\n"),
    ],
)
def test_a_line_that_the_rules_read_as_the_answer_shows_its_signs(text, html):
    assert render_markdown_html(text) == html


def test_guidelines_have_headings_of_four_signs():
    assert render_markdown_html("#### Ties", breaks=False) == "<h4>Ties</h4>\n"


def test_a_link_is_its_text_and_its_address():
    assert render_markdown_html("see [here](https://a.example/?a=1&b)") == (
        '<p>see <span class="link">here</span> <code>https://a.example/?a=1&amp;b</code></p>\n'
    )


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        (r"so $x^2$ and \(a_1*b*c\)", 2),
        ("$$\nx\n= y\n- z\n$$\nafter", 1),
        (r"\[ \frac{1}{2} \] and $$y$$", 2),
        ("> $$\n> a\n> $$", 1),
        ("- one\n\n  $$a$$", 1),
        ("it costs $5 and $10", 0),
        ("$5 to $6", 0),
        ("`$x$`\n\n```\n$$x$$\n```", 0),
        (r"\$x$", 0),
        ("$$\na\n\nb\n$$", 0),
        ("- $$\na\n$$", 1),
    ],
)
def test_formulas_are_found(text, formulas):
    assert render_markdown_html(text).count("<math") == formulas


def test_what_is_no_latex_is_shown_as_it_was_written():
    assert "<code>$\\frac{$</code>" in render_markdown_html("a $\\frac{$ b")
    assert convert_latex_to_mathml("x" * 2001, False) is None


@pytest.mark.parametrize("name", [r"\newcommand{\a}{x}", r"\def\a{\a\a}", r"\renewcommand\a{x}", r"\let\a\b"])
def test_macros_could_grow_and_are_not_converted(name):
    assert convert_latex_to_mathml(name + r"\a", False) is None
    assert convert_latex_to_mathml(r"\definecolor \leq \left( x \right)", False) is not None


@pytest.mark.parametrize(
    "part",
    [
        "[",
        "$a ",
        r"\(",
        r"\[x" + "\n",
        "$$x\n",
        "*a ",
        "`",
        ">",
        "- ",
        "[a](",
        "![a](",
        "<",
        "&#",
        r"$\frac{",
        "|a",
        "_a_",
        "> $$\n",
    ],
)
def test_a_long_answer_takes_no_long_time(part):
    """Some are read again from each of their characters: that would be hours, so the limit is far from what it
    takes.
    """
    began = time.thread_time()
    render_markdown_html((part * MOST)[: MOST // 2])
    assert time.thread_time() - began < 60


def test_beyond_the_limit_an_answer_is_plain_text():
    assert render_markdown_html("<b>*x*" * MOST).startswith("<pre>&lt;b&gt;*x*")
