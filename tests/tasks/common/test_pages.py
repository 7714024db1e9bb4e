import pytest
from jinja2 import UndefinedError

from tasks.common import pages

HTML = """{% extends "page.html.j2" %}
{% from "parts.html.j2" import figure with context %}
{% set title = "A title" %}
{% block body %}
<p>{{ text }}</p>
{{ figure("plot", "a caption") }}
{% endblock %}
"""
MARKDOWN = "# A title\n\n{{ text }}\n\n![plot]({{ out }}/plot.svg)\n"


@pytest.fixture
def templates(tmp_path):
    (tmp_path / "it.html.j2").write_text(HTML)
    (tmp_path / "it.md.j2").write_text(MARKDOWN)
    return tmp_path


def test_a_report_is_a_page_in_the_shared_frame_and_a_markdown_file(templates, tmp_path):
    pages.write_report_pages(
        templates, "it", {"text": "1 < 2", "sentence": "It is."}, {"plot": "<svg>drawn</svg>"}, tmp_path / "out"
    )
    html = (tmp_path / "out" / "it.html").read_text()
    assert "<title>A title</title>" in html
    assert "<h1>A title</h1>" in html
    assert "<p>1 &lt; 2</p>" in html  # text is escaped, a figure is not
    assert "<figure><svg>drawn</svg><figcaption>a caption</figcaption></figure>" in html
    assert html.count("<!-- posttrain:run -->") == 1
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert "1 < 2" in (tmp_path / "out" / "it.md").read_text()
    assert (tmp_path / "out" / "plot.svg").read_text() == "<svg>drawn</svg>"
    assert (tmp_path / "out" / "headline.txt").read_text() == "It is.\n"
    assert (
        "script-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=';" in html
    )  # of the empty text: no script runs
    assert "<script" not in html


def test_what_the_view_lacks_is_an_error(templates, tmp_path):
    with pytest.raises(UndefinedError, match="text"):
        pages.write_report_pages(templates, "it", {}, {"plot": ""}, tmp_path / "out")


def test_text_of_others_does_nothing_in_markdown(tmp_path):
    hostile = "a\n# b <script>alert(1)</script> <!-- \x1b[31m 1 < 2 & 3</pre>"
    (tmp_path / "it.html.j2").write_text(HTML)
    (tmp_path / "it.md.j2").write_text(
        "{% macro quoted(x) %}«{{ x }}»{% endmacro %}{{ quoted(text) }}\n\n{{ text | block }}"
    )
    pages.write_report_pages(tmp_path, "it", {"text": hostile, "sentence": hostile}, {"plot": ""}, tmp_path / "out")
    line = r"a # b &lt;script>alert(1)&lt;/script> &lt;!-- \x1b[31m 1 < 2 & 3&lt;/pre>"
    block = "a\n# b &lt;script&gt;alert(1)&lt;/script&gt; &lt;!-- \\x1b[31m 1 &lt; 2 &amp; 3&lt;/pre&gt;"
    assert (tmp_path / "out/it.md").read_text() == f"«{line}»\n\n<pre>\n{block}\n</pre>\n"
    assert (tmp_path / "out/headline.txt").read_text() == line.replace("&lt;", "<") + "\n"
