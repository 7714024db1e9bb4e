"""`python -m tasks.seeds --out FOLDER SEED=FOLDER ..`: the report of the language flow over several seeds, as
seeds.html and seeds.md.

Each seed's folder has what its pipeline left: params.yaml, data/evaluate/POLICY, and the reward model's curve.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tasks.common import pages, tables
from tasks.common.errors import ConfigError
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting import comparing, scoreboard
from tasks.language.reporting.differences import read_measures
from tasks.language.reporting.over_seeds import (
    Measured,
    average_results_over_seeds,
    average_seeds_with_problem_intervals,
    join_score_tables,
)
from tasks.language.reporting.scoreboard import Results
from tasks.language.tables.evaluation import Generations
from tasks.seeds import pictures
from tasks.seeds.sentences import format_seed_conclusions
from tasks.stage import read_section

EVALUATIONS = Path("data/evaluate")
REWARD_MODEL = Path("data/reward_model")


@dataclass(frozen=True)
class Seed:
    """One seed's results, the measures of each policy, and the curves of its stages."""

    results: Results
    measured: Measured
    curves: Mapping[str, pd.DataFrame]


def read_seed_folder(folder: Path) -> Seed:
    """What a seed's pipeline left in its folder."""
    config = read_report_section(folder)
    evaluations = folder / EVALUATIONS
    folders: dict[str, Path] = {name: evaluations / name for name in config.policies}
    answers = {
        name: tables.read_table(Generations, policy_folder / "generations.parquet")
        for name, policy_folder in folders.items()
    }
    metrics = {name: comparing.read_evaluation_metrics(policy_folder) for name, policy_folder in folders.items()}
    return Seed(
        comparing.compare_policies(config, evaluations, answers, metrics),
        {name: read_measures(policy_folder / "measures.parquet") for name, policy_folder in folders.items()},
        comparing.load_training_curves(config, folders, folder / REWARD_MODEL),
    )


def read_report_section(folder: Path) -> ReportConfig:
    """The section `report` of a seed's params.yaml."""
    config = read_section("report", ReportConfig, folder / "params.yaml")
    assert isinstance(config, ReportConfig)
    return config


def write_multi_seed_report(folders: Mapping[str, Path], out: Path) -> str:
    """Write the pages of at least two seeds to `out`; the sentence that they begin with."""
    config = read_report_section(next(iter(folders.values())))
    seeds = {name: read_seed_folder(folder) for name, folder in folders.items()}
    each = [seed.results for seed in seeds.values()]
    merged = average_results_over_seeds(each)
    problems = average_seeds_with_problem_intervals(each, [seed.measured for seed in seeds.values()])
    drawn = pictures.render_overview_figures({name: seed.results for name, seed in seeds.items()}, merged, problems)
    learned = pictures.render_seed_curves({name: seed.curves for name, seed in seeds.items()})
    first, *more = format_seed_conclusions(merged, problems, config.best_by, [*folders])
    made = join_score_tables(merged, problems)
    view = {
        "sentence": first,
        "more": more,
        "seeds": [*folders],
        "problems": len(next(iter(next(iter(seeds.values())).measured.values()))),
        "baseline": config.baseline,
        "overview": [*drawn],
        "learning": [*learned],
        "tables": made,
        "meaning": scoreboard.collect_metric_meanings(merged),
    }
    pages.write_report_pages(Path(__file__).parent / "templates", "seeds", view, {**drawn, **learned}, out)
    return first


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tasks.seeds", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("seeds", nargs="+", metavar="SEED=FOLDER")
    options = parser.parse_args(arguments)
    folders = {text.partition("=")[0]: Path(text.partition("=")[2]) for text in options.seeds}
    if len(folders) < 2:
        print("tasks.seeds: expected at least two seeds", file=sys.stderr)
        return 2
    try:
        print(write_multi_seed_report(folders, options.out))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
