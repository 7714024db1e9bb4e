"""The commands that the pages show: their parameters are YAML of a section's key, and those that stand alone are
taken.
"""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from flows.params import editing
from tests import repository
from tests.conftest import SECTIONS

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent
PAGES = repository.files("README.md", "docs/**/*.md")


def shown(page):
    """The settings of each command in a page's blocks of code."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip().startswith("posttrain ") and "--set" in line:
                words = shlex.split(line, comments=True)
                yield [after for word, after in pairwise(words) if word == "--set"]


COMMANDS = [(page, settings) for page in PAGES for settings in shown(page)]


@pytest.mark.parametrize(("page", "settings"), COMMANDS, ids=lambda one: one.stem if isinstance(one, Path) else one[0])
def test_a_shown_setting_can_be_typed(page, settings):
    for one in settings:
        section, name, *_ = editing.parse_setting(one).key
        assert (name if section == "branches" else section) in SECTIONS


def test_the_command_for_an_environment_of_one_s_own_is_taken(tmp_path):
    repository.write_params(tmp_path)
    [settings] = shown(ROOT / "docs/agents.md")
    assert editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting(one) for one in settings])
