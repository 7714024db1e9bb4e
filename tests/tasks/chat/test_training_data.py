"""What a chat says of the conversations that its model learned from."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tasks.chat.training_data import TrainingData, describe_training_data, summarize_training_data
from tasks.common import tables
from tasks.language.tables.problems import Demonstrations


def write_demonstrations(folder: Path, *conversations: tuple[str, ...]) -> Path:
    """A table whose conversations have these questions, each answered with `yes`; without one, a plain text."""
    rows = []
    for number, questions in enumerate(conversations):
        messages = [
            {"role": role, "content": content}
            for question in questions
            for role, content in (("user", question), ("assistant", "yes"))
        ]
        text = "" if questions else "A text."
        rows.append(
            {"demonstration_id": str(number), "messages": json.dumps(messages) if questions else "", "text": text}
        )
    tables.write_table(Demonstrations, pd.DataFrame(rows), folder / "train.parquet")
    return folder / "train.parquet"


@pytest.mark.parametrize(
    ("conversations", "summary"),
    [
        ([("What is 12 + 3?",), ("What is 1 + 2?",)], TrainingData(2, 1, "What is 1 + 2?")),
        ([("What is 12 + 3?", "And 4?"), ("Who are you?",), ()], TrainingData(2, 2, "Who are you?")),
        ([()], None),
    ],
)
def test_the_summary_counts_conversations_and_questions(
    tmp_path: Path, conversations: list[tuple[str, ...]], summary: TrainingData | None
) -> None:
    assert summarize_training_data(write_demonstrations(tmp_path, *conversations)) == summary


def test_the_sentence_says_how_questions_are_sent() -> None:
    assert describe_training_data(TrainingData(8000, 1, "How many?")) == (
        "trained on 8,000 conversations of one question, so each question is sent without the ones before it; "
        "for example:\nHow many?"
    )
    assert describe_training_data(TrainingData(2, 3, "Who?")) == (
        "trained on 2 conversations of up to 3 questions; for example:\nWho?"
    )
