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


def build_token_view_entries(folders: Mapping[str, Path], drawn: Mapping[str, pd.DataFrame]) -> list[Record]:
    """One entry for each policy whose evaluation has rollouts; the page's script reads them."""
    policy_entries = []
    for name, folder in folders.items():
        if (folder / FILE).is_file():
            table = tables.read_table(RolloutTable, folder / FILE)
            policy_entries.append(
                {"name": name, "trends": build_curve_trends(drawn[name]), **_build_answers_view(table)}
            )
    return policy_entries


def read_rollout_temperatures(folders: Mapping[str, Path]) -> dict[str, float]:
    """At which temperature each policy that has rollouts was sampled while it was trained."""
    files = {name: folder / FILE for name, folder in folders.items()}
    return {
        name: float(tables.read_table(RolloutTable, file)["temperature"].iloc[0])
        for name, file in files.items()
        if file.is_file()
    }


def build_curve_trends(curve: pd.DataFrame) -> list[Record]:
    """The steps and values of each trend that the curve has."""
    every = max(1, -(-len(curve) // POINTS))
    thin = curve[(curve["step"] % every == 0) | curve["step"].isin((curve["step"].min(), curve["step"].max()))]
    return [
        {"name": name, "steps": thin["step"].tolist(), "values": _round_values(thin[name])}
        for name in TRENDS
        if name in thin
    ]


def _build_answers_view(table: pd.DataFrame) -> Record:
    """Prompts and answers of as many tokens as there is room for."""
    prompts = list(dict.fromkeys(table["prompt"]))
    tokens = int(table["tokens"].map(len).max())
    while True:
        answers = [_build_answer_entry(row, prompts, tokens) for row in tables.list_records(table)]
        if tokens <= 16 or len(json.dumps(answers, ensure_ascii=False)) <= ROOM:
            return {
                "prompts": [text[-PROMPT:] for text in prompts],
                "answers": answers,
                "reference": "reference_logps" in table,
            }
        tokens //= 2


def _build_answer_entry(row: Record, prompts: list[str], tokens: int) -> Record:
    shown = {
        "pieces": list(row["pieces"])[:tokens],
        "sampled": _round_values(row["logps"][:tokens]),
        "final": _round_values(row["final_logps"][:tokens]),
        "advantages": _round_values(row["advantages"][:tokens]),
    }
    if "reference_logps" in row:
        shown["reference"] = _round_values(row["reference_logps"][:tokens])
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


def _round_values(values: Sequence[float] | pd.Series) -> list[float]:
    return [round(float(value), DIGITS) + 0.0 for value in values]
