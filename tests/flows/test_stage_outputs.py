"""Whether what stages made is still as it was made."""

import shutil

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
