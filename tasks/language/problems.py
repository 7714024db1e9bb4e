"""Problems with worked solutions: generated, or read from files or a hub, in GSM8K's form (arXiv:2110.14168), MATH's
and others.
"""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.config import build_settings
from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.language.configs.problems import ProblemsConfig
from tasks.language.data import forms, problem_forms, word_problems
from tasks.language.data.rows import SUFFIXES, Row, fetch_hub_rows, read_file
from tasks.language.data.word_problems import Habits, ProblemKind
from tasks.language.tables.problems import Demonstrations, Problems
from tasks.stage import Metrics, main

SPLITS = ("train", "validation", "test")
LARGER = 10  # by how much the numbers of the set `larger` exceed the others
FRUITLESS = 100_000  # draws in a row without a new problem
METRICS = {
    "train": "The number of training problems.",
    "validation": "The number of validation problems, by which temperatures and policies are chosen.",
    "test": "The number of test problems.",
    "repeated": "The number of rows of files or of a hub that were left out, since they repeat a "
    "problem of their split.",
    "leaked": "The number of training rows of files or of a hub that were left out, since the test split asks them.",
}


def run(config: ProblemsConfig, raw: Path, out: Path) -> Metrics:
    """Write train, validation and test tables (schema Problems) that share no problem, and demonstrations for train."""
    counts: dict[str, float] = {}
    if config.source == "generated":
        splits = generate_problem_splits(config)
    else:
        of_hub = config.source == "hub"
        split_rows = (
            fetch_hub_split(config, name) if of_hub else read_file(get_split_file_path(raw, name))
            for name in ("train", "test")
        )
        splits, counts = split_problems(config, *map(problem_forms.parse_problems, split_rows))
    sets = {
        **splits,
        **(generate_other_kind_sets(config) if config.source == "generated" and config.other_kinds else {}),
    }
    for name, part in sets.items():
        tables.write_table(Problems, pd.DataFrame(problem_forms.drop_empty_columns(part)), out / f"{name}.parquet")
    for name in ("train", "validation"):
        tables.write_table(
            Demonstrations, build_demonstrations(config, splits[name]), out / f"{name}_demonstrations.parquet"
        )
    tracking.record_table(pd.DataFrame(splits["train"][:20]), "problems.json")
    return {name: len(part) for name, part in splits.items()} | counts


def build_demonstrations(config: ProblemsConfig, problems: list[Record]) -> pd.DataFrame:
    """What SFT may imitate: the worked solutions; the generated ones in different manners, as people write them."""
    rng = random.Random(config.seed)
    rows = []
    for row in problems:
        response = row["solution"]
        if config.source == "generated":
            response = word_problems.restyle_solution_by_habits(rng, response, build_settings(config.habits, Habits))
        if response:
            rows.append(forms.build_demonstration_row(row, response))
    return pd.DataFrame(rows, columns=list(Demonstrations.to_schema().columns), dtype=str)


def generate_problem_splits(config: ProblemsConfig) -> dict[str, list[Record]]:
    """Draw the splits; a chain of arithmetic belongs to one split, so no split holds another's problem in new words.

    No two validation or test problems have one chain.
    """
    rng = random.Random(config.seed)
    weights = (config.one_step, config.two_steps, config.three_steps)
    sizes = {name: getattr(config, name) for name in SPLITS}
    rows: dict[str, list[Record]] = {name: [] for name in SPLITS}
    home: dict[tuple[str, ...], str] = {}
    seen: set[object] = set()
    fruitless = 0
    while any(len(rows[name]) < size for name, size in sizes.items()):
        problem = word_problems.generate_word_problem(
            rng, ProblemKind(rng.choices((1, 2, 3), weights)[0], config.largest)
        )
        name = home.setdefault(problem.chain, rng.choices(SPLITS, list(sizes.values()))[0])
        key = problem.question if name == "train" else problem.chain
        fruitless = _count_and_limit_fruitless_draws(fruitless)
        if len(rows[name]) < sizes[name] and key not in seen:
            fruitless = 0
            seen.add(key)
            rows[name].append(_make_problem_row(f"{name}-{len(rows[name])}", problem))
    return rows


