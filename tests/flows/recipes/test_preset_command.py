"""`posttrain preset`: the list, what it says when it lays a preset, and the ways back."""

import subprocess
from pathlib import Path

import pytest

from flows.params import checking, rules
from flows.recipes import preset_command
from flows.recipes.preset_command import choose_theme, extract_first_sentence, find_next_command, list_presets_by_theme
from tests.flows.toy_pipeline import TYPES, call, make_pipeline
from tests.repository import ROOT

LARGE = """# Larger values of arXiv:2305.18290. And more.
# Then `posttrain run dpo`.
dpo: {beta: 0.5}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small pipeline with a preset."""
    monkeypatch.setattr(checking, "load_config_classes", lambda root: TYPES)
    monkeypatch.setattr(rules, "RULES", [])
    folder = make_pipeline(tmp_path / "toy")
    (folder / "presets").mkdir()
    (folder / "presets/large.yaml").write_text(LARGE)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "add", "params.yaml"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "params"], cwd=folder, check=True)
    return folder


def test_a_preset_says_what_changed_how_to_go_back_and_what_to_type(root: Path) -> None:
    assert call(root, "preset", "large") == (
        0,
        "params.yaml: dpo.beta: 0.1 -> 0.5\n"
        "back: posttrain preset --undo, or posttrain preset default\n"
        "large: Larger values of arXiv:2305.18290 (presets/large.yaml says more)\n"
        "next: posttrain run dpo\n",
        "",
    )


def test_many_changes_are_counted_by_section(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preset_command, "SHOWN_CHANGES", 0)
    _, out, _ = call(root, "preset", "large")
    assert out.startswith("params.yaml: 1 values changed in dpo (git diff params.yaml)\nback: ")


def test_undo_puts_the_file_back_once(root: Path) -> None:
    file = root / "params.yaml"
    file.write_text(file.read_text() + "# a comment of mine\n")
    before = file.read_bytes()
    call(root, "preset", "large")
    assert file.read_bytes() != before
    assert call(root, "preset", "--undo") == (0, "params.yaml: as it was before the last preset\n", "")
    assert file.read_bytes() == before
    code, _, err = call(root, "preset", "--undo")
    assert (code, err) == (2, "posttrain: preset --undo: no preset was laid over params.yaml here\n")


def test_undo_loses_no_later_change(root: Path) -> None:
    file = root / "params.yaml"
    call(root, "preset", "large")
    file.write_text(file.read_text().replace("0.5", "0.7"))
    code, _, err = call(root, "preset", "--undo")
    assert code == 2
    assert "params.yaml has changed since the preset; `posttrain preset default`" in err
    assert "0.7" in file.read_text()


def test_default_is_the_committed_file_and_can_be_undone(root: Path) -> None:
    file = root / "params.yaml"
    committed = file.read_bytes()
    call(root, "preset", "large")
    laid = file.read_bytes()
    code, out, _ = call(root, "preset", "default")
    assert (code, file.read_bytes()) == (0, committed)
    assert out.startswith("params.yaml: dpo.beta: 0.5 -> 0.1\n")
    call(root, "preset", "--undo")
    assert file.read_bytes() == laid


def test_a_dry_run_writes_nothing(root: Path) -> None:
    before = (root / "params.yaml").read_bytes()
    assert call(root, "preset", "large", "--dry-run") == (0, "params.yaml: dpo.beta: 0.1 -> 0.5\n", "")
    assert (root / "params.yaml").read_bytes() == before
    assert call(root, "preset", "--undo")[0] == 2


def test_a_name_that_is_close_is_suggested(root: Path) -> None:
    code, _, err = call(root, "preset", "larg")
    assert code == 2
    assert err == (
        "posttrain: preset larg: there is no presets/larg.yaml; `posttrain preset` lists them (did you mean large?)\n"
    )


def test_the_list_has_each_preset_of_this_repository_once_within_80_columns() -> None:
    lines = list_presets_by_theme(ROOT)
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    files = [*ROOT.glob("presets/*.yaml"), *ROOT.glob("tasks/extensions/*/presets/*.yaml")]
    assert sorted(names) == sorted(file.stem for file in files)
    assert all(len(line) <= 80 and not line.endswith("...") for line in lines[:-1])
    assert all(len(line.split()) > 2 for line in lines if line.startswith("  "))  # each says what it is for


@pytest.mark.parametrize(
    ("name", "sections", "theme"),
    [
        ("tiny", ["problems", "agents"], "Size"),
        ("fault-length", ["ppo"], "Faults of training and their cures"),
        ("chat", ["sft"], "Your own data"),
        ("simpo", ["dpo"], "Language models"),
        ("mine", ["cql", "offline_report"], "Offline reinforcement learning"),
        ("mine", ["agents_report"], "Language agents"),
        ("text-game", ["agents_report", "offline_report"], "Offline reinforcement learning"),
    ],
)
def test_themes(name: str, sections: list[str], theme: str) -> None:
    assert choose_theme(name, sections) == theme


def test_what_to_type_next() -> None:
    assert find_next_command(["Then `posttrain run search`: the page."], ["search"]) == "posttrain run search"
    assert find_next_command(["posttrain preset b && posttrain run b_pages"], ["b"]) == "posttrain run b_pages"
    with_file = "posttrain run --set preferences.path=pairs.jsonl"
    assert find_next_command(["Pairs.", "posttrain preset pairs", with_file], ["preferences"]) == with_file
    assert find_next_command(["Nothing named."], ["offline_report"]) == "posttrain run offline"
    assert find_next_command(["Nothing named."], ["dpo"]) == "posttrain run"
    assert find_next_command(["Nothing named."], ["offline_report", "agents_report"]) == "posttrain run"


def test_the_first_sentence() -> None:
    assert extract_first_sentence(["Of arXiv:2305.18290,", "eq. 7. More."]) == "Of arXiv:2305.18290, eq. 7"
    assert extract_first_sentence(["One alone"]) == "One alone"
