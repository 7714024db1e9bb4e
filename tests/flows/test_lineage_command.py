"""`posttrain lineage` and the page that a report links to, on a pipeline that has run and is on record."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.engine import dvc_lock
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.lineage.document import format_page_anchor
from tests.flows.engine.toy import Toy
from tests.flows.lineage.quick import copied, quick
from tests.flows.toy_pipeline import call, environ


@pytest.fixture(scope="module")
def once(template: Path, empty_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """problems -> sft -> report, in a repository whose report is made of a page with the marker; all has run."""
    shutil.copytree(template, root := tmp_path_factory.mktemp("once") / "toy")
    toy = Toy(root)
    toy.write("raw.txt", "raw")
    toy.stage("problems")
    toy.stages["problems"]["deps"].append("raw.txt")
    toy.stage("sft", "problems")
    page = "mkdir -p data/report && echo '<p>report<!-- posttrain:run --></p>' > data/report/report.html"
    toy.stage("report", "sft", "problems", cmd=page)
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    with quick():
        recorder = FlowRecorder(toy.root, "language")
        recorder.close(toy.run(recorder=recorder).values())
    return toy


@pytest.fixture
def root(once: Toy, tmp_path: Path) -> Path:
    return copied(once, tmp_path / "toy").root


def asked(root: Path, *arguments: str) -> str:
    code, out, error = call(root, "lineage", *arguments)
    assert (code, error) == (0, "")
    return out


def test_one_line_a_link_by_default(root: Path) -> None:
    told = asked(root, "report").splitlines()
    assert [line.strip("│├└ ").split("  ")[0] for line in told] == [
        "data/report",
        "data/problems",
        "raw.txt",
        "data/sft",
        "as above: data/problems",
    ]
    md5 = dvc_lock.get_entry_hashes(dvc_lock.read_lock_entries(root)["sft"], "outs")["data/sft"]
    assert re.search(
        rf"├? data/sft +{md5[:8]}  sft +\d{{4}}-\d\d-\d\d \d\d:\d\d  [0-9a-f]{{8}}  none +[0-9a-f]{{8}} 1 file$",
        told[3],
    )


def test_in_full_as_json_and_in_mermaid(root: Path) -> None:
    full = asked(root, "data/report", "--full")
    document = json.loads(asked(root, "report", "--json"))
    assert len(re.findall(r"made by \w+ at .*, run [0-9a-f]{32}", full)) == 3 == len(document["runs"])
    assert all(run["id"] in full for run in document["runs"])
    assert [one["path"] for one in document["artifacts"] if one["raw"]] == ["raw.txt"]
    assert asked(root, "report", "--json") == asked(root, "data/report", "--json")
    drawn = asked(root, "report", "--mermaid")
    assert drawn.startswith("flowchart LR\n")
    assert drawn.count(" --> ") == 1 + 1 + 2 + 3  # what went in, and what came out


def test_as_a_page(root: Path) -> None:
    assert asked(root, "sft", "--html") == "lineage: lineage-data-sft.html\n"
    page = (root / "lineage-data-sft.html").read_text()
    assert "2 runs made 2 artifacts from 1 raw input." in page
    assert asked(root, "sft", "--html", "page.html") == "lineage: page.html\n"
    assert (root / "page.html").read_text() == page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "--json", "--html"], "--full, --json, --mermaid, --html: expected one of them"),
        (["report", "--html", "no/page.html"], "no/page.html: its folder does not exist"),
        (["report", "page.html"], "report page.html: "),
    ],
)
def test_wrong_use_is_one_line(root: Path, arguments: list[str], message: str) -> None:
    code, out, error = call(root, "lineage", *arguments)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"posttrain: {message}")


WATCHED = """
import sys
from flows import cli
for line in sys.stdin.read().splitlines():
    status = cli.run_command_line(line.split())
    print("::", line, status, sorted({"prefect", "mlflow", "torch"} & {*sys.modules}))
"""


def again_in(root: Path) -> list[str]:
    code, out, _ = call(root, "run", "report")
    assert code == 0
    return out.splitlines()


def test_questions_are_answered_without_prefect_and_mlflow_and_the_report_links_each_run_to_its_node(
    root: Path,
) -> None:
    """By one process after the other question, since what is imported stays so; the first one writes the pages."""
    statuses = {"run report": 0, "run": 0, "status": 0, "lineage data/report": 0, "lineage nosuch": 2, "run --json": 0}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=root,
        env=environ(),
        input="\n".join(statuses),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("nothing has changed: 3 stages are up to date (")
    assert lines[1:3] == ["report: report.html", "lineage: lineage.html"]
    answers = [line for line in lines if line.startswith("::")]
    assert answers == [f":: {question} {status} []" for question, status in statuses.items()]
    report, page = (root / "report.html").read_text(), (root / "lineage.html").read_text()
    links = re.findall(r'<td><a href="lineage.html#([^"]+)"><code>([0-9a-f]{32})</code></a></td>', report)
    runs = {one["id"] for one in json.loads(asked(root, "report", "--json"))["runs"]}
    assert {run for _, run in links} == runs
    assert all(target == format_page_anchor("run", run) and f'<section id="{target}"' in page for target, run in links)
    assert 'What went into each of them: <a href="lineage.html">lineage.html</a>.' in report
    assert again_in(root)[1:] == [], "and nothing is written again"
    for change in (Path.unlink, lambda file: file.write_text("edited")):
        change(root / "lineage.html")
        assert "lineage: lineage.html" in again_in(root)
        assert (root / "lineage.html").read_text() == page


def test_where_the_records_cannot_be_read_the_report_has_no_link(root: Path) -> None:
    from flows.web import run_page
    from tests.flows.web.test_run_page import finished

    planned, results = finished()
    (root / "lineage.html").write_text("of an earlier run")
    (root / "mlruns/mlflow.db").write_text("torn" * 300)
    assert [page.name for page in run_page.write_report_pages(root, planned, results)] == ["report.html"]
    assert not (root / "lineage.html").exists()
    assert "lineage.html" not in (root / "report.html").read_text()
    assert not run_page.has_outdated_pages(root, planned)
