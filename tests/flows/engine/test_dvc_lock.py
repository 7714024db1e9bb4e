"""dvc.lock: with one entry written anew its text is the same as when DVC writes all entries."""

import os
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.serialize import dumps_yaml, loads_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.dvc_lock import NEW, filter_lock_text, read_lock_entries, replace_entry_in_lock_text
from tests.flows.engine.toy import Toy

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAME = st.from_regex(r"[a-z_0-9]{1,6}(@[A-Za-z0-9_-]{1,30})?", fullmatch=True)
ENTRY = st.fixed_dictionaries({"cmd": TEXT | st.lists(TEXT, min_size=1), "params": st.dictionaries(TEXT, VALUES)})


def entry(name: str, content: Any) -> str:
    return dumps_yaml({"stages": {name: content}}).removeprefix("stages:\n")


@settings(max_examples=15)
@given(st.dictionaries(NAME, ENTRY, max_size=4), NAME, ENTRY)
def test_any_entry_is_written_as_dvc_writes_it(stages: dict[str, Any], name: str, content: Any) -> None:
    before = dumps_yaml({"schema": "2.0", "stages": stages}) if stages else NEW
    after = replace_entry_in_lock_text(before, entry(name, content))
    assert after == dumps_yaml({"schema": "2.0", "stages": {**stages, name: content}})


def test_what_else_dvc_keeps_there_stays() -> None:
    datasets = dumps_yaml({"datasets": [{"name": "a", "type": "url"}]})
    begun = f"schema: '2.0'\nstages: {{}}\n{datasets}"
    first = replace_entry_in_lock_text(begun, entry("a", {"cmd": "x"}))
    assert first == f"schema: '2.0'\nstages:\n  a:\n    cmd: x\n{datasets}"
    both = replace_entry_in_lock_text(first, entry("b", {"cmd": "y\n\n  z"}))
    assert loads_yaml(replace_entry_in_lock_text(both, entry("a", {"cmd": "w"}))) == {
        **loads_yaml(begun),
        "stages": {"a": {"cmd": "w"}, "b": {"cmd": "y\n\n  z"}},
    }


@pytest.mark.usefixtures("plain_commands")
def test_while_it_is_written_no_file_is_there_that_git_would_show(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that starts at that moment would be recorded with code that nobody has committed."""
    toy.stage("a")
    seen: list[set[str]] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (seen.append({path.name for path in toy.root.iterdir()}), sync(file)))
    toy.run("a")
    assert seen
    assert set.union(*seen) <= {path.name for path in toy.root.iterdir()}


def test_what_is_recorded_is_read_anew_when_the_file_has_changed(toy: Toy) -> None:
    assert read_lock_entries(toy.root) == {}
    toy.stage("a")
    toy.run()
    first = read_lock_entries(toy.root)["a"]
    assert read_lock_entries(toy.root)["a"] is first, "parsed once"
    toy.set(a=2)
    toy.run()
    assert read_lock_entries(toy.root)["a"]["params"] == {"params.yaml": {"a": 2}}
    written = (toy.root / "dvc.lock").read_text().replace("a: 2", "a: 3")
    (toy.root / "dvc.lock").write_text(written)
    os.utime(toy.root / "dvc.lock", (1, 1))
    assert read_lock_entries(toy.root)["a"]["params"] == {"params.yaml": {"a": 3}}


@pytest.mark.usefixtures("plain_commands")
@pytest.mark.parametrize("stages", [1, 3])
def test_the_file_is_the_one_that_dvc_would_write(toy: Toy, stages: int, tmp_path: Path) -> None:
    for number in range(stages):
        toy.stage(f"s{number}", *([f"s{number - 1}"] if number else []))
    toy.run()
    toy.set(s0={"long": "word " * 60, "deep": [{"x": 1e-3}, None]})
    toy.run()
    text = toy.read("dvc.lock")
    assert text == dumps_yaml(loads_yaml(text))
    assert toy.dvc("status").strip() == "Data and pipelines are up to date."


@settings(max_examples=12)
@given(st.dictionaries(NAME, ENTRY, min_size=1, max_size=5), st.data())
def test_a_part_of_the_file_is_what_it_says_of_some_stages(stages: dict[str, Any], data: st.DataObject) -> None:
    text = dumps_yaml({"schema": "2.0", "stages": stages})
    names = data.draw(st.sets(st.sampled_from(list(stages))))
    part = loads_yaml(filter_lock_text(text, names))["stages"]
    assert part == {name: stages[name] for name in stages if name in names or name == list(stages)[-1]}
