"""A lineage laid flat: each artifact and run once, whatever its tree repeats, and the same from one question to the
next.
"""

import json
import re

from hypothesis import given, settings

from flows.lineage.chain import Link
from flows.lineage.document import flatten_lineage, format_page_anchor
from flows.web.lineage_mermaid import render_mermaid_flowchart
from tests.flows.lineage.links import CURVE, EVALUATIONS, HOSTILE, PROBLEMS, RAW, REPORT, SFT, chains, reachable


def test_the_document_of_a_chain_by_hand() -> None:
    document = flatten_lineage(REPORT).json()
    assert list(document) == ["of", "artifacts", "runs"]
    assert document["of"] == f"data/report@{'3' * 32}"
    artifacts = {one["path"]: one for one in document["artifacts"]}
    assert list(artifacts) == sorted(link.path for link in (RAW, PROBLEMS, SFT, CURVE, EVALUATIONS, REPORT))
    assert [path for path, one in artifacts.items() if one["raw"]] == [RAW.path]
    assert artifacts["data/evaluate"]["parts"] == (f"data/curves/sft.csv@{'4' * 32}", f"data/sft@{'2' * 32}")
    assert artifacts["data/evaluate"]["run"] is None
    runs = {one["stage"]: one for one in document["runs"]}
    assert runs.keys() == {"sft", "problems", "report"}
    assert runs["sft"] == {
        "id": "a" * 32,
        "recorded": True,
        "stage": "sft",
        "started": "2026-01-02T03:04:05",
        "commit": "c" * 40,
        "dirty": "params.yaml",
        "params": {"sft.epochs": "3"},
        "code": {"tasks/language/sft.py": "d" * 32, "tasks/stage.py": "e" * 32},
        "code_hash": "f" * 64,
        "environment": {"python": "3.11"},
        "inputs": (f"data/problems@{'1' * 32}",),
        "outs": (f"data/curves/sft.csv@{'4' * 32}", f"data/sft@{'2' * 32}"),
        "accepted": (),
        "elsewhere": "",
    }
    assert not runs["problems"]["recorded"]
    assert re.fullmatch("unrecorded-[0-9a-f]{12}", runs["problems"]["id"])
    assert artifacts["data/problems"]["run"] == runs["problems"]["id"]
    assert artifacts["data/problems"]["note"] == PROBLEMS.note


def test_the_order_of_inputs_changes_nothing() -> None:
    turned = Link(**{**vars(REPORT), "inputs": REPORT.inputs[::-1]})
    assert json.dumps(flatten_lineage(turned).json()) == json.dumps(flatten_lineage(REPORT).json())


def test_outputs_of_one_execution_without_a_record_share_its_node() -> None:
    broken = [Link(path, "6" * 32, "sft", inputs=(RAW,), code_hash="7") for path in ("data/a", "data/b")]
    other = Link("data/c", "6" * 32, "sft", inputs=(RAW,), code_hash="8")
    document = flatten_lineage(Link("top", "9" * 32, "report", "b" * 32, inputs=(*broken, other)))
    outs = {run.outs for run in document.runs.values() if not run.recorded}
    assert {len(each) for each in outs} == {1, 2}


@settings(max_examples=25)
@given(chains())
def test_the_json_and_the_mermaid_graph_have_each_artifact_and_run_once(link: Link) -> None:
    links, runs = reachable(link)
    document = json.loads(json.dumps(flatten_lineage(link).json()))
    assert sorted((one["path"], one["hash"]) for one in document["artifacts"]) == sorted(links)
    assert sorted(one["id"] for one in document["runs"] if one["recorded"]) == sorted(runs)
    known = {one["id"] for one in document["artifacts"]}
    assert len(known) == len(links)
    for run in document["runs"]:
        assert known.issuperset([*run["inputs"], *run["outs"]])
    outs = [out for run in document["runs"] for out in run["outs"]]
    assert sorted(outs) == sorted(one["id"] for one in document["artifacts"] if one["run"])

    lines = render_mermaid_flowchart(flatten_lineage(link)).split("\n")
    node = re.compile(r'\s+([ar]\d+)(\[\("[^"]*"\)\]|\["[^"]*"\]|\(\["[^"]*"\]\))')
    nodes = [found[1] for line in lines if (found := node.fullmatch(line))]
    assert len(nodes) == len(set(nodes)) == len(document["artifacts"]) + len(document["runs"])
    edges = [line.split() for line in lines if re.fullmatch(r"  [ar]\d+ --> [ar]\d+", line)]
    counted = sum(len(run["inputs"]) + len(run["outs"]) for run in document["runs"])
    assert len(edges) == counted + sum(len(one["parts"]) for one in document["artifacts"])
    rest = [line for line in lines if not node.fullmatch(line) and "-->" not in line]
    fixed = r'flowchart LR|  subgraph raw\["raw data"\]|  end|  classDef \w+ [\w:#,-]+|  class [ar\d,]+ (asked|broken)'
    assert all(re.fullmatch(fixed, line) for line in rest), rest


def test_no_label_of_the_mermaid_graph_can_be_anything_else() -> None:
    for path in HOSTILE:
        [_, label] = re.findall(
            r'"([^"]*)<br/>[^"]*"', render_mermaid_flowchart(flatten_lineage(Link(path, "0" * 32, path, "a" * 32)))
        )
        assert not set(re.sub(r"#\d+;", "", label)) & set("<>\"'`[]{}()|;#&\n\x1b"), label


def test_anchors_differ_and_need_no_quoting() -> None:
    anchors = {
        format_page_anchor("artifact", text) for text in [*HOSTILE, "<<", "~", "~7e~", "~~", "<7e~", "<a", "\u03ca"]
    }
    assert len(anchors) == len(HOSTILE) + 7
    assert all(re.fullmatch(r"artifact-[\w/@.~-]*", one, re.ASCII) for one in anchors)
    assert format_page_anchor("run", "0af") == "run-0af"
    assert format_page_anchor("artifact", "data/sft@1f.dir") == "artifact-data/sft@1f.dir"
