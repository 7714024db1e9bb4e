"""The section "How it was made": the graph as a picture, the runs, the exact params; the rest of the page is
unchanged.
"""

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.stage_types import PlannedStage, StageResult, State
from flows.web import run_page, stage_graph
from flows.web.stage_graph import HEIGHT, WIDTH, Look

GRAPH = {"data": [], "sft": ["data"], "dpo": ["data", "sft"], "ppo": ["sft"], "report": ["data", "dpo", "ppo"]}
LOOK = Look(["ran · 3.0 s", "run 0123abcd"], "#fff", "#000")
PARAMS = "dpo:\n  beta: 1e-1  # <b>not</b> & bold\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text(PARAMS)
    pages = tmp_path / "data/report"
    pages.mkdir(parents=True)
    (pages / "report.html").write_text("<html><p>before</p><!-- posttrain:run --><p>after</p></html>")
    (pages / "report.md").write_text("before\n\n<!-- posttrain:run -->\n\nafter\n")
    return tmp_path


def finished(**states: State) -> tuple[list[PlannedStage], list[StageResult]]:
    planned = [PlannedStage(name, None, tuple(needs), 1, 0) for name, needs in GRAPH.items()]
    results = [
        StageResult(
            name, states.get(name, "ran"), "", 61.2, f"{name:0>32}", None, outs={f"data/{name}": f"{name:f>32}.dir"}
        )
        for name in GRAPH
    ]
    return planned, results


def test_the_page_gains_the_section_and_keeps_the_rest(root: Path) -> None:
    assert run_page.write_report_pages(root, *finished(sft="restored", ppo="failed")) == [
        root / "report.html",
        root / "report.md",
    ]
    page = (root / "report.html").read_text()
    assert page.startswith("<html><p>before</p><section")
    assert page.endswith("</section><p>after</p></html>")
    assert Tags.unclosed(page) == []
    assert "&lt;b&gt;not&lt;/b&gt; &amp; bold" in page
    assert "5 stages: 1 failed, 3 ran, 1 restored." in page
    for name in GRAPH:
        assert f"<td><code>{name:0>32}</code></td>" in page
        assert f'<a href="data/{name}"><code>data/{name}</code></a> <code>{f"{name:f>32}"[:12]}</code>' in page
    assert not re.search(r'src="|href="(?!data/)|<script|@import|url\((?!#)', page)


def test_the_markdown_page_says_the_same(root: Path) -> None:
    run_page.write_report_pages(root, *finished(sft="restored"))
    page = (root / "report.md").read_text()
    assert page.startswith("before\n\n## How it was made\n")
    assert page.endswith("\n\nafter\n")
    assert f"```yaml\n{PARAMS}```\n" in page
    assert '  s1["sft<br/>restored · 1 min 01 s<br/>run 00000000"]' in page
    assert "  s0 --> s1" in page
    assert "  s0 --> s2" not in page  # data -> sft -> dpo implies it
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| Stage", *(f"| {name}" for name in GRAPH)]
    assert {row.count(" | ") for row in rows} == {6}


def test_no_page_without_a_report_that_is_up_to_date(root: Path) -> None:
    assert run_page.write_report_pages(root, *finished(report="skipped")) == []
    assert not (root / "report.html").exists()


def test_a_page_is_old_if_it_is_missing_or_the_report_is_newer(root: Path) -> None:
    planned, results = finished()
    assert run_page.has_outdated_pages(root, planned)
    assert not run_page.has_outdated_pages(root, planned[:-1])
    run_page.write_report_pages(root, planned, results)
    assert not run_page.has_outdated_pages(root, planned)
    (root / "data/report/report.html").write_text("newer")
    assert run_page.has_outdated_pages(root, planned)


