"""The scores by which answers are chosen and votes are weighed: the policy's own log-probability, and reward models on disk.

`likelihood`, the mean log-probability of an answer's tokens, costs no pass: sampling has it. What a reward model gains has to be more.
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
from tasks.language.rewards import reward_model_files
from tasks.language.test_time.sampling import Asked

LIKELIHOOD = "likelihood"
OBJECTIVES = ("pairs", "outcome", "process")
STEPS = {f"process_{how}": how for how in step_rewards.STEP_SCORES}
AT_ONCE = 256  # answers that a reward model reads in one pass; changes speed only
LOGARITHMS = (LIKELIHOOD, "pairs")  # a vote weighs their exponential; the others are probabilities


def load(own: Path, further: Path, tokenizer: Tokenizer) -> dict[str, PretrainedModel]:
    """The reward models by objective: that of `own`, and those in the folders of `further`; DataError where they do not fit."""
    found: dict[str, PretrainedModel] = {}
    for folder, wanted in ((own, None), *((further / name, name) for name in OBJECTIVES)):
        if not (folder / "config.json").is_file():
            continue
        model = reward_model_files.load(folder)
        objective = getattr(model.config, reward_model.OBJECTIVE, None) or "pairs"
        if wanted not in (None, objective):
            raise DataError(f"{folder}: a reward model of objective {objective}; expected one of objective {wanted}")
        if objective in found:
            raise DataError(f"{folder}: a second reward model of objective {objective}, beside {own}; expected one")
        if model_files.load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
            raise DataError(f"{folder}: the reward model has another tokenizer than the policy whose answers it scores")
        found[objective] = model
    return found


def add_scores(table: pd.DataFrame, scorers: dict[str, PretrainedModel], given: Asked, pad: int) -> pd.DataFrame:
    """The answers with a column for each score; equal answers to a problem are read once."""
    places = {problem["problem_id"]: number for number, problem in enumerate(given.problems)}
    keys = [
        (places[problem_id], tuple(tokens))
        for problem_id, tokens in zip(table["problem_id"], table["tokens"], strict=True)
    ]
    read = list(dict.fromkeys(keys))
    columns: dict[str, list[float]] = {}
    for objective, model in scorers.items():
        for name, values in scores(model, objective, read, given, pad).items():
            by_key = dict(zip(read, values.tolist(), strict=True))
            columns[name] = [by_key[key] for key in keys]
    return table.assign(**columns)


@torch.no_grad()
def scores(
    model: PretrainedModel, objective: str, read: Sequence[tuple[int, tuple[int, ...]]], given: Asked, pad: int
) -> dict[str, Tensor]:
    """What the reward model says of answers or their beginnings, by the name of the score; (N,) each, on the CPU."""
    names = [*STEPS] if objective == "process" else [objective]
    found = {name: torch.zeros(len(read)) for name in names}
    order = sorted(
        range(len(read)), key=lambda row: (len(read[row][1]), row)
    )  # answers of one length are read together
    for start in range(0, len(order), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        own = dict.fromkeys(read[row][0] for row in rows)
        owner = {number: place for place, number in enumerate(own)}
        part = make_completions(
            [given.prompts[number] for number in own],
            [owner[read[row][0]] for row in rows],
            [read[row][1] for row in rows],
            pad,
        )
        for name, values in _scores(model, objective, part).items():
            found[name][rows] = values.float().cpu()
    return found


def _scores(model: PretrainedModel, objective: str, part: Completions) -> dict[str, Tensor]:
    if objective != "process":
        return {objective: reward_model.score(model, part)}
    steps, at = step_rewards.step_scores(model, part), step_rewards.ends(model, part)
    return {name: step_rewards.combined(steps, at, how) for name, how in STEPS.items()}


def weights(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What votes weigh by a score: probabilities as they are; of log-odds and log-probabilities the exponential, 1 for the highest."""
    found: NDArray[np.float64] = np.exp(values - values.max()) if name in LOGARITHMS else values
    return found
