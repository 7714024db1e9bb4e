"""`posttrain compare` on a repository with real tables: runs, revisions and policies, what differs, the gate and its
verdict.
"""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flows import cli
from flows.lineage.comparison import evaluation_comparison
from tasks.comparison import __main__ as child
from tests.flows.engine.toy import Toy
from tests.flows.lineage.evaluated import HOSTILE, evaluated, run_recorded

pytestmark = pytest.mark.slow  # two pipeline runs


@pytest.fixture(scope="module")
def compared(tmp_path_factory, template: Path, empty_mlflow: Path) -> tuple[Toy, str, str]:
    """Two pipeline runs, with dpo better in the second, and the first one's dvc.lock in git; (toy, run, run)."""
    root = tmp_path_factory.mktemp("compared") / "toy"
    shutil.copytree(template, root)
    toy = evaluated(Toy(root), empty_mlflow)
    first = run_recorded(toy)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    toy.set(dpo=0.8)
    return toy, first, run_recorded(toy)


@pytest.fixture
def call(compared, monkeypatch, capsys, request):
    """The command, and what it starts, in this process, unless the test is about that: exit code, output, errors."""
    monkeypatch.chdir(compared[0].root)
    if "separately" not in request.node.name:
        monkeypatch.setattr(
            evaluation_comparison,
            "_run_comparison_process",
            lambda _, pairs: [child.compare_pair(pair, evaluation_comparison.MOST) for pair in pairs],
        )

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.run_command_line(["compare", *arguments])
        out, error = capsys.readouterr()
        assert status == 2 or not error
        return status, out, error

    return run


def test_two_runs_separately_stage_by_stage_and_metric_by_metric(compared, call):
    _, first, second = compared
    status, out, error = call(first[:8], second[:8], "--json")
    assert (status, error) == (0, "")
    found = json.loads(out)
    assert [(one["stage"], one["cause"], one["params"]) for one in found["stages"]] == [
        ("dpo", "changed", {"dpo": [0.6, 0.8]}),
        ("evaluate@dpo", "upstream", {}),
    ]
    assert found["stages"][1]["through"] == ["dpo"]
    sft, dpo = found["evaluations"]
    assert (sft["policy"], sft["same"], dpo["policy"], dpo["same"]) == ("sft", True, "dpo", False)
    assert all(row["low"] == row["difference"] == row["high"] == 0 for row in sft["metrics"].values())
    row = dpo["metrics"]["strict_greedy"]
    assert (row["gained"], row["lost"]) == (len(dpo["flips"]["gained"]), len(dpo["flips"]["lost"]))
    assert row["b"] - row["a"] == pytest.approx(row["difference"])
    assert row["difference"] == row["gained"] / 60 > 0 == row["lost"]
    assert row["low"] < row["difference"] < row["high"]
    assert dpo["flips"]["gained"][0]["a"]["answer"].startswith(HOSTILE)


def test_a_run_its_git_revision_and_dvc_lock_are_the_same_snapshots(compared, call):
    _, first, second = compared
    by_run, by_git = (json.loads(call(a, b, "--json")[1]) for a, b in ((first, second), ("HEAD", "now")))
    assert by_run["stages"] == by_git["stages"]
    assert by_run["evaluations"] == by_git["evaluations"]
    assert by_git["b"]["is"] == "dvc.lock as it is"


def test_swapping_the_sides_turns_the_signs(compared, call):
    _, first, second = compared
    there, back = (json.loads(call(a, b, "--json")[1])["evaluations"][1] for a, b in ((first, second), (second, first)))
    for name, row in there["metrics"].items():
        other = back["metrics"][name]
        assert (other["difference"], other["low"], other["high"]) == pytest.approx(
            (-row["difference"], -row["high"], -row["low"])
        )
    assert there["flips"]["gained"] == [{**flip, "a": flip["b"], "b": flip["a"]} for flip in back["flips"]["lost"]]


def test_two_policies_of_one_run(compared, call):
    _, first, _ = compared
    found, before = (json.loads(call("sft", "dpo", "--json", *of)[1]) for of in ((), ("--of", first)))
    assert found["ways"]["common"] == ["sft"]
    assert found["ways"]["own"] == [[], ["dpo"]]
    gains = [one["evaluations"][0]["metrics"]["strict_greedy"]["difference"] for one in (before, found)]
    assert 0 < gains[0] < gains[1]


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        ("dpo/strict_greedy > 0", 0),
        ("dpo/strict_greedy > 0.5", 1),
        ("dpo/strict_mean@8_tbest > 0", 0),
        ("dpo/length_greedy < 0", 1),
        ("sft/strict_greedy > 0", 1),  # one and the same evaluation
        ("sft/strict_greedy not below 0", 0),
        ("sft/strict_greedy not above -0.01", 1),
    ],
)
def test_the_gate(compared, call, requirement, status):
    _, first, second = compared
    found, out, _ = call(first, second, "--require", requirement, "--require", "sft/length_greedy not above 0")
    assert found == status
    assert f"{'FAILS' if status else 'holds'}  {requirement}" in out


