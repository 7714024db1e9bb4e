"""Problems of two digits whose sum has one, with solutions, comparisons and rankings: a reward model learns from them
in few steps.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from tasks.common import models, tables
from tasks.language.tables.preferences import Comparisons, Rankings
from tasks.language.tables.problems import Problems
from tests.tasks import solved

TERMS = [(first, second) for first in range(1, 9) for second in range(1, 10 - first)]
PROMPTS = 24  # of which a quarter is held out


def write(home: Path, policy: Path) -> Path:
    """Write problems/train.parquet, solutions/, preferences/ and pretrained/, the first layer of `policy`."""
    table = problems()
    tables.write_table(Problems, table, home / "problems/train.parquet")
    words, model = models.load_tokenizer(policy), models.load_model(policy)
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    models.save_model(model, words, home / "pretrained")
    solved.write(home / "problems/train.parquet", home / "pretrained", home / "solutions", prompts=PROMPTS)
    ranked = rankings(table)
    tables.write_table(Rankings, ranked, home / "preferences/rankings.parquet")
    pairs = comparisons(ranked)
    held_out = pairs["prompt_id"].isin(ranked["prompt_id"][ranked["held_out"]])
    tables.write_table(Comparisons, pairs[~held_out], home / "preferences/train.parquet")
    tables.write_table(Comparisons, pairs[held_out], home / "preferences/test.parquet")
    return home


def problems() -> pd.DataFrame:
    """Sums in a random order, so that what is held out is of all kinds."""
    drawn = np.random.default_rng(0).permutation(TERMS)[:PROMPTS]
    return pd.DataFrame(
        {
            "problem_id": f"train-{first}-{second}",
            "question": f"{first} and {second}?",
            "solution": f"{first} + {second} = {first + second}\n#### {first + second}",
            "answer": str(first + second),
            "steps": 1,
        }
        for first, second in drawn
    )


def rankings(table: pd.DataFrame) -> pd.DataFrame:
    """The solution comes first; the one with ten times its number and the bare answer tie."""
    rows = []
    for number, row in enumerate(table.itertuples()):
        wrong = str(row.solution).replace(str(row.answer), f"{row.answer}0")
        for sample, (text, rank) in enumerate(((row.solution, 1), (wrong, 2), (f"#### {row.answer}", 2))):
            rows.append(
                {
                    "ranking_id": f"{row.problem_id}/anna",
                    "prompt_id": row.problem_id,
                    "prompt": row.question,
                    "held_out": number >= PROMPTS - PROMPTS // 4,
                    "person": "anna",
                    "sample": sample,
                    "response": text,
                    "ended": True,
                    "rank": rank,
                }
            )
    return pd.DataFrame(rows)


def comparisons(ranked: pd.DataFrame) -> pd.DataFrame:
    """The first of each ranking with the wrong answer (better) and with the bare one (slightly better)."""
    rows = []
    for prompt_id, answers in ranked.groupby("prompt_id", sort=False):
        best, *others = answers["response"]
        for number, (text, strength) in enumerate(zip(others, ("a better", "b slightly better"), strict=True)):
            rows.append(
                {
                    "comparison_id": f"{prompt_id}/{number}",
                    "prompt_id": prompt_id,
                    "prompt": answers["prompt"].iloc[0],
                    "chosen": best,
                    "rejected": text,
                    "chosen_ended": True,
                    "rejected_ended": True,
                    "chosen_score": 10.0,
                    "rejected_score": 4.0,
                    "strength": strength,
                }
            )
    return pd.DataFrame(rows)
