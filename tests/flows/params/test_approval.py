"""A valid params.yaml is not checked twice; a change to anything that the check depends on makes it unknown again."""

from pathlib import Path

import pytest

from flows.params import approval


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "params.yaml").write_text("dpo: {beta: 0.1}\n")
    (tmp_path / "tasks/language/configs").mkdir(parents=True)
    (tmp_path / "tasks/language/configs/dpo.py").write_text("# a Config\n")
    return tmp_path


def test_what_passed_is_known_until_something_changes(root: Path) -> None:
    assert not approval.is_params_approved(root)
    approval.record_params_approval(root)
    assert approval.is_params_approved(root)
    for file, text in (("params.yaml", "dpo: {beta: 0.2}\n"), ("tasks/language/configs/dpo.py", "# stricter\n")):
        before = (root / file).read_text()
        (root / file).write_text(text)
        assert not approval.is_params_approved(root)
        (root / file).write_text(before)
        assert approval.is_params_approved(root)
    (root / "tasks/language/configs/sft.py").write_text("# new\n")
    assert not approval.is_params_approved(root)


@pytest.mark.parametrize("content", [b"", b"\xff", b"0" * 64])
def test_a_torn_stamp_is_none(root: Path, content: bytes) -> None:
    approval.record_params_approval(root)
    (root / approval.STAMP).write_bytes(content)
    assert not approval.is_params_approved(root)


def test_where_it_cannot_be_written_nothing_is_said(root: Path) -> None:
    (root / ".dvc").write_text("no folder")
    approval.record_params_approval(root)
    assert not approval.is_params_approved(root)
