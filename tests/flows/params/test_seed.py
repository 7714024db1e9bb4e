"""The seed that sections share: a YAML anchor, which an edit of one value must neither lose nor move by accident."""

import json
from pathlib import Path

import pytest

from flows.params import checking, editing
from flows.params.files import PARAMS, ParameterError, parse_yaml_text
from tests import extensions
from tests.conftest import SECTIONS

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / PARAMS).read_text()
BEFORE = parse_yaml_text(TEXT, PARAMS)
FOLLOWING = [
    name for name in BEFORE if f"\n{name}:" in TEXT and "seed: *seed" in TEXT.split(f"\n{name}:")[1].split("\n\n")[0]
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / PARAMS).write_text(TEXT)
    return tmp_path


def edited(root: Path, *settings: str) -> dict[str, dict[str, object]]:
    editing.edit_params(root, SECTIONS, [editing.parse_setting(text) for text in settings])
    found: dict[str, dict[str, object]] = parse_yaml_text((root / PARAMS).read_text(), PARAMS)
    return found


def test_the_data_and_the_pretrained_model_keep_their_own() -> None:
    own = {name for name, section in BEFORE.items() if name != "seed" and "seed" in section} - {*FOLLOWING}
    assert own - {*extensions.STAGES} == {
        "problems",
        "corpus",
        "pretrained",
        "behaviour",
        "transitions",
        "returns",
        "expert_episodes",
    }


def test_the_seed_moves_what_follows_it_and_one_line_of_the_file(root: Path) -> None:
    found = edited(root, "seed=7")
    assert {name for name in BEFORE if found[name] != BEFORE[name]} == {"seed", *FOLLOWING}
    assert all(found[name]["seed"] == 7 for name in FOLLOWING)
    lines = zip(TEXT.splitlines(), (root / PARAMS).read_text().splitlines(), strict=True)
    assert [new for old, new in lines if old != new] == [
        next(line for line in TEXT.splitlines() if line.startswith("seed:")).replace("&seed 0", "&seed 7")
    ]


def test_a_section_of_its_own_seed_no_longer_follows(root: Path) -> None:
    found = edited(root, "dpo.seed=5", "seed=9", "dpo.beta=0.3", "sft.epochs=3")
    assert (found["dpo"]["seed"], found["dpo"]["beta"], found["sft"]["epochs"], found["sft"]["seed"]) == (5, 0.3, 3, 9)
    assert (root / PARAMS).read_text().count("*seed") == TEXT.count("*seed") - 1


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "true", "4294967296", "null", "[0]"])
def test_a_wrong_seed_is_one_line_and_changes_nothing(root: Path, value: str) -> None:
    with pytest.raises(ParameterError, match=r"^--set seed: expected a whole number from 0 to 4294967295, got "):
        edited(root, f"seed={value}")
    assert (root / PARAMS).read_text() == TEXT


def test_all_values_of_another_file_are_laid_over_this_one(root: Path, tmp_path: Path) -> None:
    edited(root, "seed=3", "dpo.seed=5", "dpo.beta=0.3", "report.policies=[pretrained, sft]")
    text = (root / PARAMS).read_text()
    (root / PARAMS).write_text(TEXT)
    changes = editing.edit_params(root, SECTIONS, editing.build_edits_from_text(root, SECTIONS, text, "run 1"))
    assert parse_yaml_text((root / PARAMS).read_text(), PARAMS) == parse_yaml_text(text, PARAMS)
    assert len([line for line in changes if " -> " in line]) == 4
    assert editing.build_edits_from_text(root, SECTIONS, text, "run 1")[1:] == []


def test_without_a_shared_seed_every_section_has_its_own(root: Path) -> None:
    (root / PARAMS).write_text("\n".join(TEXT.replace("*seed", "0").splitlines()[6:]))
    before = parse_yaml_text((root / PARAMS).read_text(), PARAMS)
    assert "seed" not in before
    checking.parse_and_check_configs(before, SECTIONS, {})
    assert json.dumps(edited(root, "dpo.seed=2")["dpo"]["seed"]) == "2"
