"""A number, verdict, block or result file that was changed by hand is noticed."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import claims, result_files, tables

ROOT = Path(__file__).parents[2]
LECTURES = {
    "agents": [
        {
            "claim": "A tool helps",
            "differences": [["calculator", 0.678, 0.599, 0.758]],
            "beside": "the clone 0.556",
            "run": "default",
        }
    ]
}
SEARCH_PAGE = "tasks/extensions/search/README.md"
SEARCH = {
    "SFT": [
        {"method": "greedy", "samples": 1, "right": 72.6, "low": 68.5, "high": 76.3},
        {"method": "majority", "samples": 64, "right": 74.2, "over_greedy": [1.6, -1.0, 4.6]},
    ]
}
PAIRS = {
    "best of n": {
        f"default, {pairs}": {
            "held_out": 0.7,
            "n": [1, 2, 4],
            "kl": [0.0, 0.2, 0.6],
            "rubric": [[0.5, 0, 1], [0.6, 0, 1], [last, 0, 1]],
        }
        for pairs, last in (("60 pairs", 0.4), ("all pairs", 0.55))
    }
}
SCORES = {"rows": [["", "BC", "DQN"], ["medium", "80.4 +- 2.4", "1.0 +- 23.1"]]}
PAGES = {
    "README.md": "# Title\n\nIt is quick, with 95 % intervals and `5 points`.\n\n{tables.page | speed}\n",
    "docs/lectures.md": "# Lectures\n\n{lectures.claims | lectures | agents}\n",
    SEARCH_PAGE: "# Search\n\n{search.right | search | SFT}\n",
    "docs/faults.md": "# Faults\n\n{training_faults.numbers.best_of_n | pairs}\n\n{training_faults.numbers.moves | "
    "pairs | default}\n",
    "docs/algorithms/dqn.md": "# DQN\n\n{tables.columns | tables/scores | DQN}\n",
    "log/tables.md": "# Log\n\n## Ten seeds\n\nResult file: benchmarks/results/tables/scores.json.\n\n{tables.table | "
    "tables/scores}\n\n"
    "## Tried\n\nNo result file.\n\nIt took 24 min 55 s.\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in which every block is made of a result file of that commit."""
    for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a", "--allow-empty"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(result_files, "ROOT", tmp_path)
    results = {"speed": {"page": ["It is 2.4 times as fast."]}, "lectures": LECTURES, "search": SEARCH, "pairs": PAIRS}
    for name, result in {**results, "tables/scores": SCORES}.items():
        result_files.write_result(tmp_path / f"benchmarks/results/{name}.json", result)
    for page, text in PAGES.items():
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text(re.sub(r"\{(.+?)\}", r"<!-- block \1 -->\n<!-- /block -->", text))
    claims.rewrite_page_blocks(tmp_path)
    assert claims.find_claim_faults(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("page", "old", "new", "fault"),
    [
        ("README.md", "2.4 times", "2.6 times", "README.md: block tables.page | speed is not what is made"),
        ("README.md", "It is quick", "It is 3 points better", "README.md:3: 3 points stands outside of a block"),
        ("README.md", "It is quick", "It takes 10 min 39 s", "README.md:3: 10 min 39 s stands outside of a block"),
        ("README.md", "It is quick", "It is right in 81.4 %", "README.md:3: 81.4 % stands outside of a block"),
        ("README.md", "It is quick", "It differs, p 0.022", "README.md:3: p 0.022 stands outside of a block"),
        ("README.md", "It is quick", "It is 0.5 ± 0.1", "README.md:3: 0.5 ± 0 stands outside of a block"),
        ("README.md", "<!-- /block -->", "", "README.md: a block has no beginning or no end"),
        ("README.md", "| speed -->", "| sped -->", "block tables.page | sped cannot be made: FileNotFoundError"),
        ("docs/lectures.md", "+0.678", "+0.778", "docs/lectures.md: block lectures.claims"),
        ("docs/lectures.md", "| holds |", "| does not |", "docs/lectures.md: block lectures.claims"),
        (SEARCH_PAGE, "74.2 %", "84.2 %", "README.md: block search.right"),
        (SEARCH_PAGE, "no method whose", "majority, whose", "README.md: block search.right"),
        ("docs/faults.md", "| 0.60 |", "| 0.70 |", "docs/faults.md: block training_faults.numbers.best_of_n"),
        ("docs/faults.md", "it moves to", "it does not move to", "docs/faults.md: block training_faults.numbers.moves"),
        ("docs/algorithms/dqn.md", "1.0 +- 23.1", "11.0 +- 23.1", "dqn.md: block tables.columns"),
        ("log/tables.md", "80.4 +- 2.4", "90.4 +- 2.4", "log/tables.md: block tables.table | tables/scores"),
        ("log/tables.md", "No result file.\n\n", "", "log/tables.md: Tried: the first line neither names a result"),
        ("log/tables.md", "tables/scores.json.", "tables/other.json.", "tables/other.json is not there"),
        ("benchmarks/results/search.json", "74.2", "84.2", "search.json: was changed: its sha256 is not that of"),
    ],
)
def test_what_was_changed_by_hand_is_noticed(root: Path, page: str, old: str, new: str, fault: str) -> None:
    text = (root / page).read_text()
    assert old in text
    (root / page).write_text(text.replace(old, new, 1))
    lines = claims.find_claim_faults(root)
    assert any(fault in line for line in lines), lines


