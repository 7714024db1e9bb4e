"""A policy's answers to a benchmark suite."""

import pandas as pd
import pandera.pandas as pa
from pandera.typing import Series

from tasks.common.tables import Table


class SuiteQuestions(Table):
    """The problems of a suite that were asked. With choices, `choices` is JSON of labels and texts."""

    problem_id: Series[str] = pa.Field(unique=True, str_length={"min_value": 1})
    question: Series[str] = pa.Field(str_length={"min_value": 1})
    answer: Series[str] = pa.Field(str_length={"min_value": 1})
    level: Series[str]
    subject: Series[str]
    choices: Series[str]
    readable: Series[bool]  # whether the reference itself is right by the suite's scoring


class Answers(Table):
    """Answers: one greedy (temperature 0) to each problem, and samples. Of a suite by likelihood `response` is the
    chosen text, and nothing is timed.

    `by_method` is JSON: whether other ways of extraction find the right answer too; empty where that was not asked.
    """

    problem_id: Series[str]
    temperature: Series[float] = pa.Field(ge=0)
    sample: Series[int] = pa.Field(ge=0)
    response: Series[str]
    extracted: Series[str]
    right: Series[bool]
    timed_out: Series[bool] | None  # and so wrong: its formula took too long to judge
    by_method: Series[str]
    length: Series[int] = pa.Field(ge=0)
    ended: Series[bool]

    @pa.dataframe_check(error="a problem's samples at a temperature are numbered once each")
    def samples_unique(cls, frame: pd.DataFrame) -> pd.Series:
        """(problem_id, temperature, sample) is a key."""
        return ~frame.duplicated(["problem_id", "temperature", "sample"])


FILES = {"suite_problems.parquet": SuiteQuestions, "suite_answers.parquet": Answers}
