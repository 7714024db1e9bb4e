"""The data of the report's microscope: of each policy trained by reward its trends, and some of what it sampled, token
by token.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from tasks.common import tables
from tasks.common.tables import Record
from tasks.language.tables.rollouts import FILE, RolloutTable

TRENDS = (  # columns of a curve that can be looked at, in this order
    "reward",
    "reward/none",
    "eval_reward",
    "eval_accuracy",
    "eval_rubric",
    "completions/mean_length",
    "completions/clipped_ratio",
    "entropy",
    "policy/entropy",
    "objective/kl",
    "kl",
    "frac_reward_zero_std",
    "sampling/logp_difference",
)
POINTS = 200  # of a trend; of a longer one evenly spread steps are shown
ROOM = 450_000  # characters of a stage's answers; where they have more, answers are shown up to fewer tokens
DIGITS = 3
PROMPT = 4000  # characters of a prompt's end that are shown


def microscope(folders: Mapping[str, Path], drawn: Mapping[str, pd.DataFrame]) -> list[Record]:
    """One entry for each policy whose evaluation has rollouts; the page's script reads them."""
    policy_entries = []
    for name, folder in folders.items():
        if (folder / FILE).is_file():
            table = tables.read(RolloutTable, folder / FILE)
            policy_entries.append({"name": name, "trends": trends(drawn[name]), **_answers(table)})
    return policy_entries


def temperatures(folders: Mapping[str, Path]) -> dict[str, float]:
    """At which temperature each policy that has rollouts was sampled while it was trained."""
    files = {name: folder / FILE for name, folder in folders.items()}
    return {
        name: float(tables.read(RolloutTable, file)["temperature"].iloc[0])
        for name, file in files.items()
        if file.is_file()
    }


def trends(curve: pd.DataFrame) -> list[Record]:
    """The steps and values of each trend that the curve has."""
    every = max(1, -(-len(curve) // POINTS))
    thin = curve[(curve["step"] % every == 0) | curve["step"].isin((curve["step"].min(), curve["step"].max()))]
    return [
        {"name": name, "steps": thin["step"].tolist(), "values": _rounded(thin[name])}
        for name in TRENDS
        if name in thin
    ]


def _answers(table: pd.DataFrame) -> Record:
    """Prompts and answers of as many tokens as there is room for."""
    prompts = list(dict.fromkeys(table["prompt"]))
    tokens = int(table["tokens"].map(len).max())
    while True:
        answers = [_answer(row, prompts, tokens) for row in tables.records(table)]
        if tokens <= 16 or len(json.dumps(answers, ensure_ascii=False)) <= ROOM:
            return {
                "prompts": [text[-PROMPT:] for text in prompts],
                "answers": answers,
                "reference": "reference_logps" in table,
            }
        tokens //= 2


def _answer(row: Record, prompts: list[str], tokens: int) -> Record:
    shown = {
        "pieces": list(row["pieces"])[:tokens],
        "sampled": _rounded(row["logps"][:tokens]),
        "final": _rounded(row["final_logps"][:tokens]),
        "advantages": _rounded(row["advantages"][:tokens]),
    }
    if "reference_logps" in row:
        shown["reference"] = _rounded(row["reference_logps"][:tokens])
    parts = {name: None if value is None else round(value, DIGITS) for name, value in json.loads(row["parts"]).items()}
    return {
        "step": row["step"],
        "group": row["group"],
        "prompt": prompts.index(row["prompt"]),
        "reward": None if row["reward"] != row["reward"] else round(row["reward"], DIGITS),
        "parts": parts,
        "ended": row["ended"],
        "length": row["length"],
        **shown,
    }


def _rounded(values: Sequence[float] | pd.Series) -> list[float]:
    return [round(float(value), DIGITS) + 0.0 for value in values]
