"""The page of a lineage: all of it in the graph and in the list, every text a text, nothing from elsewhere, every link
leads somewhere.
"""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings

from flows.engine.dvc_repository import PlanError
from flows.lineage.chain import Link
from flows.lineage.document import flatten_lineage, format_page_anchor
from flows.web.lineage_page import render_lineage_page, write_lineage_page
from flows.web.lineage_picture import ALONG, WIDTH
from tests.flows.lineage.links import EVALUATIONS, HOSTILE, PROBLEMS, RAW, REPORT, SFT, chains, reachable


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, name: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            attrs
            for tag, attrs in self.found
            if tag == name and all(value in (attrs.get(key) or "").split() for key, value in attributes.items())
        ]


TAGS = {
    "html",
    "i",
    "span",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "h1",
    "p",
    "div",
    "input",
    "button",
    "main",
    "svg",
    "defs",
    "marker",
    "path",
    "g",
    "a",
    "rect",
    "text",
    "h2",
    "section",
    "h3",
    "small",
    "dl",
    "dt",
    "dd",
    "code",
    "details",
    "summary",
    "table",
    "tbody",
    "tr",
    "th",
    "td",
    "script",
}


@settings(max_examples=12, deadline=None)
@given(chains())
def test_every_artifact_and_run_is_in_the_graph_and_in_the_list_once(link: Link) -> None:
    document = flatten_lineage(link)
    found = Elements(render_lineage_page(document, {run: dict.fromkeys(HOSTILE, 0.5) for run in document.runs}))
    links, _ = reachable(link)
    expected = sorted(
        [format_page_anchor("artifact", f"{path}@{md5}") for path, md5 in links]
        + [format_page_anchor("run", run) for run in document.runs]
    )
    assert sorted(str(node["data-node"]) for node in found.all("a", **{"class": "node"})) == expected
    assert sorted(str(section["id"]) for section in found.all("section")) == expected
    went_in = {
        (format_page_anchor("artifact", need), format_page_anchor("run", run.id))
        for run in document.runs.values()
        for need in run.inputs
    }
    for one in document.artifacts.values():
        went_in |= {
            (format_page_anchor("artifact", part), format_page_anchor("artifact", one.id)) for part in one.parts
        }
    edges = [(edge["data-from"], edge["data-to"]) for edge in found.all("path", **{"class": "edge"})]
    assert len(edges) == len(went_in)
    assert set(edges) == went_in
    ids = [attrs["id"] for _, attrs in found.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {str(attrs["href"]) for attrs in found.all("a")}
    assert targets <= {f"#{one}" for one in expected}
    assert {tag for tag, _ in found.found} <= TAGS
    assert not [name for _, attrs in found.found for name in attrs if name.startswith("on") or name in ("src", "style")]
    assert (len(found.all("script")), len(found.all("style"))) == (1, 1)


def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else() -> None:
    content = render_lineage_page(flatten_lineage(REPORT))
    [policy] = [meta["content"] for meta in Elements(content).all("meta") if meta.get("http-equiv")]
    digests = dict.fromkeys(("style", "script"), "")
    for kind in digests:
        [inner] = re.findall(rf"<{kind}>(.*?)</{kind}>", content, re.DOTALL)
        digests[kind] = "sha256-" + base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src '{digests['style']}'; script-src '{digests['script']}'; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", content.replace("http://www.w3.org/2000/svg", ""))
    assert content.index("Content-Security-Policy") < content.index("<style>")


def test_a_node_s_facts_by_hand() -> None:
    content = render_lineage_page(flatten_lineage(REPORT), {"a" * 32: {"loss": 0.123456789, "accuracy": 1.0}})
    assert "2 runs" not in content
    assert "3 runs made 5 artifacts from 1 raw input. The chain breaks at problems: no run is on record." in content
    [facts] = re.findall(rf'<section id="run-{"a" * 32}".*?</section>', content, re.DOTALL)
    told = Elements(facts).texts
    for text in (
        "a" * 32,
        "2026-01-02 03:04:05",
        "c" * 40,
        "f" * 64,
        " (2 files)",
        "sft.epochs",
        "3",
        "python",
        "0.123457",
    ):
        assert text in [one.strip("\n") for one in told], text
    assert ", changed: params.yaml" in told
    assert "tasks/language/sft.py" in facts
    assert f'<a href="#artifact-data/problems@{"1" * 32}">data/problems 11111111</a>' in facts
    [problems] = re.findall(r'<section id="artifact-data/problems.*?</section>', content, re.DOTALL)
    assert f'<p class="fault">{PROBLEMS.note}</p>' in problems
    assert f'<a href="#run-{"a" * 32}">sft, run aaaaaaaa</a>' in problems, "what it went into"


def test_the_legend_tells_what_is_in_the_picture() -> None:
    for link, looks in (
        (REPORT, ["clean", "dirty", "broken", "raw-data", "folder"]),
        (PROBLEMS, ["broken", "raw-data"]),
    ):
        content = render_lineage_page(flatten_lineage(link))
        assert [one["class"] for one in Elements(content).all("i")] == looks
        assert set(re.findall(r'<g class="box ([\w-]+)"', content)) == set(looks)


def test_raw_data_is_at_the_left_and_what_was_asked_for_at_the_right() -> None:
    late = Link("data/raw/late", "8" * 32, note="raw: no stage makes it")
    content = render_lineage_page(flatten_lineage(Link(**{**vars(REPORT), "inputs": (*REPORT.inputs, late)})))
    drawn = re.findall(r'<a class="node ([\w ]+)" href="#([^"]+)".*?<(?:rect x=|path d=)"M?(-?\d+)', content)
    left = {name.partition("@")[0].removeprefix("artifact-"): int(x) for _, name, x in drawn}
    assert left[RAW.path] == left["data/raw/late"] == 0 == min(left.values())
    order = [left[link.path] for link in (PROBLEMS, SFT, EVALUATIONS, REPORT)]
    assert order == [(WIDTH + ALONG) * layer for layer in (1, 2, 3, 4)]
    assert left["data/report"] == max(left.values()) == left["run-" + "b" * 32]
    assert [name for kinds, name, _ in drawn if "asked" in kinds] == [f"artifact-data/report@{'3' * 32}"]
    assert {name for kinds, name, _ in drawn if "raw" in kinds} == {
        f"artifact-{RAW.path}@{'0' * 32}",
        f"artifact-data/raw/late@{'8' * 32}",
    }


def test_every_edge_is_drawn_and_those_that_others_imply_are_marked() -> None:
    edges = Elements(render_lineage_page(flatten_lineage(REPORT))).all("path", **{"class": "edge"})
    told = {
        (str(edge["data-from"]).partition("@")[0], edge["data-to"]): "implied" in str(edge["class"]) for edge in edges
    }
    [problems] = flatten_lineage(PROBLEMS).runs
    assert told == {
        ("artifact-data/raw/gsm8k.jsonl", f"run-{problems}"): False,
        ("artifact-data/problems", "run-" + "a" * 32): False,
        ("artifact-data/sft", f"artifact-data/evaluate@{'5' * 32}"): False,
        ("artifact-data/curves/sft.csv", f"artifact-data/evaluate@{'5' * 32}"): False,
        ("artifact-data/evaluate", "run-" + "b" * 32): False,
        ("artifact-data/problems", "run-" + "b" * 32): True,
    }


def test_the_page_is_named_after_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd = flatten_lineage(Link("../data/a b", "0" * 32))
    assert write_lineage_page(tmp_path, odd) == Path("lineage-..-data-a-b.html")
    assert (tmp_path / "lineage-..-data-a-b.html").read_text() == render_lineage_page(odd)
    assert write_lineage_page(tmp_path, odd, Path("x.html")) == Path("x.html")
    with pytest.raises(PlanError, match=r"^no/x.html: its folder does not exist$"):
        write_lineage_page(tmp_path, odd, Path("no/x.html"))