def test_the_gate_by_hand_of_not_below(compared, call):
    """From right to wrong: lost on a fifth of the problems, so surely worse by 2 points, and surely not by 50."""
    _, first, second = compared
    for bound, status in ((-0.02, 1), (-0.5, 0)):
        assert call(second, first, "--require", f"dpo/strict_greedy not below {bound}")[0] == status


def test_the_verdict_names_both_sides_and_is_the_same_each_time(compared, call, tmp_path):
    toy, first, second = compared
    files = [tmp_path / "one.json", tmp_path / "folder/two.json"]
    for file in files:
        assert call(first, second, "--require", "dpo/strict_greedy > 0", "--verdict", str(file))[0] == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    told = json.loads(files[0].read_text())
    assert (told["verdict"], told["a"]["pipeline_run"], told["b"]["pipeline_run"]) == ("holds", first, second)
    hashes = {out["path"]: out["md5"] for stage in toy.lock["stages"].values() for out in stage["outs"]}
    stages = told["b"]["stages"]
    assert stages["dpo"]["outs"] == {"data/dpo": hashes["data/dpo"]}
    assert stages["evaluate@dpo"]["outs"] == {"data/evaluate/dpo": hashes["data/evaluate/dpo"]}
    assert stages["evaluate@dpo"]["data"] == {"data/dpo": hashes["data/dpo"]}
    assert told["a"]["stages"]["dpo"]["outs"] != stages["dpo"]["outs"]
    [required] = told["requirements"]
    assert (required["holds"], required["problems"]["common"]) == (True, 60)
    call(first[:8], second[:8], "--require", "dpo/strict_greedy > 0.9")
    default = toy.root / f"mlruns/verdicts/{first[:8]}..{second[:8]}.json"
    assert json.loads(default.read_text())["verdict"] == "fails"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sft", "dpo", "--require", "strict_gredy > 0"), "strict_gredy was not compared; did you mean strict_greedy"),
        (("HEAD", "now", "--require", "strict_greedy > 0"), "did you mean sft/strict_greedy or dpo/strict_greedy?"),
        (("HEAD", "now", "--require", "dpo/strict_greedy >= 0"), "expected METRIC, then >, <, `not below`"),
        (("HEAD", "now", "--require", "dpo/strict_greedy > nan"), "expected METRIC"),
        (("sft", "dpp"), "dpp: sft is a policy, and can be compared with another one; did you mean dpo?"),
        (("HEAD", "--output=x"), "No such option"),
        (("HEAD", "nowhere"), "nowhere: no pipeline run"),
        (("HEAD~99", "now"), "HEAD~99: no pipeline run"),
        (("sft", "dpo", "--of", "abcdef0"), "abcdef0: no pipeline run"),
    ],
)
def test_wrong_use_is_one_line(call, arguments, message):
    status, out, error = call(*arguments)
    assert (status, out) == (2, "")
    assert message in error
    assert error.count("\n") == 1


def test_the_terminal_gets_no_control_characters(compared, call):
    out = call("sft", "dpo")[1]
    assert "right in dpo alone: What is" in out
    assert "\\x1b[31m" in out
    assert "\x1b" not in out


class Read(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.texts = list[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_shows_answers_as_text(compared, call, tmp_path):
    _, first, second = compared
    page = tmp_path / "compared.html"
    assert call(first, second, str(page), "--html", "--require", "dpo/strict_greedy > 0")[0] == 0
    read = Read(page.read_text())
    assert "script" not in read.tags
    assert read.tags.count("svg") >= 3
    assert any(HOSTILE.replace("\x1b", "") in text.replace("\x1b", "") for text in read.texts)
    assert "default-src 'none'" in page.read_text()


def test_tables_that_are_gone_or_altered_are_said_and_let_nothing_through(compared, call):
    toy, first, second = compared
    [folder] = [out["md5"] for out in toy.lock["stages"]["evaluate@dpo"]["outs"]]
    cache = toy.root / ".dvc/cache/files/md5"
    listed = json.loads((cache / folder[:2] / folder[2:]).read_text())
    [md5] = [item["md5"] for item in listed if item["relpath"] == "measures.parquet"]
    file = cache / md5[:2] / md5[2:]
    kept = file.read_bytes()
    try:
        for content, message in ((kept[:-1], "is not what was recorded"), (None, "is not in DVC's cache (any more)")):
            file.unlink()
            if content is not None:
                file.write_bytes(content)
            status, out, _ = call(first, second)
            assert (status, message in out) == (0, True)
            status, _, error = call(first, second, "--require", "dpo/strict_greedy > 0")
            assert (status, message in error) == (2, True)
    finally:
        file.write_bytes(kept)
