"""The prompts of a table as tokens: a question alone, or behind the turns of its history."""

from collections.abc import Iterable, Mapping

from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, conversations, forms


def encode(tokenizer: Tokenizer, question: str, history: str = "") -> list[int]:
    """Token ids up to where the response begins; `history` is JSON of the turns before the question, or empty."""
    if not history:
        return chat.encode_prompt(tokenizer, question)
    return conversations.encode_prompt(tokenizer, forms.joined_prompt(question, history))


def encode_rows(tokenizer: Tokenizer, rows: Iterable[Mapping[str, str]]) -> list[list[int]]:
    """The prompts of rows with a question and, where there is one, a history."""
    found = []
    for number, row in enumerate(rows):
        try:
            found.append(encode(tokenizer, row["question"], row.get("history", "")))
        except DataError as error:
            raise DataError(f"prompt {number} ({row['question'][:40]!r}): {error}") from None
    return found
