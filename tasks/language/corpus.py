"""Text for pretraining: arithmetic facts, stories with quantities, and problems with solutions in loose forms; or one's
own text.

The answer format that SFT teaches (`#### N` after worked lines) does not occur, and only training problems are used.
"""

import random
from pathlib import Path

import pandas as pd

from tasks.common import tables, tracking
from tasks.common.documents import Documents
from tasks.common.errors import DataError
from tasks.language.configs.corpus import CorpusConfig
from tasks.language.data import forms, word_problems
from tasks.language.data.rows import parse_row, read_files
from tasks.language.tables.problems import Problems
from tasks.stage import Metrics, main

METRICS = {
    "documents": "The number of documents.",
    "characters": "The number of characters of all documents.",
}


def run(config: CorpusConfig, problems: Path, raw: Path, out: Path) -> Metrics:
    """Write corpus.parquet (schema Documents), shuffled."""
    rng = random.Random(config.seed)
    rows = read_documents(raw) if config.source == "files" else generate_documents(config, rng, problems)
    rng.shuffle(rows)
    table = pd.DataFrame(rows, columns=["kind", "text"])
    tables.write_table(Documents, table, out / "corpus.parquet")
    tracking.record_table(table.head(20), "documents.json")
    return {"documents": len(table), "characters": int(table["text"].str.len().sum())}


def read_documents(raw: Path) -> list[tuple[str, str]]:
    """Kind and text of each row of files, the kind being the row's file; DataError naming file and line."""
    rows = [
        (row.name.rpartition("-")[0], parse_row(row, lambda fields: forms.get_required_text(fields, "text")))
        for row in read_files(raw)
    ]
    if not rows:
        raise DataError(f"{raw}: there is no text; expected rows with a column text")
    return rows


def generate_documents(config: CorpusConfig, rng: random.Random, problems: Path) -> list[tuple[str, str]]:
    """Kind and text of each generated document."""
    train = tables.list_records(tables.read_table(Problems, problems / "train.parquet"))
    rows = [("fact", word_problems.draw_arithmetic_facts_line(rng, config.largest)) for _ in range(config.facts)]
    for row in rng.choices(train, k=config.solutions):
        rows.append(("solution", word_problems.draw_running_text_of_problem(rng, row["question"], row["solution"])))
    return rows + [("story", row["question"]) for row in rng.choices(train, k=config.stories)]


if __name__ == "__main__":
    main(run)