def generate_other_kind_sets(config: ProblemsConfig) -> dict[str, list[Record]]:
    """Small sets of another kind than what is trained on (OTHER_KINDS), each with as many chains as problems."""
    rng = random.Random(config.seed)
    largest = config.largest
    kinds = {
        "longer": [ProblemKind(steps, largest) for steps in (4, 5)],
        "larger": [ProblemKind(steps, largest + LARGER, above=largest) for steps in (2, 3)],
        "words": [ProblemKind(steps, largest, words=word_problems.OTHER_WORDS) for steps in (2, 3)],
        "sums": [ProblemKind(steps, largest, unseen=True) for steps in (2, 3)],
    }
    sets: dict[str, list[Record]] = {}
    for name, of_name in kinds.items():
        problems: dict[tuple[str, ...], word_problems.WordProblem] = {}
        draws = 0
        while len(problems) < config.other_kinds:
            problem = word_problems.generate_word_problem(rng, of_name[len(problems) % len(of_name)])
            draws = 0 if problem.chain not in problems else _count_and_limit_fruitless_draws(draws)
            problems.setdefault(problem.chain, problem)
        sets[name] = [
            _make_problem_row(f"{name}-{number}", problem) for number, problem in enumerate(problems.values())
        ]
    return sets


def _count_and_limit_fruitless_draws(fruitless: int) -> int:
    """One draw in a row more without a new problem; ConfigError where there are too many."""
    if fruitless == FRUITLESS:
        raise ConfigError(
            "params.yaml: problems: too few different problems exist; raise problems.largest or lower the counts"
        )
    return fruitless + 1


def _make_problem_row(problem_id: str, problem: word_problems.WordProblem) -> Record:
    return {
        "problem_id": problem_id,
        "question": problem.question,
        "solution": problem.solution,
        "answer": str(problem.answer),
        "steps": len(problem.chain),
    }


def get_split_file_path(raw: Path, name: str) -> Path:
    """The file of a split, of whatever type it is."""
    candidates = [raw / f"{name}{suffix}" for suffix in SUFFIXES]
    return next((file for file in candidates if file.is_file()), candidates[0])


def fetch_hub_split(config: ProblemsConfig, name: str) -> Iterator[Row]:
    """One split of the hub data set that params.yaml names."""
    return fetch_hub_rows(config.hub_id, config.hub_config, config.hub_revision, name)


def split_problems(
    config: ProblemsConfig, train: list[Record], test: list[Record]
) -> tuple[dict[str, list[Record]], dict[str, float]]:
    """Take validation from the training rows at random; drop repeated prompts, and those that the test rows ask.

    Returns the splits, and how many rows were dropped (METRICS).
    """
    rng = random.Random(config.seed)
    source = config.hub_id if config.source == "hub" else config.path
    kept_test = _filter_unique_problems(test, ())
    unique = _filter_unique_problems(train, ())
    pool = _filter_unique_problems(unique, map(problem_forms.build_problem_key, kept_test))
    repeated = len(train) - len(unique) + len(test) - len(kept_test)
    counts: dict[str, float] = {"repeated": repeated, "leaked": len(unique) - len(pool)}
    rng.shuffle(pool)
    if len(pool) <= config.validation:
        raise DataError(
            f"{source}: {len(pool)} training problems leave none beside problems.validation = {config.validation}"
        )
    if not kept_test:
        raise DataError(f"{source}: there are no test problems")
    validation = pool[: config.validation]
    rest = pool[config.validation :]
    return {"train": rest[: config.train], "validation": validation, "test": kept_test[: config.test]}, counts


def _filter_unique_problems(rows: Iterable[Record], held_out: Iterable[tuple[str, ...]]) -> list[Record]:
    """The rows without those that repeat an earlier one, or a prompt that is `held_out`."""
    seen = {*held_out}
    kept = []
    for row in rows:
        if (key := problem_forms.build_problem_key(row)) not in seen:
            seen.add(key)
            kept.append(row)
    return kept


if __name__ == "__main__":
    main(run)
