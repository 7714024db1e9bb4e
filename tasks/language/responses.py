"""K sampled responses for each of many training prompts, with the log-probability of every token."""

from pathlib import Path

import pandas as pd

from tasks.algorithms.language import rollouts
from tasks.common import models, tables
from tasks.common.tables import Record
from tasks.common.tracking import iterate_with_progress, record_table
from tasks.language.configs.responses import ResponsesConfig
from tasks.language.data import chat, problem_forms, prompts
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tasks.stage import Metrics, main

METRICS = {
    "responses": "The number of responses.",
    "completions/mean_length": "The mean length of a response in tokens, the end token included.",
    "completions/clipped_ratio": "The share of the responses that the length limit cut off, from 0 to 1.",
    "mean_token_logp": "The mean log-probability of a sampled token, in nats; the nearer to 0, the more certain is "
    "the policy.",
}


def run(config: ResponsesConfig, policy: Path, problems: Path, out: Path) -> Metrics:
    """Write responses.parquet (schema Responses), K rows a prompt."""
    model = models.load_model(policy)
    tokenizer = models.load_tokenizer(policy)
    train = tables.read_table(Problems, problems / "train.parquet")
    problem_forms.check_skip("responses", config.skip, len(train))
    prompt_rows = train.iloc[config.skip :].head(config.prompts)
    encoded = prompts.encode_prompt_rows(tokenizer, tables.list_records(prompt_rows))
    chat.check_positions(model, [*map(len, encoded)], "the prompts", config.max_new_tokens, "responses.max_new_tokens")
    batches = rollouts.sample_rollouts(
        model,
        encoded,
        samples=config.samples,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        end_tokens=chat.end_tokens(model, tokenizer),
        seed=config.seed,
        batch_size=config.batch_size,
    )
    rows: list[Record] = []
    for batch in iterate_with_progress(batches, -(-len(encoded) // config.batch_size)):
        for tokens, logps, mask, ended in zip(batch.tokens, batch.logps, batch.mask, batch.ended, strict=True):
            problem = prompt_rows.iloc[len(rows) // config.samples]
            rows.append(
                {
                    "prompt_id": problem["problem_id"],
                    "sample": len(rows) % config.samples,
                    "prompt": problem["question"],
                    **({"history": problem["history"]} if "history" in problem else {}),
                    "response": chat.decode_response(tokenizer, tokens[mask], bool(ended)),
                    "tokens": tokens[mask].tolist(),
                    "logps": logps[mask].tolist(),
                    "ended": bool(ended),
                }
            )
    table = pd.DataFrame(rows)
    tables.write_table(Responses, table, out / "responses.parquet")
    record_table(table.drop(columns=["tokens", "logps"]).head(40), "responses.json")
    lengths = table["tokens"].map(len)
    return {
        "responses": len(table),
        "completions/mean_length": lengths.mean(),
        "completions/clipped_ratio": float((~table["ended"]).mean()),
        "mean_token_logp": sum(map(sum, table["logps"])) / int(lengths.sum()),
    }


if __name__ == "__main__":
    main(run)
