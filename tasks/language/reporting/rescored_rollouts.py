"""The rollouts that a stage kept, with what only an evaluation can add: texts, and what the trained policy and the
reference say of them.
"""

from pathlib import Path

import pandas as pd
import torch

from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.tables.rollouts import FILE, RolloutTable

BEFORE = 3  # tokens that are read with one whose text is asked for: some tokenizers drop a space at the start of a text
AT_ONCE = 32  # answers in one pass


def write_rescored_rollouts(
    folder: Path, policy: PretrainedCausalLM, reference: PretrainedModel | None, tokenizer: Tokenizer, out: Path
) -> None:
    """Write to `out` the rollouts that lie beside the policy in `folder`; nothing where there are none."""
    if not (folder / FILE).is_file():
        return
    table = tables.read_table(RolloutTable, folder / FILE)
    vocabulary_size = (
        policy.get_input_embeddings().num_embeddings
    )  # a vocabulary may have gaps, and its highest token be beyond its size
    for column in ("prompt_tokens", "tokens"):
        if any(not 0 <= token < vocabulary_size for row in table[column] for token in row):
            raise DataError(f"{folder / FILE}: column {column}: expected tokens from 0 to {vocabulary_size - 1}")
    table["prompt"] = [tokenizer.decode([*row]) for row in table["prompt_tokens"]]
    table["pieces"] = [decode_token_texts(tokenizer, [*row]) for row in table["tokens"]]
    table["final_logps"] = compute_answer_logps(policy, table, tokenizer.pad_token_id)
    if reference is not None:
        table["reference_logps"] = compute_answer_logps(reference, table, tokenizer.pad_token_id)
    tables.write_table(RolloutTable, table, out / FILE)


def decode_token_texts(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    """The text of each token, spaces included."""
    texts = []
    for position in range(len(tokens)):
        start = max(0, position - BEFORE)
        before, whole = (tokenizer.decode(list(tokens[start:end])) for end in (position, position + 1))
        texts.append(whole[len(before) :])
    return texts


@torch.no_grad()
def compute_answer_logps(
    model: PretrainedCausalLM | PretrainedModel, table: pd.DataFrame, pad: int
) -> list[list[float]]:
    """Each answer's log-probabilities under the model, at the temperature at which it was sampled."""
    model.eval()
    log_probs: list[list[float]] = []
    for start in range(0, len(table), AT_ONCE):
        rows = table.iloc[start : start + AT_ONCE]
        prompts, answers = ([[*map(int, row)] for row in rows[name]] for name in ("prompt_tokens", "tokens"))
        batch = make_completions(prompts, [*range(len(prompts))], answers, pad)
        values = compute_token_logps(model, batch, float(rows["temperature"].iloc[0])).cpu()
        log_probs += [row[: len(answer)].tolist() for row, answer in zip(values, answers, strict=True)]
    return log_probs
