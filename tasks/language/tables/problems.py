"""Problems that are asked, demonstrations of their solutions, and prompts with the way they are judged."""

import json
from contextlib import suppress

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table

NUMBER = r"^-?\d+(\.\d+)?$"


def _is_object(text: str) -> bool:
    with suppress(ValueError):
        return isinstance(json.loads(text), dict)
    return False


class Problems(Table):
    """Word problems in GSM8K's form: worked steps, then a last line `#### N`."""

    problem_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    question: Series[str] = pa.Field(str_length={"min_value": 1})
    solution: Series[str] = pa.Field(str_length={"min_value": 1})
    answer: Series[str] = pa.Field(str_matches=NUMBER)
    steps: Series[int] = pa.Field(ge=0)

    @pa.dataframe_check(error="the solution ends with '#### ' and the answer")
    def answer_ends_solution(cls, frame: pd.DataFrame) -> pd.Series:
        """The answer column and the solution's last line agree."""
        last = frame["solution"].str.rsplit("\n", n=1).str[-1]
        return last == "#### " + frame["answer"]


class Demonstrations(Table):
    """What SFT imitates: a prompt and the response someone gave to it, good or not."""

    problem_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    prompt: Series[str] = pa.Field(str_length={"min_value": 1})
    response: Series[str] = pa.Field(str_length={"min_value": 1})


class Prompts(Table):
    """What policies are trained on by reward: problems of one or more data sets, each with how it is judged."""

    prompt_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    dataset: Series[str] = pa.Field(str_length={"min_value": 1})
    question: Series[str] = pa.Field(str_length={"min_value": 1})
    solution: Series[str] = pa.Field(str_length={"min_value": 1})
    answer: Series[str] = pa.Field(str_matches=NUMBER)
    reward: Series[str] = pa.Field(str_length={"min_value": 1})  # policy: the reward of the stage that trains
    columns: Series[str] | None = pa.Field(nullable=True)  # what else the data set says of the prompt: a JSON object

    @pa.check("columns", error="a JSON object")
    def columns_are_objects(cls, values: Series[str]) -> pd.Series:
        """Each text is a JSON object."""
        return values.map(_is_object)
