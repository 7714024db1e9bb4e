"""Text for pretraining: arithmetic facts, stories with quantities, and problems with solutions in loose forms.

The answer format that SFT teaches (`#### N` after worked lines) does not occur, and only training problems are used.
"""

import random
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.documents import Documents
from tasks.language.configs.corpus import CorpusConfig
from tasks.language.data import word_problems
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

METRICS = {
    "documents": "The number of documents.",
    "characters": "The number of characters of all documents.",
}


def run(config: CorpusConfig, problems: Path, out: Path) -> Metrics:
    """Write corpus.parquet (schema Documents), shuffled."""
    rng = random.Random(config.seed)
    train = tables.records(tables.read(Problems, problems / "train.parquet"))
    rows = [("fact", word_problems.arithmetic_fact(rng, config.largest)) for _ in range(config.facts)]
    for row in rng.choices(train, k=config.solutions):
        rows.append(("solution", word_problems.loose_form(rng, row["question"], row["solution"])))
    rows += [("story", row["question"]) for row in rng.choices(train, k=config.stories)]
    rng.shuffle(rows)
    table = pd.DataFrame(rows, columns=["kind", "text"])
    tables.write(Documents, table, out / "corpus.parquet")
    tracking.log_table(table.head(20), "documents.json")
    return {"documents": len(table), "characters": int(table["text"].str.len().sum())}


if __name__ == "__main__":
    main(run)
