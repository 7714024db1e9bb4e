from pathlib import Path

import pandas as pd
import pytest

from tasks.common import models, tables
from tasks.language.tables.preferences import Comparisons
from tasks.language.tables.problems import Problems
from tests.tasks.tiny import gpt2


@pytest.fixture(scope="session")
def preferences(made: Path) -> Path:
    """The solution is preferred to one with ten times its number (better), and to the bare answer (slightly better)."""
    problems = tables.read(Problems, made / "problems" / "train.parquet")
    rows = []
    for row in problems.head(40).itertuples():
        wrong = str(row.solution).replace(str(row.answer), f"{row.answer}0")
        for number, (rejected, strength) in enumerate(
            ((wrong, "a better"), (f"#### {row.answer}", "b slightly better"))
        ):
            rows.append(
                {
                    "comparison_id": f"{row.problem_id}/{number}",
                    "prompt_id": row.problem_id,
                    "prompt": row.question,
                    "chosen": row.solution,
                    "rejected": rejected,
                    "chosen_ended": True,
                    "rejected_ended": True,
                    "chosen_score": 10.0,
                    "rejected_score": 4.0,
                    "strength": strength,
                }
            )
    table = pd.DataFrame(rows)
    tables.write(Comparisons, table.head(60), made / "preferences" / "train.parquet")
    tables.write(Comparisons, table.tail(20), made / "preferences" / "test.parquet")
    return made / "preferences"


@pytest.fixture
def with_dropout(ready: Path, preferences: Path, tmp_path: Path) -> Path:
    """`made` with a model that has dropout, so that each step of SFT and of the reward model draws from torch's generator."""
    folder = tmp_path / "with_dropout"
    folder.mkdir()
    for made_before in ready.iterdir():
        if made_before.name != "pretrained":
            (folder / made_before.name).symlink_to(made_before)
    words = models.load_tokenizer(ready / "pretrained")
    model = gpt2(vocab_size=len(words), n_positions=256, resid_pdrop=0.3, pad_token_id=words.pad_token_id)
    models.save_model(model, words, folder / "pretrained")
    return folder
