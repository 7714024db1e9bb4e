"""An extension is a folder: without it, its entries and its line of the site's navigation, everything else is green."""

import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests import extensions
from tests.clone import Clone

WITHOUT = (  # what goes through all stages, tables, parameters, pages and modules
    *("tests/test_contract.py", "tests/test_house.py", "tests/test_docs.py", "tests/test_params.py"),
    *("tests/tasks/test_check.py", "tests/tasks/language/test_tables.py", "tests/flows/params", "tests/tasks/code"),
    *("tests/test_documented_commands.py", "tests/flows/test_language_model.py", "tests/flows/test_cli.py"),
)


def without_blocks(text: str, names: Collection[str], indent: str) -> str:
    """YAML without the blocks of these keys at this depth, and without comments that end up above nothing."""
    for name in names:
        block = rf"^{indent}{name}:.*\n(?:(?:{indent} .*)?\n)*"
        text = re.sub(block, "", text, count=1, flags=re.MULTILINE)
    return text


def test_a_block_goes_with_all_its_lines():
    text = "a:\n  b: 1\n\n  c: 2\nd: {}\ne:\n  f: 1\n"
    assert without_blocks(text, ["a"], "") == "d: {}\ne:\n  f: 1\n"
    assert without_blocks(text, ["d", "e"], "") == "a:\n  b: 1\n\n  c: 2\n"
    assert without_blocks(text, ["c"], "  ") == "a:\n  b: 1\n\nd: {}\ne:\n  f: 1\n"


def delete(root: Path, name: str) -> None:
    """Delete an extension, as somebody would who does not need it."""
    folder = f"tasks/extensions/{name}"
    stages = [file.stem for file in (root / folder).glob("*.py") if "\n    main(run" in file.read_text()]
    shutil.rmtree(root / folder)
    pipeline, params, site = root / "dvc.yaml", root / "params.yaml", root / "mkdocs.yml"
    pipeline.write_text(without_blocks(pipeline.read_text(), stages, "  "))
    params.write_text(without_blocks(without_blocks(params.read_text(), stages, ""), stages, "  "))
    lines = site.read_text().splitlines(keepends=True)
    site.write_text("".join(line for line in lines if f"{folder}/" not in line))


@pytest.mark.slow
@pytest.mark.parametrize("name", extensions.NAMES)
def test_without_an_extension_everything_else_is_green(tmp_path, name):
    clone = Clone.of_this(tmp_path, {})
    delete(clone.root, name)
    clone.call(sys.executable, "-m", "tasks.contract")
    clone.call("git", "add", "--all")
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    clone.call("git", *who, "commit", "--quiet", "--message", f"without {name}")
    clone.call(sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow and not gpu", *WITHOUT],
        cwd=clone.root,
        env=clone.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
