"""Preferences: a noisy annotator ranks the responses of each prompt by the rubric; or pairs come from files or a hub.

Pairs of the annotator's ranking are comparisons: ties give none, and neither do two equal texts. Train and test are split by
prompt, so that a held-out pair never shares its prompt with a training pair.
"""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tasks.common import tables, tracking
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.configs.preferences import PreferencesConfig
from tasks.language.data import given_pairs
from tasks.language.data.rows import read_files, read_hub
from tasks.language.rewards import annotator, rubric
from tasks.language.tables.preferences import Annotations, Comparisons
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tasks.stage import Metrics, main

SAMPLE_ROWS = 50  # of the rankings shown in MLflow
METRICS = {
    "pairs/train": "The number of comparisons that are trained on.",
    "pairs/test": "The number of comparisons whose prompts are held out.",
    "ties": "The share of all pairs of a prompt's responses that tie in rank, from 0 to 1.",
    "flipped": "The share of the comparisons with different rubric points whose chosen response has fewer: the annotator's noise.",
    "equal_scores": "The share of the comparisons whose two responses have equal rubric points.",
    "strong": "The share of the comparisons where one response is better and not only slightly better.",
    "score/correctness": "The mean rubric points for the final answer, of 5.",
    "score/reasoning": "The mean rubric points for steps that hold and lead to the answer, of 3.",
    "score/clarity": "The mean rubric points for plain and concise answers, of 2.",
    "score/total": "The mean rubric points, of 10.",
    "equal_texts": "The number of given rows left out, since both responses are one text.",
    "duplicates": "The number of given rows left out, since they repeat another one.",
    "leaked": "The number of given rows left out of training, since their prompt is held out.",
    "given_scores": "The share of the given pairs whose chosen response has the higher of the given scores; a tie counts half.",
}


def run(config: PreferencesConfig, responses: Path, problems: Path, out: Path) -> Metrics:
    """Write train.parquet and test.parquet (schema Comparisons); `responses` is where the pairs, or what is ranked, come from."""
    if config.source == "annotator":
        return annotated_pairs(config, responses, problems, out)
    rows = (
        read_files(responses)
        if config.source == "files"
        else read_hub(config.hub_id, config.hub_config, config.hub_revision, config.hub_split)
    )
    source = config.path if config.source == "files" else config.hub_id
    given = given_pairs.read(rows, config.test_share, config.seed, source)
    train, test = pd.DataFrame(given.train), pd.DataFrame(given.test)
    tables.write(Comparisons, train, out / "train.parquet")
    tables.write(Comparisons, test, out / "test.parquet")
    tracking.log_table(train.head(SAMPLE_ROWS), "pairs.json")
    compared = pd.concat([train, test])
    return {
        "pairs": {"train": len(train), "test": len(test)},
        "strong": _strong(compared),
        "equal_texts": given.equal,
        "duplicates": given.duplicates,
        "leaked": given.leaked,
        **({"given_scores": _agreement(compared)} if "chosen_score" in compared else {}),
    }


def annotated_pairs(config: PreferencesConfig, responses: Path, problems: Path, out: Path) -> Metrics:
    """Score, rank and pair the responses; write annotations, training comparisons and test comparisons."""
    if not (responses / "responses.parquet").is_file():
        raise DataError(
            f"{responses}: no responses.parquet; expected data/responses as preferences.path with source annotator"
        )
    rng = np.random.default_rng(config.seed)
    sampled = tables.read(Responses, responses / "responses.parquet").sort_values(["prompt_id", "sample"])
    known = {row["problem_id"]: row for row in tables.records(tables.read(Problems, problems / "train.parquet"))}
    held_out = _held_out(sampled["prompt_id"].unique(), config.test_share, rng)
    annotations: list[Record] = []
    pairs: list[Record] = []
    shown: list[Record] = []
    for prompt_id, group in sampled.groupby("prompt_id"):
        rows = tables.records(group)
        scores = [_score(known[prompt_id], row) for row in rows]
        utilities = annotator.noisy_utilities([score.total for score in scores], config.temperature, rng)
        ranking = annotator.tie_groups(utilities, config.tie_margin)
        ranks = annotator.ranks(ranking)
        for row, score, rank in zip(rows, scores, ranks, strict=True):
            key = {"prompt_id": prompt_id, "sample": row["sample"]}
            annotations.append({**key, **vars(score), "total": score.total, "rank": rank})
            row |= {"score": score.total, "rank": rank}
        pairs += _pairs(rows, utilities, config.strong_margin, rng)
        if len(shown) < SAMPLE_ROWS:
            texts = {chr(ord("A") + index): row["response"] for index, row in enumerate(rows)}
            shown.append({"prompt": rows[0]["prompt"], "ranking": annotator.ranking_text(ranking), **texts})
    tracking.log_table(pd.DataFrame(shown).fillna(""), "rankings.json")
    annotated = pd.DataFrame(annotations)
    compared = pd.DataFrame(pairs, columns=list(pairs[0]) if pairs else list(Comparisons.to_schema().columns))
    in_test = compared["prompt_id"].isin(held_out)
    for split, part in (("training", compared[~in_test]), ("test", compared[in_test])):
        if part.empty:
            raise DataError(f"preferences: no {split} pairs: all responses to those prompts tie, or are equal texts")
    tables.write(Annotations, annotated, out / "annotations.parquet")
    tables.write(Comparisons, compared[~in_test], out / "train.parquet")
    tables.write(Comparisons, compared[in_test], out / "test.parquet")
    return _metrics(annotated, compared, in_test)


