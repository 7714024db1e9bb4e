"""Solutions: sampled responses cut into steps with a label for each, for outcome and process reward models.

The labels come from the worked steps of the problems, from people, or from roll-outs of the policy; or files hold whole
answers with a label, which all steps of an answer then have. What the worked steps say is written as `truth` besides,
wherever all problems have them. Train and test are split by prompt.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from tasks.common import models, tables, tracking
from tasks.common.config import build_settings
from tasks.common.errors import DataError, WaitingError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.solutions import SolutionsConfig
from tasks.language.data import chat, forms, labelled_texts, prompts, splits
from tasks.language.data.rows import read_files
from tasks.language.judgements import judgement_log
from tasks.language.rewards.step_labels import BAD, GOOD, NEUTRAL, compute_step_labels
from tasks.language.rewards.verifier import Verifier
from tasks.language.rewards.worked_steps import parse_reference_steps
from tasks.language.steps import agreement, people, rollout_estimates
from tasks.language.steps.cutting import locate_step_ends
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tasks.language.tables.solutions import Solutions, split_steps
from tasks.stage import Metrics, main

SAMPLE_ROWS = 40  # of the solutions shown in MLflow
METRICS = {
    "solutions/train": "The number of solutions that are trained on.",
    "solutions/test": "The number of solutions whose prompts are held out.",
    "steps": "The mean number of steps of a solution.",
    "right": "The share of the solutions whose final answer is right, from 0 to 1.",
    "labels/bad": "The share of the steps that are labelled bad, from 0 to 1.",
    "labels/neutral": "The share of the steps that are labelled neutral, from 0 to 1.",
    "labels/good": "The share of the steps that are labelled good, from 0 to 1.",
    "first_wrong": "The share of the solutions with a step that is labelled bad, from 0 to 1.",
    "left_out": "The number of responses left out: they have no line, their tokens do not end where their lines "
    "do, or their problem lacks what the labels come from.",
    "completions": "The number of roll-outs: completions of a step's beginning.",
    **agreement.METRICS,
}
Known = Mapping[str, Record]  # the problems by their ids


def run(config: SolutionsConfig, policy: Path, responses: Path, problems: Path, judgements: Path, out: Path) -> Metrics:
    """Write train.parquet and test.parquet (schema Solutions)."""
    tokenizer = models.load_tokenizer(policy)
    problems_by_id = {
        row["problem_id"]: row for row in tables.list_records(tables.read_table(Problems, problems / "train.parquet"))
    }
    if config.source == "files":
        candidates = load_labelled_solutions(responses, tokenizer)
    elif config.source == "people":
        candidates = load_judged_solutions(config, judgements, tokenizer)
    else:
        candidates = load_sampled_solutions(config, responses, tokenizer)
    solutions = [row for row in candidates if 0 < len(row["ends"]) == len(split_steps(row["response"]))]
    completions = 0
    with Verifier() as verifier:
        if config.source != "files":
            add_reference_verdicts(solutions, problems_by_id, verifier)
        if config.source in ("worked_steps", "rollouts"):
            solutions = [row for row in solutions if not math.isnan(row["right"])]
        if config.source == "worked_steps":
            solutions = [{**row, "labels": row["truth"]} for row in solutions if "truth" in row]
        if config.source == "rollouts":
            completions = add_rollout_estimates(config, policy, tokenizer, solutions, problems_by_id, verifier)
    for row in solutions:
        row["right"] = BAD not in row["labels"] if math.isnan(row["right"]) else row["right"] == 1
    in_test = write_solution_splits(config, solutions, out)
    return compute_solution_metrics(config, solutions, in_test, len(candidates) - len(solutions), completions)


def load_sampled_solutions(config: SolutionsConfig, responses: Path, tokenizer: Tokenizer) -> list[Record]:
    """The responses cut into steps; for roll-outs those to the first prompts only."""
    if not (responses / "responses.parquet").is_file():
        raise DataError(f"{responses}: no responses.parquet; expected data/responses as solutions.path")
    table = tables.read_table(Responses, responses / "responses.parquet").drop(columns="logps")
    if config.source == "rollouts":
        table = table[table["prompt_id"].isin(table["prompt_id"].unique()[: config.prompts])]
    table["tokens"] = [[int(token) for token in tokens] for tokens in table["tokens"]]
    table.insert(0, "solution_id", table["prompt_id"] + "/" + table.pop("sample").astype(str))
    table["ends"] = locate_step_ends(tokenizer, table["tokens"].tolist())
    return tables.list_records(table)


def load_judged_solutions(config: SolutionsConfig, judgements: Path, tokenizer: Tokenizer) -> list[Record]:
    """The solutions that people judged, with their labels; WaitingError where they are too few."""
    judged_items = people.collect_judged_solutions(judgement_log.read_judgement_record(judgements))
    if (missing := config.minimum - len(judged_items)) > 0:
        raise WaitingError(f"waiting for {missing} more: posttrain label --mode steps")
    tokens = [people.get_or_encode_answer_tokens(tokenizer, item.answers[0]) for item, _ in judged_items]
    return [
        {
            "solution_id": f"{item.prompt_id}/{item.item}",
            **{name: getattr(item, name) for name in ("prompt_id", "prompt", "history")},
            "response": item.answers[0].text,
            "ended": item.answers[0].ended,
            "tokens": item_tokens,
            "ends": ends,
            "labels": labels,
        }
        for (item, labels), item_tokens, ends in zip(
            judged_items, tokens, locate_step_ends(tokenizer, tokens), strict=True
        )
    ]


def load_labelled_solutions(path: Path, tokenizer: Tokenizer) -> list[Record]:
    """The answers of files, each step of which has its answer's label; answers to one prompt have one prompt_id."""
    rows = labelled_texts.parse_labelled_answers(read_files(path))
    first: dict[tuple[str, ...], str] = {}
    tokens = [chat.encode_response(tokenizer, row["response"], ended=True) for row in rows]
    return [
        {
            **row,
            "prompt_id": first.setdefault(forms.build_prompt_key(row["prompt"], row["history"]), row["solution_id"]),
            "ended": True,
            "tokens": answer_tokens,
            "ends": ends,
            "labels": [GOOD if row["right"] else BAD] * len(ends),
        }
        for row, answer_tokens, ends in zip(rows, tokens, locate_step_ends(tokenizer, tokens), strict=True)
    ]


