"""The section `benchmarks` of params.yaml."""

from typing import Annotated

from pydantic import Field

from tasks.common.config import Branch, Config, Distinct, LocalPath, Seed


class Cell(Config):
    """One policy on one suite."""

    policy: str = Field(min_length=1)  # the stage that made it: its model is data/POLICY
    suite: str = Field(min_length=1)  # a name in tasks/extensions/suites/registry.py; README.md there lists them
    revision: str | None  # commit of the suite on the hub; null: the suite's file in `folder`
    shots: int = Field(ge=0, le=1000)  # examples before the problem, the first of the suite's file of examples
    samples: int = Field(ge=0, le=10**4)  # answers to each problem at `temperature`, besides the greedy one; 0: none


class BenchmarksConfig(Config):
    """Which policies answer which suites, and how."""

    branched_by = "cells"

    cells: dict[Branch, Cell]  # one policy on one suite each, by name
    folder: LocalPath  # the files of suites; a dep of the stage
    seed: Seed  # all random draws of the stage follow from it
    problems: int | None = Field(ge=1)  # the first problems of a suite; null: all
    temperature: float = Field(gt=0, le=100)  # that `samples` are drawn at
    # k of pass@k, where there are as many samples
    pass_at: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1), Distinct]
    max_new_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an answer; a longer one is cut off
    batch_size: int = Field(ge=1, le=10**6)  # problems in one batch
    strip_thinking: bool  # whether answers are judged without `<think>...</think>`; an unclosed block is no answer
