"""What files of benchmark suites hold, read before a run that would read them (tasks/preflight/extensions.py)."""

from collections.abc import Collection, Iterator
from pathlib import Path

from tasks.extensions.suites import reading
from tasks.preflight.data import Configs, is_stage_output

SECTIONS = ("benchmarks",)


def read(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """How many problems each suite has; a suite or a commit that cannot be is a fault, of a hub's set no more is
    known.
    """
    config = configs["benchmarks"]
    cells = config.cells.items() if "benchmarks" in stages else ()
    cells = cells or [(name, cell) for name, cell in config.cells.items() if f"benchmarks@{name}" in stages]
    for name, cell in cells:
        reading.get_suite(cell.suite)
        if cell.revision is not None:
            reading.check_suite_revision(cell.suite, cell.revision)
        if is_stage_output(config.folder):
            continue
        if cell.revision is None:
            count = len(reading.load_suite_problems(cell.suite, Path(config.folder), None, config.problems))
            yield f"benchmarks: {name}: {count:,} problems of {cell.suite} in {config.folder}"
        reading.load_suite_examples(cell.suite, Path(config.folder), cell.shots)
