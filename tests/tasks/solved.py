"""Solutions of generated problems whose steps are known, for tests of reward models."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tasks.common import models, tables
from tasks.language.data import chat
from tasks.language.rewards import reward_model_files
from tasks.language.steps.cutting import locate_step_ends
from tasks.language.tables.problems import Problems
from tasks.language.tables.solutions import Solutions


def write(problems: Path, tokenizer: Path, out: Path, prompts: int = 40) -> None:
    """train.parquet and test.parquet: a quarter of the prompts is held out."""
    words = models.load_tokenizer(tokenizer)
    rows = [
        {
            **row,
            "tokens": (tokens := chat.encode_response(words, row["response"])),
            "ends": locate_step_ends(words, [tokens])[0],
        }
        for problem in tables.read_table(Problems, problems).head(prompts).itertuples()
        for row in solutions(problem)
    ]
    table, learnt = pd.DataFrame(rows), 3 * (prompts - prompts // 4)
    tables.write_table(Solutions, table[:learnt], out / "train.parquet")
    tables.write_table(Solutions, table[learnt:], out / "test.parquet")


def outcome_model(policy: Path, out: Path) -> None:
    """A reward model of answers: the policy's own log-probabilities."""
    words, model = models.load_tokenizer(policy), models.load_model(policy)
    reward_model_files.set_reward_config(model, "outcome", "minimum", words)
    model.config.reward_beta, model.config.reward_threshold = 2.0, 6.0
    models.save_model(model, words, out)


def solutions(problem) -> Iterator[dict[str, object]]:
    """The worked solution, good in each step; one of another number, bad from its last equation on; and one with a
    neutral line before it.
    """
    worked = str(problem.solution)
    steps = worked.count("\n") + 1
    slipped = worked.replace(str(problem.answer), f"{problem.answer}0")
    wrong = [1] * (steps - 2) + [-1, -1] if steps > 1 else [-1]
    for sample, (text, labels) in enumerate(
        ((worked, [1] * steps), (slipped, wrong), (f"So.\n{worked}", [0] + [1] * steps))
    ):
        yield {
            **{"solution_id": f"{problem.problem_id}/{sample}", "prompt_id": problem.problem_id},
            **{"prompt": problem.question, "response": text, "ended": True, "right": sample != 1},
            **{"labels": labels, "truth": labels},
        }
