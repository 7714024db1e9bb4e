"""`python -m tasks.extensions.suites.evaluation MODEL --suite NAME,.. --out DIR`: the stage `benchmarks` for one model,
without a pipeline. `posttrain evaluate --suite` starts it.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks import evaluation
from tasks.common import tracking
from tasks.common.errors import ConfigError
from tasks.evaluation import NUMBERS
from tasks.extensions.suites import benchmarks, evaluating, pages, reading, results
from tasks.extensions.suites.configs.benchmarks import BenchmarksConfig, Cell
from tasks.stage import read_section


def build_config_and_suite_cells(arguments: argparse.Namespace) -> tuple[BenchmarksConfig, dict[str, Cell]]:
    """The section `benchmarks` with what the command line says otherwise, and a cell for each of the suites NAME or
    NAME@COMMIT.
    """
    changes = {name: value for name in NUMBERS if (value := getattr(arguments, name)) is not None and name != "samples"}
    cells = {}
    for named in arguments.suite.split(","):
        name, _, revision = named.strip().partition("@")
        if reading.get_suite(name) and name in cells:
            raise ConfigError(f"--suite {arguments.suite}: expected each suite once, got {name} twice")
        cells[name] = Cell(
            policy=arguments.model,
            suite=name,
            revision=revision or None,
            shots=arguments.shots,
            samples=arguments.samples or 0,
        )
    section = read_section("benchmarks", BenchmarksConfig).model_dump() | changes
    return BenchmarksConfig.model_validate_json(json.dumps(section)), cells


def run_suites(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Ask the suites, write each one's tables to its folder in `arguments.out`, and return its measures by its name."""
    config, cells = build_config_and_suite_cells(arguments)
    folder = arguments.suites or Path(config.folder)
    suites = {
        name: (
            reading.load_suite_problems(name, folder, cell.revision, config.problems),
            reading.load_suite_examples(name, folder, cell.shots),
        )
        for name, cell in cells.items()
    }
    tracking.announce_phase(f"loading {arguments.model}")
    loaded = evaluation.load_or_fetch_models(arguments.model, arguments.revision, None)
    measures = {}
    for name, (problems, examples) in suites.items():
        tracking.announce_phase(name)
        measures[name] = evaluating.evaluate_on_suite(
            name,
            Path(arguments.model).name,
            problems,
            examples,
            loaded.policy,
            loaded.tokenizer,
            benchmarks.build_answer_sampling(config, cells[name]),
            config.pass_at,
            arguments.out / name,
        )
    pages.write_suite_pages(
        [results.load_suite_result(arguments.out / name) for name in measures], "", arguments.out / "pages"
    )
    (arguments.out / "benchmarks.json").write_text(json.dumps(measures, indent=1) + "\n")
    return measures


def format_suite_lines(measures: Mapping[str, Any]) -> Iterator[str]:
    """The columns of a table, one on a line: the suite, its headline metric in percent with its interval, and their
    average.
    """
    for name, (metric, mean) in evaluating.compute_headline_columns(measures).items():
        interval = measures.get(name, {}).get(metric)
        bounds = f"  ({100 * interval['low']:.1f} to {100 * interval['high']:.1f})" if interval else ""
        yield f"{name:<24}{100 * mean:8.1f} %{bounds}  {metric.removeprefix('right_').replace('_', ' ')}"


def parse_suite_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = evaluation.build_evaluation_parser("tasks.extensions.suites.evaluation", __doc__ or "")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--suites", type=Path)
    parser.add_argument("--shots", type=int, default=0)
    return parser.parse_args(arguments)


def main() -> None:
    """Exit code 2 with one line on standard error where the model or a suite cannot be used."""
    arguments = parse_suite_arguments(sys.argv[1:])
    metrics = arguments.out / "benchmarks.json"
    measures = evaluation.run_recorded_evaluation(run_suites, arguments, arguments.suite, metrics)
    count = f"{len(measures)} suite{'s' if len(measures) != 1 else ''}"
    print(f"{arguments.model}: {count}, 95 % intervals over problems")
    print("\n".join(format_suite_lines(measures)))
    print(f"all measures: {metrics}; every answer to read: {arguments.out / 'pages/benchmarks.html'}")


if __name__ == "__main__":
    main()
