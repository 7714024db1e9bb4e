"""Continuations of openings by one policy, and what two classifiers and the reference make of them."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from tasks.algorithms.language import completions, reward_model, rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.common import models, tables, tracking
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.extensions.reviews.word_classifier import WordClassifier
from tasks.language.data import chat, prompts
from tasks.language.rewards import reward_model_files
from tasks.language.tables.problems import Problems

SCORED_AT_ONCE = 128  # texts in one pass; changes speed only


@dataclass(frozen=True)
class Judges:
    """The reference, which is where all policies start, with the two classifiers."""

    tokenizer: Tokenizer
    reference: PretrainedCausalLM
    first: PretrainedModel
    second: WordClassifier


def load_judges(reference: Path, first: Path, second: WordClassifier) -> Judges:
    """The judges; DataError where the reward model is none of answers."""
    scorer = reward_model_files.load_reward_model(first)
    if (objective := getattr(scorer.config, reward_model.OBJECTIVE, None) or "pairs") != "outcome":
        raise DataError(
            f"{first}: a reward model of objective {objective}; expected outcome, whose score is a probability"
        )
    return Judges(models.load_tokenizer(reference), models.load_model(reference), scorer, second)


def load_test_openings(config: SteeringConfig, problems: Path) -> list[Record]:
    """The first test openings."""
    return tables.list_records(tables.read_table(Problems, problems / "test.parquet").head(config.openings))


def sample_and_score_continuations(
    config: SteeringConfig, name: str, policy: PretrainedCausalLM, opening_rows: list[Record], judges: Judges
) -> pd.DataFrame:
    """Samples at temperature 1 with all that is said of them (schema Continuations)."""
    encoded = prompts.encode_prompt_rows(judges.tokenizer, opening_rows)
    chat.check_positions(policy, [*map(len, encoded)], "the openings", config.max_new_tokens, "steering.max_new_tokens")
    drawn = rollouts.sample_rollouts(
        policy,
        encoded,
        samples=config.samples,
        max_new_tokens=config.max_new_tokens,
        temperature=1.0,
        end_tokens=chat.end_tokens(policy, judges.tokenizer),
        seed=config.seed,
        batch_size=config.batch_size,
    )
    rows: list[Record] = []
    batches = range(0, len(opening_rows), config.batch_size)
    for start, batch in zip(batches, tracking.iterate_with_progress(drawn, len(batches)), strict=True):
        batch_slice = slice(start, start + config.batch_size)
        logps = batch.logps.masked_fill(~batch.mask, 0.0).double().sum(dim=1)
        whole = batch.completions(encoded[batch_slice], judges.tokenizer.pad_token_id)
        reference, first = compute_judge_scores(judges, whole)
        for row, (tokens, ended) in enumerate(zip(batch.responses(), batch.ended.tolist(), strict=True)):
            opening = opening_rows[start + row // config.samples]
            rows.append(
                {
                    "policy": name,
                    "opening_id": opening["problem_id"],
                    "opening": opening["question"],
                    "sample": row % config.samples,
                    "continuation": chat.decode_response(judges.tokenizer, tokens, ended),
                    "tokens": len(tokens),
                    "ended": ended,
                    "logp": min(logps[row].item(), 0.0),
                    "reference": min(reference[row].item(), 0.0),
                    "first": first[row].item(),
                }
            )
    table = pd.DataFrame(rows)
    return table.assign(second=judges.second.positive((table["opening"] + " " + table["continuation"]).tolist()))


@torch.no_grad()
def compute_judge_scores(judges: Judges, whole: completions.Completions) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference's log-probability of each continuation, and the first classifier's probability: (N,) each."""
    reference = torch.zeros(len(whole), dtype=torch.float64)
    first = torch.zeros(len(whole), dtype=torch.float64)
    for rows in torch.arange(len(whole)).split(SCORED_AT_ONCE):
        part = whole.rows(rows)
        reference[rows] = completions.compute_token_logps(judges.reference, part).double().sum(dim=1).cpu()
        first[rows] = reward_model.score_responses(judges.first, part).double().cpu()
    return reference, first


def compute_classifier_probabilities(judges: Judges, reviews: pd.DataFrame) -> pd.DataFrame:
    """The two classifiers' probabilities of given reviews (schema Reviews): columns first and second."""
    encoded = prompts.encode_prompt_rows(judges.tokenizer, [{"question": text} for text in reviews["opening"]])
    answers = [chat.encode_response(judges.tokenizer, text, ended=True) for text in reviews["continuation"]]
    pad = judges.tokenizer.pad_token_id
    whole = completions.make_completions(encoded, [*range(len(encoded))], answers, pad)
    _, first = compute_judge_scores(judges, whole)
    texts = (reviews["opening"] + " " + reviews["continuation"]).tolist()
    return pd.DataFrame({"first": first.numpy(), "second": judges.second.positive(texts)}, index=reviews.index)