def add_reference_verdicts(rows: list[Record], problems: Known, verifier: Verifier) -> None:
    """Say of each row whether its answer is `right`, nan where that cannot be known, and its `truth` where there are
    worked steps.
    """
    answers = [problems[row["prompt_id"]]["answer"] if row["prompt_id"] in problems else "" for row in rows]
    for row, right in zip(rows, verifier(answers, [row["response"] for row in rows]), strict=True):
        row["right"] = right
        problem = problems.get(row["prompt_id"])
        if problem is not None and parse_reference_steps(problem["solution"]).steps:
            row["truth"] = compute_step_labels(
                problem["question"], problem["solution"], problem["answer"], row["response"]
            )


def add_rollout_estimates(
    config: SolutionsConfig,
    policy: Path,
    tokenizer: Tokenizer,
    rows: list[Record],
    problems_by_id: Known,
    verifier: Verifier,
) -> int:
    """Give each row its hard estimates as `labels` and its soft ones as `good`; returns the number of completions."""
    model = models.load_model(policy)
    prompt_ids = list(dict.fromkeys(row["prompt_id"] for row in rows))
    encoded_prompts = dict(
        zip(
            prompt_ids,
            prompts.encode_prompt_rows(tokenizer, [problems_by_id[name] for name in prompt_ids]),
            strict=True,
        )
    )
    lengths = [
        len(encoded_prompts[prompt_id]) + len(tokens)
        for prompt_id, tokens in rollout_estimates.collect_unfinished_prefixes(rows)
    ]
    what = "the prompts with the beginnings of their solutions"
    chat.check_positions(model, lengths, what, config.max_new_tokens, "solutions.max_new_tokens")
    shares = rollout_estimates.compute_soft_estimates(
        model,
        tokenizer,
        chat.end_tokens(model, tokenizer),
        rows,
        encoded_prompts,
        {name: problems_by_id[name]["answer"] for name in prompt_ids},
        build_settings(config, rollout_estimates.RolloutSettings),
        verifier,
    )
    for row, step_shares in zip(rows, shares, strict=True):
        row |= {"good": step_shares, "labels": rollout_estimates.compute_hard_estimates(step_shares)}
    return len(lengths) * config.samples


def write_solution_splits(config: SolutionsConfig, rows: list[Record], out: Path) -> int:
    """Write the rows, split by prompt; a column that some rows lack is left out, and so are soft estimates with
    estimate hard. Returns how many are held out.
    """
    table = pd.DataFrame(rows).dropna(axis="columns")
    if config.estimate == "hard":
        table = table.drop(columns="good", errors="ignore")
    if not len(table) or table["prompt_id"].nunique() < 2:
        raise DataError(
            f"solutions: {len(table)} solutions with labels, to fewer than 2 prompts; expected at least 2 prompts, "
            "one to train on and "
            f"one to test, with source {config.source}"
        )
    if "history" in table and not table["history"].any():
        table = table.drop(columns="history")
    rng = np.random.default_rng(config.seed)
    in_test = table["prompt_id"].isin(splits.draw_held_out_prompts(table["prompt_id"], config.test_share, rng))
    tables.write_table(Solutions, table[~in_test], out / "train.parquet")
    tables.write_table(Solutions, table[in_test], out / "test.parquet")
    tracking.record_table(table.drop(columns=["tokens", "ends"]).head(SAMPLE_ROWS), "solutions.json")
    return int(in_test.sum())


def compute_solution_metrics(
    config: SolutionsConfig, rows: list[Record], in_test: int, left_out: int, completions: int
) -> Metrics:
    """METRICS of the rows, of which `in_test` are held out."""
    labels = [row["labels"] for row in rows]
    every = np.concatenate(labels)
    compared = config.source != "worked_steps" and all("truth" in row for row in rows)
    shares = [row["good"] for row in rows] if config.source == "rollouts" else None
    return {
        "solutions": {"train": len(rows) - in_test, "test": in_test},
        "steps": len(every) / len(rows),
        "right": float(np.mean([row["right"] for row in rows])),
        "labels": {
            name: float((every == label).mean()) for name, label in (("bad", BAD), ("neutral", NEUTRAL), ("good", GOOD))
        },
        "first_wrong": float(np.mean([BAD in row_labels for row_labels in labels])),
        "left_out": left_out,
        **({"completions": completions} if config.source == "rollouts" else {}),
        **(
            {"against_truth": agreement.compute_label_agreement(labels, [row["truth"] for row in rows], shares)}
            if compared
            else {}
        ),
    }


if __name__ == "__main__":
    main(run)
