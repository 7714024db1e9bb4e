"""Pages on benchmark suites: one for each suite, with every answer to read, and a table of policies by suites."""

from pathlib import Path

from tasks.common.errors import ConfigError
from tasks.extensions.suites import pages, results
from tasks.extensions.suites.configs.benchmark_pages import BenchmarkPagesConfig
from tasks.stage import Metrics, main

METRICS = {
    "POLICY/SUITE/mean": "What stands in the table: the suite's headline metric of the policy.",
    "POLICY/average": "The mean of the policy's columns.",
}


def run(config: BenchmarkPagesConfig, benchmarks: Path, out: Path) -> Metrics:
    """Write the pages; `out` is named after the comparison, and `benchmarks` has a folder for each cell."""
    if out.name not in config.comparisons:
        raise ConfigError(
            f"branches.benchmark_pages: expected an entry {out.name!r}, which the folder of the pages is named after"
        )
    shown = config.comparisons[out.name]
    suite_results = [results.load_suite_result(benchmarks / cell) for cell in shown.cells]
    return pages.write_suite_pages(suite_results, shown.baseline, out)


if __name__ == "__main__":
    main(run, flow="language")
