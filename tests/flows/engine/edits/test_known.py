"""The code of this repository that reads its own text: each piece has been looked at as it is now."""

import ast

import pytest
from ruamel.yaml import YAML

from flows.engine.edits import known
from flows.engine.edits.comparing import Code
from tests.flows.toy_pipeline import REPOSITORY


@pytest.mark.parametrize("name", known.HARMLESS)
def test_what_was_looked_at_is_there_as_it_was(name: str) -> None:
    place = known.HARMLESS[name][1].partition(":")[0]
    tree = ast.parse((REPOSITORY / place).read_bytes())
    found = [known.digest(node) for node in ast.walk(tree) if known.name(node) == name]
    what = f"{name} of {place} has changed. Does what a stage writes still not depend on what it reads? Then note its hash {found}"
    assert known.HARMLESS[name][0] in found, what


def test_no_code_of_a_stage_reads_its_own_text_or_docstrings() -> None:
    """Or else an edit of a comment in any of its modules would run it again."""
    stages = YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"]
    modules: dict[str, bytes] = {}
    for stage in stages.values():
        paths = [path for path in stage.get("do", stage)["deps"] if str(path).endswith(".py")]
        modules |= {path: (REPOSITORY / path).read_bytes() for path in paths if path not in modules}
    assert len(modules) > 100
    code = Code(modules)
    assert code.reads_source() == ""
    assert code.docstrings_go, "or else an edit of a docstring would"


def test_annotations_of_the_stages_functions_may_change() -> None:
    stages = YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"]
    kept = []
    for name, stage in stages.items():
        paths = [path for path in stage.get("do", stage)["deps"] if str(path).endswith(".py")]
        if not Code({path: (REPOSITORY / path).read_bytes() for path in paths}).annotations_go:
            kept.append(name)
    assert len(kept) <= 2, kept
