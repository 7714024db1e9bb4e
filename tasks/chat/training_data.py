"""What a model of the pipeline was fine-tuned on, as far as a person who chats with it wants to know."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tasks.common import tables
from tasks.language.tables.problems import Demonstrations


class TrainingData(NamedTuple):
    """How many conversations there were, the most questions in one of them, and one of the shortest questions."""

    conversations: int
    most_turns: int
    example: str


def summarize_training_data(file: Path) -> TrainingData | None:
    """The summary of a table of demonstrations; None without conversations in it."""
    texts = tables.read_table(Demonstrations, file)["messages"]
    turns = [list_questions(json.loads(text)) for text in texts if text]
    openings = [questions[0] for questions in turns if questions]
    if not openings:
        return None
    return TrainingData(len(turns), max(map(len, turns)), min(openings, key=len))


def list_questions(messages: list[dict[str, Any]]) -> list[str]:
    """What the user says in a conversation, as far as it is text."""
    return [str(message["content"]) for message in messages if message["role"] == "user" and message["content"]]


def describe_training_data(data: TrainingData) -> str:
    """The summary as a sentence, which says too that each question is sent alone where the model knows single ones."""
    turns = "one question" if data.most_turns == 1 else f"up to {data.most_turns} questions"
    alone = ", so each question is sent without the ones before it" if data.most_turns == 1 else ""
    return f"trained on {data.conversations:,} conversations of {turns}{alone}; for example:\n{data.example}"
