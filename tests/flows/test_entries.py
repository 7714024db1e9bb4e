"""Dictionaries of params.yaml whose keys the user chooses: entries set, added and replaced."""

import json
from pathlib import Path

import pytest
from dvc.utils.serialize import parse_yaml

from flows.params import editing
from flows.params.files import ParameterError
from tasks.common.config import Branch, Config, Name

PARAMS = """\
data:
  sets:            # the user's own names
    one: {kind: a, steps: 3}   # first
    two: {kind: b, steps: 4}
  seed: 0
score: {policies: {p: {set: one}}}
"""


class Set(Config):
    kind: str
    steps: int


class Data(Config):
    sets: dict[Branch, Set]
    seed: int


class Policy(Config):
    set: str


class Score(Config):
    policies: dict[Name, Policy]


TYPES = {"data": Data, "score": Score}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Params with dictionaries whose keys the user chooses."""
    (tmp_path / "params.yaml").write_text(PARAMS)
    return tmp_path


def edit(root: Path, *arguments: str) -> list[str]:
    return editing.edit_params(root, TYPES, [editing.parse_setting(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("arguments", "old", "new"),
    [
        (["data.sets.one.steps=5"], "steps: 3", "steps: 5"),
        (["data.sets.one={kind: c, steps: 1}"], "{kind: a, steps: 3}", "{kind: c, steps: 1}"),
        (["data.sets.new={kind: c, steps: 1}"], "  seed: 0", "    new: {kind: c, steps: 1}\n  seed: 0"),
        (["score.policies.q={set: two}"], "p: {set: one}}", "p: {set: one}, q: {set: two}}"),
        (
            ["data.sets={two: {kind: c, steps: 1}}", "score.policies.p.set=two"],
            PARAMS[PARAMS.index("one:") :],
            "{two: {kind: c, steps: 1}}\n  seed: 0\nscore: {policies: {p: {set: two}}}\n",
        ),
    ],
)
def test_entries_are_changed_added_and_replaced(root: Path, arguments: list[str], old: str, new: str) -> None:
    edit(root, *arguments)
    assert (root / "params.yaml").read_text() == PARAMS.replace(old, new)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("data.sets.on.steps=5", "--set data.sets.on: no such entry (did you mean one?)"),
        ("data.sets.zzz.steps=5", "--set data.sets.zzz: no such entry (there are one, two)"),
        ("data.sets.one.stpes=5", "--set data.sets.one.stpes: unknown parameter; did you mean data.sets.one.steps?"),
        ("data.sets.one.steps=x", "--set data.sets.one.steps: expected a whole number, got 'x'"),
        (
            "data.sets={../A: {kind: c, steps: 1}}",
            "--set data.sets: expected text of at most 100 letters, digits, _ and -, got '../A'",
        ),
        ("data.sets.new={kind: c}", "--set data.sets.new.steps: missing; expected a whole number"),
    ],
)
def test_a_wrong_entry_is_one_line_and_leaves_the_file(root: Path, argument: str, message: str) -> None:
    with pytest.raises(ParameterError) as error:
        edit(root, argument)
    assert str(error.value) == message
    assert (root / "params.yaml").read_text() == PARAMS


def test_a_long_dictionary_is_shown_by_its_names_and_a_change_at_its_end_is_one(root: Path) -> None:
    many = {name: {"kind": "a" * 20, "steps": 1} for name in ("one", "two")}
    assert edit(root, f"data.sets={json.dumps(many)}")[0].endswith(" -> {one, two}")
    many["two"]["steps"] = 2
    assert edit(root, f"data.sets={json.dumps(many)}") == ["data.sets: {one, two} -> {one, two}"]


@pytest.mark.parametrize("flow", [True, False])
def test_a_preset_replaces_such_a_dictionary_as_a_whole_and_merges_sections(root: Path, flow: bool) -> None:
    (root / "presets").mkdir()
    sets = (
        "{three: {kind: c, steps: 5}}\n"
        if flow
        else "\n      three:  # alone\n        kind: c\n        # and\n        steps: 5\n"
    )
    (root / "presets/other.yaml").write_text(f"data:\n    sets: {sets}score: {{policies: {{q: {{set: three}}}}}}\n")
    editing.edit_params(root, TYPES, editing.load_preset_edits(root, TYPES, "other"))
    text = (root / "params.yaml").read_text()
    assert parse_yaml(text, "params.yaml") == {
        "data": {"sets": {"three": {"kind": "c", "steps": 5}}, "seed": 0},
        "score": {"policies": {"q": {"set": "three"}}},
    }
    assert text.startswith("data:\n  sets:            # the user's own names\n")
    assert ("three:  # alone\n      kind: c\n      # and\n      steps: 5" in text) != flow
    assert editing.edit_params(root, TYPES, editing.load_preset_edits(root, TYPES, "other")) == []
