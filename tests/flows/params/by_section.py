"""A params.yaml read section by section: of a text that differs from an earlier one in a section, that section alone is
parsed.
"""

import re
from copy import deepcopy
from functools import lru_cache
from typing import Any

from flows.params import files

SECTION = re.compile(r"^(\w+):.*\n(?:(?:[ #].*)?\n)*", re.MULTILINE)
ANCHOR = re.compile(r"^\w+:[ \t]+&\w+[ \t].*\n", re.MULTILINE)
LONGEST = 200_000  # characters of a text that is certainly within the bounds of files.size

kept = lru_cache(maxsize=4096)(files.parse_yaml_text)
whole = lru_cache(maxsize=64)(files.parse_params.__wrapped__)


@lru_cache(maxsize=256)
def params(text: str) -> Any:
    """What files.parse_params makes of the text."""
    sections = [*SECTION.finditer(text)]
    names = {section[1] for section in sections}
    before = text[: sections[0].start()] if sections else text
    comments = all(line.startswith("#") or not line for line in before.splitlines())
    contiguous = before + "".join(section[0] for section in sections) == text
    if not (comments and contiguous and len(names) == len(sections) and len(text) < LONGEST):
        return whole(text)
    anchors = "".join(ANCHOR.findall(text))
    try:
        return {section[1]: _parsed(anchors, section[0])[section[1]] for section in sections}
    except (files.ParameterError, KeyError, TypeError):
        return whole(text)


def _parsed(anchors: str, section: str) -> Any:
    return kept(section if ANCHOR.match(section) else anchors + section, files.PARAMS)


def parse(text: str, name: str) -> Any:
    """What files.parse_yaml_text makes of a text; the caller may change it."""
    return deepcopy(kept(text, name))
