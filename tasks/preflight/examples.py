"""What stages would learn from and be asked: the user's files where they can be read, else what an earlier run has
made.

A file is read anew, since a table that lies there may have been made from another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.common import tables
from tasks.common.tables import Record, Table
from tasks.language import demonstrations, mixture
from tasks.language.data import imported_pairs, test_sets
from tasks.language.data.rows import read_files
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.preflight.data import is_small_enough_to_read, should_read_before_run

Configs = Mapping[str, Any]  # section -> its Config
PROBLEMS = Path("data/problems")


def load_demonstration_examples(configs: Configs) -> list[Record]:
    """Rows of Demonstrations to learn from; none where nothing has made them yet. So in all functions here."""
    config = configs["demonstrations"]
    if config.source in ("files", "people") and should_read_before_run(config.path):
        return demonstrations.split_demonstrations(
            config, demonstrations.read_or_fetch_demonstrations(config, Path(config.path))[0], config.path
        )[0]
    return _read_existing_table(Demonstrations, Path("data/demonstrations/train.parquet"))


def load_pair_examples(configs: Configs) -> list[Record]:
    """Rows of Comparisons to learn from."""
    config = configs["preferences"]
    if config.source == "files" and should_read_before_run(config.path):
        return imported_pairs.parse_and_split_pairs(
            read_files(Path(config.path)), config.test_share, config.seed, config.path
        ).train
    return _read_existing_table(Comparisons, Path("data/preferences/train.parquet"))


def load_prompt_examples(configs: Configs) -> list[Record]:
    """Rows of Prompts that the mixture would draw, held-out ones too; without problems yet, those of its other data
    sets.
    """
    config = configs["mixture"]
    files = [str(Path(config.path) / dataset.location) for dataset in config.datasets if dataset.source == "file"]
    if any(dataset.source == "hub" for dataset in config.datasets) or not all(map(should_read_before_run, files)):
        return [
            row
            for name in ("prompts", "validation")
            for row in _read_existing_table(Prompts, Path(f"data/mixture/{name}.parquet"))
        ]
    have_problems = (PROBLEMS / "train.parquet").is_file()
    datasets = [dataset for dataset in config.datasets if have_problems or dataset.source == "file"]
    if not datasets:
        return []
    held_out = mixture.read_held_out_prompt_keys(PROBLEMS) if have_problems else set()
    rows, validation, _ = mixture.draw_prompt_mixture(
        config.model_copy(update={"datasets": datasets}), held_out, PROBLEMS, Path(config.path)
    )
    return [*rows, *validation]


def load_problem_examples() -> list[Record]:
    """Validation problems of the stage `problems`."""
    return _read_existing_table(Problems, PROBLEMS / "validation.parquet")


def load_test_examples(configs: Configs) -> list[Record]:
    """The test problems (rows of Problems)."""
    config = configs["evaluate"]
    path = {"files": Path(config.path), "problems": PROBLEMS / "test.parquet"}.get(config.source)
    if path is None or not path.exists() or not is_small_enough_to_read(path):
        return []
    return tables.list_records(test_sets.read_or_fetch_test_problems(config, PROBLEMS, Path(config.path)))


def iterate_test_leakage_lines(
    shown: Sequence[Record], pairs: Sequence[Record], prompts: Sequence[Record], tests: Sequence[Record]
) -> Iterator[str]:
    """A line that says how many of the test prompts are trained on, by where; none where nothing is known of either."""
    test_questions = {row["question"].strip() for row in tests}
    learned = {
        "demonstrations": {question for row in shown for question in demonstrations.list_user_questions(row)},
        "preferences": {row["prompt"].strip() for row in pairs},
        "mixture": {row["question"].strip() for row in prompts},
    }
    counts = [f"{len(test_questions & questions):,} in {name}" for name, questions in learned.items() if questions]
    if test_questions and counts:
        yield f"leakage: of {len(test_questions):,} test prompts there are {', '.join(counts)}"


def _read_existing_table(schema: type[Table], file: Path) -> list[Record]:
    return tables.list_records(tables.read_table(schema, file)) if file.is_file() else []
