"""Problems that are asked, demonstrations that SFT imitates, and prompts with the way they are judged."""

import json

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

TURN = {"role", "content"}
OTHER_KINDS = {  # small test sets of generated problems, by the names of their files
    "longer": "problems of four and five steps",
    "larger": "problems with a number above those of the training problems",
    "words": "problems in words that no problem, demonstration or pretraining text has",
    "sums": "problems with a sum or a difference that no problem, demonstration or pretraining text has",
}


def _is_json_object_or_empty(text: object) -> bool:
    try:
        return text == "" or isinstance(json.loads(str(text)), dict)
    except ValueError:
        return False


def is_messages_json_or_empty(text: object) -> bool:
    """Whether a text is JSON of messages with role and content, or empty."""
    try:
        messages = json.loads(str(text)) if text else []
    except ValueError:
        return False
    return isinstance(messages, list) and all(
        isinstance(message, dict) and message.keys() >= TURN for message in messages
    )


class Questions(Table):
    """What is asked, and what is known of the right answer.

    `history` has the turns before the question as JSON, a system prompt first; `columns` the other columns of the row
    that it was read from, a JSON object. Both are there only where some row has something in them.
    """

    question: Series[str] = pa.Field(str_length={"min_value": 1})
    solution: Series[str]  # a reference response; empty: none is known
    answer: Series[str]  # its final answer: a number, LaTeX, a letter; empty: none is known
    history: Series[str] | None
    columns: Series[str] | None

    @pa.dataframe_check(error="a solution's last line '#### ..' names the answer")
    def answer_ends_solution(cls, frame: pd.DataFrame) -> pd.Series:
        """In GSM8K's form the answer column and the solution's last line agree."""
        last = frame["solution"].str.rsplit("\n", n=1).str[-1]
        return ~last.str.startswith("#### ") | (last == "#### " + frame["answer"])

    @pa.dataframe_check(error="history is JSON of messages, columns a JSON object, each or empty")
    def has_valid_json(cls, frame: pd.DataFrame) -> pd.Series:
        """Both can be read."""
        good = pd.Series(True, index=frame.index)
        for name, check in (("history", is_messages_json_or_empty), ("columns", _is_json_object_or_empty)):
            if name in frame:
                good &= frame[name].map(check).astype(bool)
        return good


class Problems(Questions):
    """Problems: GSM8K's form has worked steps, then a last line `#### N`."""

    problem_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    steps: Series[int] = pa.Field(ge=0)


class Demonstrations(Table):
    """What SFT imitates: conversations, of which the assistant's turns are learned, or plain texts, of which every
    token is.

    `messages` is JSON of messages with role and content; one of `messages` and `text` is empty.
    """

    demonstration_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    messages: Series[str]
    text: Series[str]

    @pa.dataframe_check(error="messages with a turn of the assistant, or a text, and not both")
    def has_messages_or_text(cls, frame: pd.DataFrame) -> pd.Series:
        """Each row has something to learn from."""
        read = frame["messages"].map(is_messages_json_or_empty).astype(bool)
        answered = frame["messages"].str.contains('"role": "assistant"', regex=False)
        return read & (answered ^ (frame["text"] != "")) & ((frame["messages"] == "") ^ (frame["text"] == ""))


class Prompts(Questions):
    """What policies are trained on by reward: prompts of one or more data sets, each with how it is judged."""

    prompt_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    dataset: Series[str]  # empty for validation problems
    reward: Series[str] = pa.Field(str_length={"min_value": 1})  # policy: the reward of the stage that trains


FILES = {
    **{f"{name}.parquet": Problems for name in ("train", "validation", "test", "asked", *OTHER_KINDS)},
    **{f"demonstrations/{split}.parquet": Demonstrations for split in ("train", "validation")},
    **{f"{name}.parquet": Demonstrations for name in ("train_demonstrations", "validation_demonstrations", "selected")},
    **dict.fromkeys(("mixture/validation.parquet", "prompts.parquet"), Prompts),
}
