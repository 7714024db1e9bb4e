"""Rejection fine-tuning: sample N answers a prompt, keep the best by reward, fine-tune on them (arXiv:2307.09288,
3.2.2).
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.experience import check_rewards_and_logps, select_best_per_prompt
from tasks.algorithms.language.sequences import count_batches, iterate_shuffled_batches, make_sequence_batch
from tasks.common import models, processes, tables
from tasks.common.checkpoints import open_resumable_training
from tasks.common.config import build_settings
from tasks.common.tables import Record
from tasks.common.tracking import Row, iterate_with_progress, record_metrics, record_table
from tasks.language.configs.rejection_sft import RejectionSftConfig
from tasks.language.data import chat, forms
from tasks.language.tables.problems import Demonstrations, Prompts
from tasks.language.training import trained_model
from tasks.language.training.environment import SamplingEnvironment
from tasks.language.training.judge import collect_further_columns, open_judge
from tasks.stage import Metrics, main

CURVES = sft.METRICS
METRICS = {
    "prompts": "The number of prompts that were answered.",
    "selected": "The number of answers that were kept: at most one a prompt, if it earned enough.",
    "unjudged": "The number of prompts that were left out since none of their answers has a reward.",
    "reward": "The mean reward of all sampled answers that have one.",
    "reward/none": "The share of the sampled answers that have no reward, from 0 to 1; they are never chosen.",
    "reward_of_best": "The mean over prompts of their best answer's reward, of prompts with an answer that has one.",
}


def run(
    config: RejectionSftConfig,
    policy: Path,
    mixture: Path,
    reward_model: Path,
    reward_files: Path,
    out: Path,
    curves: Path,
) -> Metrics:
    """Write the policy to `out` with the answers it was trained on (selected.parquet), and the curve to `curves`."""
    torch.manual_seed(config.seed)
    trained = trained_model.load_trainable_model(policy, config.training, config.lora)
    tokenizer = models.load_tokenizer(policy)
    model = trained.model
    table = tables.read_table(Prompts, mixture / "prompts.parquet").head(config.prompts)
    kinds = {*table["reward"]}
    further = collect_further_columns(table)
    with open_judge(config, kinds, tokenizer, reward_model, reward_files, further) as judge:
        kept, metrics = sample_best_answers(config, SamplingEnvironment(model, tokenizer, table, judge, config))
    if not kept:  # a weak model costs this policy alone, not the flow
        print(
            f"rejection_sft: no answer earned rejection_sft.minimum_reward = {config.minimum_reward}, so that "
            "nothing was learned: "
            "the policy is the one that it started from",
            file=sys.stderr,
            flush=True,
        )
    shown = [{"prompt": answer["row"]["question"], "response": answer["response"]} for answer in kept[:40]]
    record_table(pd.DataFrame(shown), "selected.json")
    steps = count_batches(len(kept), config.batch_size, config.epochs)
    settings = build_settings(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, steps, config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        order = iterate_shuffled_batches(
            len(kept), config.batch_size, config.epochs, torch.Generator().manual_seed(config.seed)
        )
        parts = [[kept[row] for row in rows] for rows in order][start:]
        batches = (
            make_sequence_batch([row["asked"] for row in part], [row["tokens"] for row in part], tokenizer.pad_token_id)
            for part in parts
        )
        return sft.fit(model, batches, optimizer, config.training.accumulate)

    with open_resumable_training("rejection_sft", config, policy, mixture, reward_model, reward_files) as training:
        tables.write_curves(training.run(fit, {"model": trained.weights, "optimizer": optimizer}, steps), curves)
        trained.save(tokenizer, out)
        selection = [forms.build_demonstration_row(answer["row"], answer["response"]) for answer in kept]
        columns = list(Demonstrations.to_schema().columns)
        if processes.is_main_process():
            tables.write_table(
                Demonstrations, pd.DataFrame(selection, columns=columns, dtype=str), out / "selected.parquet"
            )
    return metrics


def sample_best_answers(
    config: RejectionSftConfig, drawn: SamplingEnvironment
) -> tuple[list[Record], dict[str, float]]:
    """Each prompt's best answer that says something, if it earned enough; and METRICS."""
    count = len(drawn.rows)
    starts = range(0, count, config.prompts_per_batch)
    kept: list[Record] = []
    # rewards; nan and -inf for none
    earned = []
    best = []
    for step, start in enumerate(iterate_with_progress(starts, len(starts)), start=1):
        indices = range(start, min(start + config.prompts_per_batch, count))
        try:
            experience = drawn.sample(indices, config.samples, start)
            record_metrics(drawn.judge.seconds(), step)
            check_rewards_and_logps(experience)
            drawn.check_unjudged_share(indices, experience)
        except TrainingError as error:
            raise TrainingError(f"rejection_sft: sampling: step {step}: {error}") from None
        batch = experience.completions
        tokens = [row[mask].tolist() for row, mask in zip(batch.tokens, batch.mask, strict=True)]
        texts = [
            chat.decode_response(drawn.tokenizer, row, ended)
            for row, ended in zip(tokens, experience.ended.tolist(), strict=True)
        ]
        nonempty = torch.tensor([bool(text) for text in texts])
        earned += experience.rewards.tolist()
        best += experience.rewards.view(len(indices), config.samples).nan_to_num(-torch.inf).amax(dim=1).tolist()
        rewards = experience.rewards.masked_fill(~nonempty, -torch.inf)
        for row in select_best_per_prompt(rewards, batch.owner, config.minimum_reward).tolist():
            index = indices[int(batch.owner[row])]
            kept.append(
                {
                    "row": {**drawn.rows[index], "problem_id": drawn.rows[index]["prompt_id"]},
                    "response": texts[row],
                    "asked": drawn.encoded[index],
                    "tokens": tokens[row],
                }
            )
    judged_rewards, of_best = ([value for value in values if math.isfinite(value)] for values in (earned, best))
    return kept, {
        "prompts": count,
        "selected": len(kept),
        "unjudged": count - len(of_best),
        "reward": sum(judged_rewards) / max(1, len(judged_rewards)),
        "reward/none": 1 - len(judged_rewards) / len(earned),
        "reward_of_best": sum(of_best) / max(1, len(of_best)),
    }


if __name__ == "__main__":
    main(run, data_parallel=True)
