"""The section `benchmark_pages` of params.yaml."""

from typing import Annotated

from pydantic import Field

from tasks.common.config import Branch, Config, Distinct


class CellComparison(Config):
    """Cells that are shown together: a page for each of their suites, and a table with a column for each."""

    cells: Annotated[list[Branch], Field(min_length=1), Distinct]  # keys of branches.benchmarks
    baseline: str  # the policy that the others are compared with


class BenchmarkPagesConfig(Config):
    """What is shown together."""

    branched_by = "comparisons"

    comparisons: dict[Branch, CellComparison]  # by name
