"""The stage `code`: `python -m tasks.code` writes data/code/STAGE.json for each stage.

It has no section of params.yaml and no metrics, and takes some seconds after an edit below tasks/ or of a name that
chooses code.
"""

import shutil
from pathlib import Path

from tasks.code import registries, stages


def rewrite_code_files(root: Path) -> None:
    """Write the files anew. ValueError where a module is no Python, or params.yaml no YAML."""
    made = stages.build_code_files(stages.read_working_files(root), registries.read_working_choices(root))
    shutil.rmtree(root / stages.FOLDER, ignore_errors=True)
    (root / stages.FOLDER).mkdir(parents=True)
    for path, content in made.items():
        (root / path).write_bytes(content)


if __name__ == "__main__":
    try:
        rewrite_code_files(Path())
    except ValueError as error:
        raise SystemExit(str(error)) from None