def branches(count: int) -> tuple[list[PlannedStage], list[StageResult]]:
    """data@n -> bc@n -> returns@n -> offline_report, the last branch also through dt@n, which is planned late."""
    needs = {f"data@{n}": [] for n in range(count)} | {f"bc@{n}": [f"data@{n}"] for n in range(count)}
    needs |= {f"returns@{n}": [f"bc@{n}"] for n in range(count - 1)} | {"dt@0": [f"bc@{count - 1}"]}
    needs |= {f"returns@{count - 1}": ["dt@0"], "offline_report": [f"returns@{n}" for n in range(count)]}
    planned = [PlannedStage(name, None, tuple(ups), 1, 0) for name, ups in needs.items()]
    states: dict[str, State] = {"bc@0": "failed", "bc@1": "up-to-date"}
    return planned, [StageResult(name, states.get(name, "ran"), "", 2.0) for name in needs]


def test_a_question_that_holds_the_marker_stays_a_question(root: Path) -> None:
    hostile = "What is <!-- posttrain:run --> and 1?\n\n<!-- posttrain:run -->\n\nafter\n"
    (root / "data/report/report.md").write_text(hostile)
    run_page.write_report_pages(root, *finished())
    page = (root / "report.md").read_text()
    assert page.startswith("What is <!-- posttrain:run --> and 1?\n\n## How it was made")
    assert page.endswith("after\n")


@pytest.mark.parametrize("page", ["report.html", "report.md"])
def test_a_page_that_was_edited_by_hand_is_old(root: Path, page: str) -> None:
    planned, results = finished()
    run_page.write_report_pages(root, planned, results)
    assert not run_page.has_outdated_pages(root, planned)
    shown = root / page
    shown.write_text(shown.read_text().replace("after", "99 %"))
    assert run_page.has_outdated_pages(root, planned)
    run_page.write_report_pages(root, planned, results)
    assert "99 %" not in shown.read_text()
    assert not run_page.has_outdated_pages(root, planned)
    (root / run_page.WRITTEN).write_text("torn")
    assert run_page.has_outdated_pages(root, planned), "it cannot be known"


def test_of_many_branches_the_picture_shows_one_node_a_stage_and_the_table_all(root: Path) -> None:
    (root / "data/offline_report").mkdir()
    for kind in ("html", "md"):
        (root / f"data/offline_report/offline_report.{kind}").write_text("a\n<!-- posttrain:run -->\nb\n")
    planned, results = branches(12)
    assert run_page.has_outdated_pages(root, planned)
    assert run_page.write_report_pages(root, planned, results) == [
        root / "offline_report.html",
        root / "offline_report.md",
    ]
    page = (root / "offline_report.html").read_text()
    assert list(boxes(page[page.index("<svg") : page.index("</svg>") + 6])) == [
        "data",
        "bc",
        "dt",
        "returns",
        "offline_report",
    ]
    assert ">1 failed, 10 ran, 1 up to date</text>" in page
    assert page.count(">24 s</text>") == 3
    assert f'fill="{run_page.COLOURS["failed"][0]}"' in page
    text = (root / "offline_report.md").read_text()
    assert '["bc<br/>1 failed, 10 ran, 1 up to date<br/>24 s"]' in text
    rows = [line.split(" | ")[0][2:] for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == [stage.name for stage in planned]


def test_a_page_shows_only_what_its_report_needs(root: Path) -> None:
    planned, results = branches(2)
    more, ended = finished()
    (root / "data/offline_report").mkdir()
    (root / "data/offline_report/offline_report.html").write_text("<!-- posttrain:run -->")
    written = run_page.write_report_pages(root, [*planned, *more], [*results, *ended])
    assert {path.name for path in written} == {"report.html", "report.md", "offline_report.html"}
    assert "bc@0" not in (root / "report.html").read_text()
    assert ">8 stages: 1 failed, 6 ran, 1 up to date." in (root / "offline_report.html").read_text()


def test_provenance_names_the_commit_and_what_differs_from_it(root: Path) -> None:
    assert run_page.collect_provenance(root)["commit"] == "none"
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert run_page.collect_provenance(root)["commit"] == commit
    (root / "params.yaml").write_text(PARAMS + "\n")
    assert run_page.collect_provenance(root)["commit"] == f"{commit}, with uncommitted changes in params.yaml"


def boxes(picture: str) -> dict[str, tuple[float, float]]:
    """The position of each node's box, by the node's name."""
    space = "{http://www.w3.org/2000/svg}"
    found = {}
    for group in ElementTree.fromstring(picture).iter(f"{space}g"):
        rect, name = group.find(f"{space}rect"), group.find(f"{space}text")
        assert rect is not None
        assert name is not None
        found[name.text or ""] = (float(rect.attrib["x"]), float(rect.attrib["y"]))
    return found


def test_the_picture_has_every_stage_with_its_state_below_what_it_needs() -> None:
    picture = stage_graph.render_graph_svg(GRAPH, dict.fromkeys(GRAPH, LOOK))
    found = boxes(picture)
    assert list(found) == ["data", "sft", "dpo", "ppo", "report"]
    assert picture.count(">ran · 3.0 s</text>") == len(GRAPH)
    assert (
        picture.count('<path d="M') - 1 == 5
    )  # the tip of the arrows, and data-sft, sft-dpo, sft-ppo, dpo-report, ppo-report
    assert found["data"][0] == found["sft"][0] == found["report"][0]  # nodes of one chain are aligned


def test_a_name_is_escaped_and_a_long_one_set_smaller() -> None:
    picture = stage_graph.render_graph_svg(
        {"a<b": [], "decision_transformer@hopper": []}, dict.fromkeys(["a<b", "decision_transformer@hopper"], LOOK)
    )
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)" font-weight="600"', picture)]
    assert sizes[0] == 13
    assert sizes[1] * 0.62 * len("decision_transformer@hopper") <= WIDTH
    assert "a&lt;b" in picture


