"""The prompts of a table as tokens: a question alone, or behind the turns of its history."""

import sys
from collections.abc import Iterable, Mapping

from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, conversations, forms, templates


def encode_prompt_with_history(tokenizer: Tokenizer, question: str, history: str = "") -> list[int]:
    """Token ids up to where the response begins; `history` is JSON of the turns before the question, or empty."""
    if not history:
        return chat.encode_prompt(tokenizer, question)
    return conversations.encode_conversation_prompt(tokenizer, forms.join_prompt(question, history))


def encode_prompt_rows(tokenizer: Tokenizer, rows: Iterable[Mapping[str, str]]) -> list[list[int]]:
    """The prompts of rows with a question and, where there is one, a history."""
    encoded = []
    rows = [*rows]
    print_unread_tools_warning(tokenizer, (row.get("history", "") for row in rows))
    for number, row in enumerate(rows):
        try:
            encoded.append(encode_prompt_with_history(tokenizer, row["question"], row.get("history", "")))
        except DataError as error:
            raise DataError(f"prompt {number} ({row['question'][:40]!r}): {error}") from None
    return encoded


def print_unread_tools_warning(tokenizer: Tokenizer, conversations_as_json: Iterable[str]) -> None:
    """A line on standard error where conversations declare tools that the chat template does not read."""
    if line := templates.format_unread_tools_warning(tokenizer, conversations_as_json):
        print(line, file=sys.stderr, flush=True)
