"""The scores by which answers are chosen and votes are weighed: the policy's own log-probability, and reward models on
disk.

`likelihood`, the mean log-probability of an answer's tokens, costs no pass: sampling has it. What a reward model gains
has to be more.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.algorithms.language import reward_model, step_rewards
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.completions import Completions, make_completions
from tasks.common import model_files
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.search.sampling import TestPrompts
from tasks.language.rewards import reward_model_files

LIKELIHOOD = "likelihood"
OBJECTIVES = ("pairs", "outcome", "process")
STEPS = {f"process_{how}": how for how in step_rewards.STEP_SCORES}
AT_ONCE = 256  # answers that a reward model reads in one pass; changes speed only
LOGARITHMS = (LIKELIHOOD, "pairs")  # a vote weighs their exponential; the others are probabilities


def load_reward_models(main_folder: Path, further: Path, tokenizer: Tokenizer) -> dict[str, PretrainedModel]:
    """The reward models by objective: that of `main_folder`, and those in the folders of `further`; DataError where
    they do not fit.
    """
    scorers: dict[str, PretrainedModel] = {}
    for folder, wanted in ((main_folder, None), *((further / name, name) for name in OBJECTIVES)):
        if not (folder / "config.json").is_file():
            continue
        model = reward_model_files.load_reward_model(folder)
        objective = getattr(model.config, reward_model.OBJECTIVE, None) or "pairs"
        if wanted not in (None, objective):
            raise DataError(f"{folder}: a reward model of objective {objective}; expected one of objective {wanted}")
        if objective in scorers:
            raise DataError(
                f"{folder}: a second reward model of objective {objective}, beside {main_folder}; expected one"
            )
        if model_files.load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
            raise DataError(f"{folder}: the reward model has another tokenizer than the policy whose answers it scores")
        scorers[objective] = model
    return scorers


def add_score_columns(
    table: pd.DataFrame, scorers: dict[str, PretrainedModel], problem_set: TestPrompts, pad: int
) -> pd.DataFrame:
    """The answers with a column for each score; equal answers to a problem are read once."""
    problem_numbers = {problem["problem_id"]: number for number, problem in enumerate(problem_set.problems)}
    keys = [
        (problem_numbers[problem_id], tuple(tokens))
        for problem_id, tokens in zip(table["problem_id"], table["tokens"], strict=True)
    ]
    read = list(dict.fromkeys(keys))
    columns: dict[str, list[float]] = {}
    for objective, model in scorers.items():
        for name, values in score_answers(model, objective, read, problem_set, pad).items():
            by_key = dict(zip(read, values.tolist(), strict=True))
            columns[name] = [by_key[key] for key in keys]
    return table.assign(**columns)


@torch.no_grad()
def score_answers(
    model: PretrainedModel,
    objective: str,
    read: Sequence[tuple[int, tuple[int, ...]]],
    problem_set: TestPrompts,
    pad: int,
) -> dict[str, Tensor]:
    """What the reward model says of answers or their beginnings, by the name of the score; (N,) each, on the CPU."""
    names = [*STEPS] if objective == "process" else [objective]
    by_name = {name: torch.zeros(len(read)) for name in names}
    order = sorted(
        range(len(read)), key=lambda row: (len(read[row][1]), row)
    )  # answers of one length are read together
    for start in range(0, len(order), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        problem_numbers = dict.fromkeys(read[row][0] for row in rows)
        owner = {number: prompt_index for prompt_index, number in enumerate(problem_numbers)}
        part = make_completions(
            [problem_set.prompts[number] for number in problem_numbers],
            [owner[read[row][0]] for row in rows],
            [read[row][1] for row in rows],
            pad,
        )
        for name, values in _score_batch(model, objective, part).items():
            by_name[name][rows] = values.float().cpu()
    return by_name


def _score_batch(model: PretrainedModel, objective: str, part: Completions) -> dict[str, Tensor]:
    if objective != "process":
        return {objective: reward_model.score_responses(model, part)}
    steps = step_rewards.score_steps(model, part)
    at = step_rewards.find_model_step_ends(model, part)
    return {name: step_rewards.combine_step_scores(steps, at, how) for name, how in STEPS.items()}


def compute_vote_weights(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What votes weigh by a score: probabilities as they are; of log-odds and log-probabilities the exponential, 1 for
    the highest.
    """
    vote_weights: NDArray[np.float64] = np.exp(values - values.max()) if name in LOGARITHMS else values
    return vote_weights
