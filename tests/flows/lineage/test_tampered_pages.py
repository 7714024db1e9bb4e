"""The report's pages in the root, falsified outside of the section on the run and within it."""

import os

from tests.flows.lineage.audited import Audited, flip, replace


def test_numbers_in_the_pages(audited: Audited) -> None:
    replace(audited.root / "report.html", "<td>0.5</td>", "<td>0.9</td>")
    replace(audited.root / "report.md", "| b | loss | 0.25 |", "| b | loss | 0.05 |")
    outside, inside = audited.faults()
    assert "report.html: line 3 has '" in outside
    assert "0.9" in outside
    assert "the stage's own page has '" in outside
    assert "report.md: b loss is 0.05, data/metrics/b.json has 0.25 (report)" in inside


def test_a_text_in_the_section_on_the_run(audited: Audited) -> None:
    replace(audited.root / "report.html", "&quot;beta&quot;: 0.2", "&quot;beta&quot;: 0.7")
    [fault] = audited.faults()
    assert fault.startswith("report.html: was edited after it was written: line ")
    assert all(part in fault for part in ("0.7", "the copy of pipeline run ", "0.2"))


def test_a_text_in_the_line_under_the_title(audited: Audited) -> None:
    """It is put there after the run, and is no part of the stage's page."""
    replace(audited.root / "report.html", '<p class="note">commit ', '<p class="note">commit 0')
    [fault] = audited.faults()
    assert fault.startswith("report.html: was edited after it was written: line ")
    assert "the copy of pipeline run " in fault


def test_a_page_that_was_edited_with_its_digest_noted_anew(audited: Audited) -> None:
    """The tables are those of the metrics files, whatever the digest says."""
    replace(audited.root / "report.html", "<td>0.25</td>", "<td>0.05</td>")
    (audited.root / ".dvc/tmp/posttrain/pages.json").unlink()
    assert any("report.html: b loss is 0.05, data/metrics/b.json has 0.25" in line for line in audited.faults())


def test_a_page_of_an_earlier_run_is_only_said(audited: Audited) -> None:
    """As plain `dvc repro` leaves it."""
    audited.change("report", title="other")
    audited.dvc("repro")
    os.utime(audited.root / "data/report/report.html")
    audit = audited.audit()
    assert [finding.where for finding in audit.faults] == ["report"], "its command recorded nothing"
    said = [finding.line for finding in audit.remarks if finding.where == "report.html"]
    assert said[0].startswith("report.html: is of an earlier run; `posttrain run` writes it again (report, run ")


def test_the_page_of_lineage_beside_the_report(audited: Audited) -> None:
    page = audited.root / "lineage.html"
    assert audited.faults() == []
    flip(page)
    [fault] = audited.faults()
    assert fault.startswith("lineage.html: was edited after it was written")