def _held_out(prompt_ids: ArrayLike, share: float, rng: np.random.Generator) -> set[str]:
    order = rng.permutation(np.sort(np.asarray(prompt_ids, dtype=object)))
    return set(order[: max(1, round(share * len(order)))])


def _score(problem: Record, row: Record) -> rubric.RubricScore:
    return rubric.score(problem["question"], problem["solution"], problem["answer"], row["response"], row["ended"])


def _pairs(rows: list[Record], utilities: NDArray[np.float64], strong: float, rng: np.random.Generator) -> list[Record]:
    """All pairs of one prompt's responses that differ in rank and in text.

    A coin decides which of the two is shown as a; the comparison's id ends in their sample numbers, a first.
    """
    found = []
    for pair in combinations(range(len(rows)), 2):
        a, b = pair if rng.random() < 0.5 else pair[::-1]
        first, second = rows[a], rows[b]
        if first["rank"] == second["rank"] or first["response"] == second["response"]:
            continue
        chosen, rejected = (first, second) if first["rank"] < second["rank"] else (second, first)
        found.append(
            {
                "comparison_id": f"{first['prompt_id']}/{first['sample']}-{second['sample']}",
                "prompt_id": first["prompt_id"],
                "prompt": first["prompt"],
                **({"history": first["history"]} if "history" in first else {}),
                "chosen": chosen["response"],
                "rejected": rejected["response"],
                "chosen_ended": chosen["ended"],
                "rejected_ended": rejected["ended"],
                "chosen_score": float(chosen["score"]),
                "rejected_score": float(rejected["score"]),
                "strength": annotator.strength(utilities[a] - utilities[b], strong),
                "chosen_tokens": chosen["tokens"],
                "rejected_tokens": rejected["tokens"],
            }
        )
    return found


def _metrics(annotated: pd.DataFrame, compared: pd.DataFrame, in_test: "pd.Series[bool]") -> Metrics:
    """METRICS of the annotations and comparisons.

    As a measure for `flipped`: two annotators who each contradict the rubric in 15 % of the pairs agree with each other in 75 %;
    people did in 73 % (arXiv:2203.02155, section 3.4).
    """
    sizes = annotated.groupby("prompt_id").size()
    tied = annotated.groupby(["prompt_id", "rank"]).size()
    possible = (sizes * (sizes - 1) // 2).sum()
    gap = compared["chosen_score"] - compared["rejected_score"]
    criteria = ("correctness", "reasoning", "clarity", "total")
    return {
        "pairs": {"train": int((~in_test).sum()), "test": int(in_test.sum())},
        "ties": float((tied * (tied - 1) // 2).sum() / max(possible, 1)),
        "flipped": float((gap[gap != 0] < 0).mean()) if gap.any() else 0.0,
        "equal_scores": float((gap == 0).mean()),
        "strong": _strong(compared),
        "score": {name: float(annotated[name].mean()) for name in criteria},
    }


def _strong(compared: pd.DataFrame) -> float:
    return float((~compared["strength"].str.contains("slightly")).mean())


def _agreement(compared: pd.DataFrame) -> float:
    gap = compared["chosen_score"] - compared["rejected_score"]
    return float((gap > 0).mean() + (gap == 0).mean() / 2)


if __name__ == "__main__":
    main(run)
