"""Find what extensions add to the core: the modules of one name in the folders of tasks/extensions.

An extension is a folder, and nothing lists the folders, so deleting one leaves nothing behind. CONTRIBUTING.md
("Add an extension") has the names of the modules that the core looks for.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

HOME = Path(__file__).parent / "extensions"


def import_extension_modules(name: str) -> list[ModuleType]:
    """Import tasks/extensions/EXTENSION/NAME.py of each extension that has one, in the order of the folders' names."""
    folders = sorted(file.parent.name for file in HOME.glob(f"*/{name}.py"))
    return [import_module(f"tasks.extensions.{folder}.{name}") for folder in folders]
