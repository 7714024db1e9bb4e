"""What made a stage out of date: parameters, code and data of a repository that has run twice, changed by hand."""

from io import StringIO

import pytest
from rich.console import Console

from flows.console.staleness_causes import print_staleness_causes
from flows.lineage.staleness import Cause, find_staleness_causes
from tests.flows.lineage.audited import HELPER, Audited


def named(found: list[Cause]) -> dict[str, list[str]]:
    return {cause.what.split(", since run")[0]: [*cause.lines] for cause in found}


def test_nothing_changed(audited: Audited) -> None:
    assert find_staleness_causes(audited.root, "b") == []


def test_parameters_are_shown_with_both_values(audited: Audited) -> None:
    audited.params["b"] = {"beta": 0.05, "text": "x" * 100}
    audited.save()
    assert named(find_staleness_causes(audited.root, "b")) == {
        "param b.rows": ["- 3"],
        "param b.beta": ["- 0.2", "+ 0.05"],
        "param b.text": ["+ " + "x" * 100],
    }
    assert find_staleness_causes(audited.root, "c") == []


def test_code_is_compared_with_what_the_stage_s_own_run_read(audited: Audited) -> None:
    """a ran before the second commit and b after it, each with its own version on record."""
    audited.write("helper.py", HELPER.replace("sorted(", "list("))
    lines = [
        "@@ -1,4 +1,4 @@",
        " ",
        " def text(path):",
        '-    files = sorted(path.rglob("*")) if path.is_dir() else [path]',
        '+    files = list(path.rglob("*")) if path.is_dir() else [path]',
        '     return "".join(file.read_text() for file in files if file.is_file())',
    ]
    for stage in ("a", "b"):
        [cause] = find_staleness_causes(audited.root, stage)
        assert cause.what == f"helper.py, since run {audited.run_of(stage)[:8]}"
        assert [*cause.lines] == lines


@pytest.mark.slow
def test_code_that_was_never_committed_is_found_by_the_run_s_patch(audited: Audited) -> None:
    audited.write("helper.py", HELPER + "# one\n")
    audited.pipeline()
    audited.write("helper.py", HELPER + "# two\n")
    assert named(find_staleness_causes(audited.root, "b"))["helper.py"][-2:] == ["-# one", "+# two"]


def test_a_version_that_git_does_not_have_is_named_without_lines(audited: Audited) -> None:
    """No commit that can be found has the bytes that the run recorded: no difference is made up."""
    audited.sql("UPDATE tags SET value = ? WHERE key = 'posttrain.git_commit'", "0" * 40)
    audited.write("helper.py", HELPER + "# more\n")
    [cause] = find_staleness_causes(audited.root, "b")
    assert cause.lines[-1] == "+# more", "the current commit has the recorded version"
    audited.git("checkout", "--quiet", "--orphan", "rewritten")
    audited.commit()
    assert find_staleness_causes(audited.root, "b") == [Cause("dep helper.py changed")]


def test_data_and_outs(audited: Audited) -> None:
    audited.write("data/raw/x.txt", "other")
    audited.write("data/a/model.bin", "torn")
    assert named(find_staleness_causes(audited.root, "a")) == {
        "dep data/raw/x.txt changed": [],
        "out data/a changed": [],
    }
    (audited.root / "data/raw/x.txt").unlink()
    assert "dep data/raw/x.txt is missing" in named(find_staleness_causes(audited.root, "a"))


@pytest.mark.slow
def test_files_of_a_folder_that_a_stage_reads(audited: Audited) -> None:
    audited.write("pages/one.txt", "1\n2\n")
    audited.write("pages/two.txt", "two\n")
    audited.write("pages/gone.txt", "gone\n")
    audited.write("pages/README.md", "left out\n")
    audited.write(".dvcignore", "README.md\n")
    audited.stages["b"]["deps"].append("pages")
    audited.save()
    audited.commit()
    audited.pipeline()
    assert find_staleness_causes(audited.root, "b") == []
    audited.write("pages/one.txt", "1\n3\n")
    audited.write("pages/README.md", "left out still\n")
    audited.write("pages/new.txt", "new\n")
    (audited.root / "pages/gone.txt").unlink()
    assert named(find_staleness_causes(audited.root, "b")) == {
        "pages/gone.txt": ["@@ -1 +0,0 @@", "-gone"],
        "pages/new.txt": ["@@ -0,0 +1 @@", "+new"],
        "pages/one.txt": ["@@ -1,2 +1,2 @@", " 1", "-2", "+3"],
    }


def test_never_run(audited: Audited) -> None:
    audited.trains("z", "data/a")
    audited.params["z"] = {"rows": 1}
    audited.save()
    assert find_staleness_causes(audited.root, "z") == [Cause("never run")]


@pytest.mark.parametrize("harmful", ["\x1b[2J", "[red]"])
def test_what_stages_share_is_shown_once_and_harmlessly(audited: Audited, harmful: str) -> None:
    audited.write("helper.py", HELPER + f"# {harmful}\n")
    audited.change("a", rows=4)
    text = StringIO()
    print_staleness_causes(
        Console(file=text, width=200), audited.root, [one for one in audited.plan("b") if one.reason]
    )
    shown = text.getvalue()
    assert shown.startswith("param a.rows (a)\n  - 3\n  + 4\n")
    assert shown.count("helper.py, since run") == 2, "a and b were made by different runs"
    assert "\x1b" not in shown
    assert harmful.replace("\x1b", "\\x1b") in shown
