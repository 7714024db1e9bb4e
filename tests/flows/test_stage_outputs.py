"""Whether what stages made is still as it was made."""

import shutil
from pathlib import Path

import pytest

from flows import stage_outputs
from tests.flows.engine.toy import Toy


def test_what_was_changed_is_named_and_a_collected_cache_is_no_change(toy: Toy) -> None:
    toy.stage("a")
    toy.run()
    assert stage_outputs.list_altered_outputs(toy.root, "a") == []
    shutil.rmtree(toy.root / ".dvc/cache")
    assert stage_outputs.list_altered_outputs(toy.root, "a") == [], "`dvc gc` takes a copy away, not the out"
    (toy.root / "data/a").write_text("mine")
    assert stage_outputs.list_altered_outputs(toy.root, "a") == ["data/a"]
    (toy.root / "data/a").unlink()
    assert stage_outputs.list_altered_outputs(toy.root, "a") == ["data/a"]


@pytest.mark.parametrize(
    ("folder", "data", "made"),
    [
        ("data/b", "data/raw", True),
        ("data/b", "data/a", True),
        ("data/a", "data/b", False),
        ("models", "data/raw", False),
    ],
)
def test_what_an_out_is_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, data: str, made: bool
) -> None:
    """raw -> a -> b, as dvc.lock has it."""
    (tmp_path / data).mkdir(parents=True)

    def entry(dep: str, out: str) -> dict[str, list[dict[str, str]]]:
        return {"deps": [{"path": dep, "md5": "0"}], "outs": [{"path": out, "md5": "1"}]}

    entries = {"a": entry("data/raw", "data/a"), "b": entry("data/a", "data/b")}
    monkeypatch.setattr(stage_outputs, "_read_lock_entries", lambda root: entries)
    assert stage_outputs.is_made_from(tmp_path, Path(folder), Path(data)) is made
    (tmp_path / data).rmdir()
    assert not stage_outputs.is_made_from(tmp_path, Path(folder), Path(data))
