"""Reviews with a sentiment, generated or read: what a language model of reviews, two classifiers and steered policies
learn from.

The other stages read the parts as other people's data: `corpus`, `problems` and `solutions` name their folders in
params.yaml (tasks/extensions/reviews/presets/reviews.yaml).
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.extensions.reviews import film_reviews, labelled_reviews
from tasks.extensions.reviews.configs.reviews import ReviewsConfig
from tasks.extensions.reviews.tables.reviews import PARTS, Reviews
from tasks.language.data.rows import fetch_hub_rows, read_files
from tasks.stage import Metrics, main

FRUITLESS = 1000  # draws in a row that repeat an opening, after which the grammar is taken to be used up
METRICS = {
    **{part: f"The number of reviews of the part {part}." for part in PARTS},
    "positive": "The share of all reviews that are positive, from 0 to 1.",
    "repeated": "The number of rows of files or of a hub that were left out, since an earlier one opens in the "
    "same words.",
    "short": "The number of rows of files or of a hub that were left out, since they have no more "
    "words than an opening.",
}


def run(config: ReviewsConfig, raw: Path, out: Path) -> Metrics:
    """Write reviews.parquet (schema Reviews), and the parts as the stages read them: corpus/, prompts/ and
    labelled/.
    """
    counts: dict[str, float] = {}
    if config.source == "generated":
        rows = generate_reviews(config)
    else:
        rows, counts = load_unique_reviews(config, raw)
    parts = assign_review_parts(config, rows)
    table = pd.DataFrame(parts)
    tables.write_table(Reviews, table, out / "reviews.parquet")
    write_part_files(parts, out)
    tracking.record_table(table.head(20), "reviews.json")
    sizes = {part: int((table["part"] == part).sum()) for part in PARTS}
    return {**sizes, "positive": float(table["positive"].mean()), **counts}


def generate_reviews(config: ReviewsConfig) -> list[Record]:
    """As many reviews as all parts have, no opening twice."""
    rng = random.Random(config.seed)
    wanted = sum(list_part_sizes(config))
    by_opening: dict[str, Record] = {}
    fruitless = 0
    while len(by_opening) < wanted:
        review = film_reviews.generate_review(rng, config.positive_share, config.mixed, config.negated)
        fruitless = fruitless + 1 if review.opening in by_opening else 0
        if fruitless > FRUITLESS:
            raise ConfigError(
                f"params.yaml: reviews: the grammar has too few openings for {wanted} reviews; lower the counts"
            )
        by_opening.setdefault(review.opening, {"review_id": f"generated-{len(by_opening)}", **review._asdict()})
    return list(by_opening.values())


def load_unique_reviews(config: ReviewsConfig, raw: Path) -> tuple[list[Record], dict[str, float]]:
    """The reviews of files or of a hub in random order, and how many were left out (METRICS)."""
    rows = read_or_fetch_reviews(config, raw)
    long = [row for row in rows if row["continuation"]]
    unique = {row["opening"]: row for row in reversed(long)}
    kept = [row for row in long if unique[row["opening"]] is row]
    random.Random(config.seed).shuffle(kept)
    return kept, {"repeated": len(long) - len(kept), "short": len(rows) - len(long)}


def read_or_fetch_reviews(config: ReviewsConfig, raw: Path) -> list[Record]:
    """All rows, cut behind the opening; DataError naming file, line and column."""
    source = (
        read_files(raw)
        if config.source == "files"
        else fetch_hub_rows(config.hub_id, config.hub_config, config.hub_revision, config.hub_split)
    )
    return labelled_reviews.parse_labelled_reviews(
        source, config.text_column, config.label_column, config.opening_words
    )


def list_part_sizes(config: ReviewsConfig) -> list[int]:
    """How many reviews each part of PARTS asks for."""
    return [getattr(config, part) for part in PARTS]


def assign_review_parts(config: ReviewsConfig, rows: list[Record]) -> list[Record]:
    """Each row with its part: as many as asked for, or in these proportions where there are fewer."""
    wanted = sum(list_part_sizes(config))
    ends = [end * min(len(rows), wanted) // wanted for end in accumulate(list_part_sizes(config), initial=0)]
    assigned = []
    for part, (start, end) in zip(PARTS, pairwise(ends), strict=True):
        if start == end:
            raise DataError(f"reviews: {len(rows)} different openings leave none for the part {part}; expected more")
        assigned += [{**row, "part": part} for row in rows[start:end]]
    return assigned


def write_part_files(rows: list[Record], out: Path) -> None:
    """The parts as files of JSON lines in the forms that stages read."""
    files: dict[str, tuple[str, Callable[[Record], Record]]] = {
        "corpus": ("corpus/train", lambda row: {"text": f"{row['opening']} {row['continuation']}"}),
        "train": ("prompts/train", build_prompt_completion),
        "test": ("prompts/test", build_prompt_completion),
        "reward": ("labelled/reward", lambda row: {**build_prompt_completion(row), "label": row["positive"]}),
    }
    for part, (name, form) in files.items():
        file = out / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(iterate_json_lines(form(row) for row in rows if row["part"] == part)))


def build_prompt_completion(row: Record) -> Record:
    """The opening as a prompt, the rest as its completion."""
    return {"prompt": row["opening"], "completion": row["continuation"]}


def iterate_json_lines(rows: Iterator[Record]) -> Iterator[str]:
    """Rows as lines of JSON."""
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main(run, flow="language")