GRAPHS = st.lists(st.lists(st.integers(0, 11), max_size=4), min_size=1, max_size=12).map(
    lambda rows: {f"n{i}": sorted({f"n{need}" for need in row if need < i}) for i, row in enumerate(rows)}
)


@settings(max_examples=25)
@given(GRAPHS)
def test_boxes_never_overlap_and_arrows_point_down(nodes: dict[str, list[str]]) -> None:
    found = boxes(stage_graph.render_graph_svg(nodes, dict.fromkeys(nodes, LOOK)))
    assert set(found) == set(nodes)
    for name, (x, y) in found.items():
        assert all(y >= found[need][1] + HEIGHT for need in nodes[name])
        others = [place for other, place in found.items() if other != name and place[1] == y]
        assert all(abs(x - other) >= WIDTH for other, _ in others)


@settings(max_examples=25)
@given(GRAPHS)
def test_the_reduction_keeps_who_is_above_whom_with_no_edge_to_spare(nodes: dict[str, list[str]]) -> None:
    less = stage_graph.compute_transitive_reduction(nodes)
    assert above(less) == above(nodes)
    for name, needs in less.items():
        for need in needs:
            without = {**less, name: [other for other in needs if other != need]}
            assert above(without) != above(nodes)


def above(nodes: dict[str, list[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, needs in nodes.items():
        found[name] = set(needs).union(*(found[need] for need in needs))
    return found


class Tags(HTMLParser):
    """Finds tags of a page that are not closed in the order in which they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "meta"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.wrong.append(tag)

    @classmethod
    def unclosed(cls, page: str) -> list[str]:
        parser = cls()
        parser.feed(page)
        return parser.wrong + parser.stack


def test_what_the_outs_cost_is_told_by_the_runs_that_made_them_though_this_run_made_none() -> None:
    results = [
        StageResult(name, "up-to-date", mlflow_run_id=run) for name, run in (("sft", "a"), ("ppo", "b"), ("raw", None))
    ]
    costs = run_page.Costs({"a": 60.0, "b": 1800.0}, {"sft": 1, "ppo": 2}, {"a": 1234.5, "b": 87.2})
    assert [costs.taken(result) for result in results] == ["1 min 00 s", "30 min 00 s", ""]
    assert [costs.memory(result) for result in results] == ["1.2 GB", "87 MB", ""]
    assert costs.sentence(results) == (
        " Making the outs of the 2 stages whose runs are known took 31 min 00 s one after another, 1.02 core hours."
    )
    assert costs.sentence(results[:1]) == " Making all outs took 1 min 00 s one after another, 0.02 core hours."
    assert run_page.Costs({}, {}, {}).sentence(results) == ""