def test_a_block_says_where_it_differs(root: Path) -> None:
    page = root / SEARCH_PAGE
    page.write_text(page.read_text().replace("74.2 %", "84.2 %"))
    [line] = claims.find_claim_faults(root)
    assert "84.2 %" in line
    assert "74.2 %" in line


def reseal(path: Path, **fields: str) -> None:
    """Change fields of a result file, with a hash that fits."""
    content = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({**content, "sha256": result_files.hash_content(content)}))


def test_a_commit_that_is_not_in_the_history(root: Path) -> None:
    path = root / "benchmarks/results/search.json"
    reseal(path, commit="0123456789abcdef")
    assert claims.find_claim_faults(root) == [
        "benchmarks/results/search.json: commit 0123456789abcdef is not in the history"
    ]
    reseal(path, commit="unknown")
    assert claims.find_claim_faults(root) == ["benchmarks/results/search.json: its commit is unknown, for no reason"]
    reseal(path, reason="it was not written down")
    assert claims.find_claim_faults(root) == []


def test_a_shallow_clone_cannot_know_old_commits(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    reseal(root / "benchmarks/results/search.json", commit="0123456789abcdef")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["add", "-A"], [*identity, "commit", "-qm", "b"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    shallow = tmp_path_factory.mktemp("shallow") / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", root.as_uri(), str(shallow)], check=True)
    assert claims.find_claim_faults(shallow) == []


def test_a_result_file_without_its_fields(root: Path) -> None:
    (root / "benchmarks/results/bare.json").write_text("{}")
    assert claims.find_claim_faults(root) == [
        "benchmarks/results/bare.json: has no commit, per_problem, processor, result, sha256"
    ]


def test_numbers_of_others_and_in_code_may_stand_in_prose(root: Path) -> None:
    text = (
        "People agreed in 73 % of pairs. <!-- quoted: arXiv:2203.02155 -->\n\n```\n5 points\n```\n\nA limit of "
        "`20 s`, 10%BC.\n"
    )
    (root / "docs/other.md").write_text(text)
    assert claims.find_claim_faults(root) == []
    (root / "docs/other.md").write_text(text.replace(" <!-- quoted: arXiv:2203.02155 -->", ""))
    assert claims.find_claim_faults(root) == ["docs/other.md:1: 73 % stands outside of a block"]


def test_results_are_added_with_their_commits_and_values(root: Path) -> None:
    path = root / "benchmarks/results/more.json"
    result_files.write_result(path, {"a": 1}, {"a": [0.0, 1.0]}, adds=True)
    reseal(path, commit="unknown", processor="another", reason="older")
    result_files.write_result(path, {"a": 1, "b": 2}, {"b": [1.0]}, adds=True)
    content = json.loads(path.read_text())
    assert content["commit"] == f"unknown {result_files.describe_commit()}"
    assert content["processor"] == f"another; {result_files.describe_processor()}"
    assert result_files.load_result(path) == {"a": 1, "b": 2}
    assert result_files.load_single_values(path) == {"a": [0.0, 1.0], "b": [1.0]}
    assert claims.find_claim_faults(root) == []
    result_files.write_result(path, {"c": 3})
    assert result_files.load_single_values(path) == {}, "a result that replaces another has no values of that"


def test_tables_are_read_as_they_are_written() -> None:
    text = "# One\n\n| | a | b |\n|---|---|---|\n| x | 1 | |\n| y | | 2 |\n"
    result = {"rows": tables.parse_tables(text)["One"], "page": text.splitlines()}
    assert tables.table(result) in text
    assert tables.columns(result, "b") == "| | b |\n|---|---|\n| y | 2 |\n"
    assert tables.lines(result, "One", "x") == "| | a | b |\n|---|---|---|\n| x | 1 | |\n"


@pytest.mark.tree
def test_readme_has_at_most_six_measured_numbers() -> None:
    """An interval counts two."""
    blocks = "".join(text for _, text in claims.BLOCK.findall((ROOT / "README.md").read_text()))
    measured = [match[0] for match in claims.MEASURED.finditer(claims.LEVEL.sub("", blocks))]
    assert 0 < sum(2 if " to " in number else 1 for number in measured) <= 6


@pytest.mark.tree
def test_this_repository_has_no_number_outside_of_blocks_and_sealed_results() -> None:
    pages = [page for pattern in claims.PAGES for page in ROOT.glob(pattern)]
    assert not [line for page in pages for line in claims.find_numbers_outside_blocks(ROOT, page)]
    assert not [*claims.find_unsourced_log_entries(ROOT), *result_files.find_result_file_faults(ROOT)]
