"""What files of reviews hold, read before a run that would read them (tasks/preflight/extensions.py)."""

from collections.abc import Collection, Iterator
from pathlib import Path

from tasks.extensions.reviews import reviews
from tasks.preflight.data import Configs, should_read_before_run
from tasks.preflight.large import LargeSource

SECTIONS = ("reviews",)


def read(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """How many reviews there are, if `reviews` is among the `stages`, which will run."""
    config = configs["reviews"]
    if "reviews" in stages and config.source == "files" and should_read_before_run(config.path):
        rows, _ = reviews.load_unique_reviews(config, Path(config.path))
        reviews.assign_review_parts(config, rows)
        positive = sum(row["positive"] for row in rows)
        yield f"reviews: {len(rows):,} from {config.path}, {positive:,} of them positive"


def large(configs: Configs) -> Iterator[LargeSource]:
    """The files, of which the first rows are read where they are too large."""
    config = configs["reviews"]
    if config.source == "files":
        yield LargeSource("reviews", Path(config.path), lambda path: reviews.read_or_fetch_reviews(config, path))
