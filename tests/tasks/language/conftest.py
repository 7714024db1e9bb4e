from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tasks.common import models, tables
from tasks.language.tables.preferences import Comparisons, Rankings
from tasks.language.tables.problems import Problems
from tests.tasks import solved
from tests.tasks.language import math_workers, sums
from tests.tasks.tiny import gpt2

WORKER_TESTS = Path(__file__).parent / "rewards"  # there the processes themselves are tested


@pytest.fixture(scope="session")
def idle_math_workers() -> Iterator[math_workers.Workers]:
    """The processes of math-verify that the verifiers of all tests share."""
    workers = math_workers.Workers()
    yield workers
    workers.end()


@pytest.fixture(scope="module", autouse=True)
def kept_math_workers(request: pytest.FixtureRequest, idle_math_workers: math_workers.Workers) -> Iterator[None]:
    """Verifiers take processes that others have started, but where the processes are what is tested."""
    if WORKER_TESTS in request.path.parents:
        yield
    else:
        with math_workers.kept(idle_math_workers):
            yield


@pytest.fixture(scope="session")
def preferences(made: Path) -> Path:
    """The solution is preferred to one with ten times its number (better), and to the bare answer (slightly better)."""
    problems = tables.read_table(Problems, made / "problems" / "train.parquet")
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
    tables.write_table(Comparisons, table.head(60), made / "preferences" / "train.parquet")
    tables.write_table(Comparisons, table.tail(20), made / "preferences" / "test.parquet")
    tables.write_table(Rankings, pd.DataFrame(ranked(table)), made / "preferences" / "rankings.parquet")
    return made / "preferences"


def ranked(compared: pd.DataFrame) -> Iterator[dict[str, object]]:
    """The answers to each prompt ranked: the solution first, then the two others, which tie."""
    held_out = {*compared.tail(20)["prompt_id"]}
    for prompt_id, pairs in compared.groupby("prompt_id", sort=False):
        answers = [(pairs["chosen"].iloc[0], 1), *((text, 2) for text in pairs["rejected"])]
        for sample, (text, rank) in enumerate(answers):
            yield {
                "ranking_id": f"{prompt_id}/anna",
                "prompt_id": prompt_id,
                "prompt": pairs["prompt"].iloc[0],
                "held_out": prompt_id in held_out,
                "person": "anna",
                "sample": sample,
                "response": text,
                "ended": True,
                "rank": rank,
            }


@pytest.fixture(scope="session")
def solutions(made: Path) -> Path:
    """Solutions of 40 problems with labels, of which ten are held out."""
    solved.write(made / "problems/train.parquet", made / "pretrained", made / "solutions")
    return made / "solutions"


@pytest.fixture(scope="session")
def easy_sums(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of one layer, with problems, solutions, comparisons and rankings of one-digit sums."""
    return sums.write(tmp_path_factory.mktemp("sums"), made / "pretrained")


@pytest.fixture
def with_dropout(ready: Path, preferences: Path, solutions: Path, tmp_path: Path) -> Path:
    """`made` with a model that has dropout, so that each step of SFT and of the reward model draws from torch's
    generator.
    """
    folder = tmp_path / "with_dropout"
    folder.mkdir()
    for made_before in ready.iterdir():
        if made_before.name != "pretrained":
            (folder / made_before.name).symlink_to(made_before)
    words = models.load_tokenizer(ready / "pretrained")
    model = gpt2(vocab_size=len(words), n_positions=256, resid_pdrop=0.3, pad_token_id=words.pad_token_id)
    models.save_model(model, words, folder / "pretrained")
    return folder
