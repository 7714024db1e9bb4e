"""What extensions read before a run: by a module preflight.py in an extension's folder.

It has SECTIONS, the sections of params.yaml that name files, and `read`, which does for them what `read` of
tasks/preflight/data.py does for others. It may have `large` as well, which yields what tasks/preflight/large.py reads.
"""

from collections.abc import Collection, Iterator, Mapping
from types import ModuleType
from typing import Any

from tasks.extension_modules import import_extension_modules


def import_preflight_modules() -> list[ModuleType]:
    """The modules preflight.py."""
    return import_extension_modules("preflight")


def map_extension_sections_to_modules() -> dict[str, str]:
    """Section -> the module of its Config."""
    return {
        section: f"{module.__package__}.configs.{section}"
        for module in import_preflight_modules()
        for section in module.SECTIONS
    }


def iterate_extension_checks(configs: Mapping[str, Any], stages: Collection[str]) -> Iterator[str]:
    """A line for each source of data of extensions; ConfigError or DataError for the first fault."""
    for module in import_preflight_modules():
        yield from module.read(configs, stages)
