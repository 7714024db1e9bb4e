"""A policy's answers to one benchmark suite, scored as the suite's peer scores them
(tasks/extensions/suites/registry.py).
"""

from pathlib import Path

from tasks.common import models
from tasks.common.errors import ConfigError
from tasks.extensions.suites import evaluating, reading
from tasks.extensions.suites.answering import AnswerSampling
from tasks.extensions.suites.configs.benchmarks import BenchmarksConfig, Cell
from tasks.stage import Metrics, main

METRICS = evaluating.METRICS


def run(config: BenchmarksConfig, policy: Path, suites: Path, out: Path) -> Metrics:
    """Ask, score and summarise; `out` is named after its cell, and gets the tables that the pages read."""
    cell = get_cell(config, out.name)
    problems = reading.load_suite_problems(cell.suite, suites, cell.revision, config.problems)
    examples = reading.load_suite_examples(cell.suite, suites, cell.shots)
    model = models.load_model(policy)
    tokenizer = models.load_tokenizer(policy)
    metrics = evaluating.evaluate_on_suite(
        cell.suite,
        cell.policy,
        problems,
        examples,
        model,
        tokenizer,
        build_answer_sampling(config, cell),
        config.pass_at,
        out,
    )
    return metrics


def get_cell(config: BenchmarksConfig, name: str) -> Cell:
    """The entry of this name."""
    if name not in config.cells:
        raise ConfigError(
            f"branches.benchmarks: expected an entry {name!r}, which the folder of the results is named after"
        )
    return config.cells[name]


def build_answer_sampling(config: BenchmarksConfig, cell: Cell) -> AnswerSampling:
    """How the policy answers."""
    return AnswerSampling(
        config.seed,
        cell.samples,
        config.temperature,
        config.max_new_tokens,
        config.batch_size,
        config.strip_thinking,
    )


if __name__ == "__main__":
    main(run, flow="language")
