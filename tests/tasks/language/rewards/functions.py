"""Calls of a reward in Python, for tests."""

PROMPTS, RESPONSES = ["one?", "two?", "three?"], ["a", "bb", "ccc"]
COLUMNS = {"answer": ["1", "2", "3"], "level": [5, None, 7]}


def values(function, responses=RESPONSES):
    """The function's rewards of up to three responses."""
    columns = {name: column[: len(responses)] for name, column in COLUMNS.items()}
    return function(PROMPTS[: len(responses)], responses, columns).values
