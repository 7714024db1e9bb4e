"""`posttrain evaluate` with benchmark suites: it takes the place of the command without them."""

import re
from pathlib import Path
from typing import Annotated

import typer

from flows import model_commands
from flows.params.files import find_root
from flows.running import WrongUseError


def evaluate(
    model: model_commands.EvaluatedModel,
    data: model_commands.TestData = None,
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME@COMMIT", help="Benchmark suites: from files, or from the hub at a commit."),
    ] = None,
    suites: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the files of suites are.")] = None,
    shots: Annotated[int | None, typer.Option(min=0, help="With a suite: examples before each problem.")] = None,
    reward_model: model_commands.Scorer = None,
    problems: model_commands.Problems = None,
    samples: model_commands.Samples = None,
    max_new_tokens: model_commands.MaxNewTokens = None,
    batch_size: model_commands.BatchSize = None,
    revision: model_commands.Revision = "main",
    out: model_commands.Out = None,
) -> int:
    """Judge one model alone, on test problems of your own, the pipeline's, or benchmark suites; nothing is trained for
    it.
    """
    if suite is None:
        if suites is not None or shots is not None:
            raise WrongUseError("--suites and --shots are about suites; expected --suite with them")
        return model_commands.evaluate(
            model, data, reward_model, problems, samples, max_new_tokens, batch_size, revision, out
        )
    if data is not None or reward_model is not None:
        raise WrongUseError(
            "--suite brings its own problems and scoring; expected it without --data and --reward-model"
        )
    options = [f"--suite={suite}"]
    options += [f"--suites={suites.absolute()}"] if suites is not None else []
    numbers = {"problems": problems, "samples": samples, "max-new-tokens": max_new_tokens, "batch-size": batch_size}
    numbers["shots"] = shots
    short = re.sub(r"(@\w{8})\w*", r"\1", suite)  # as commits are shown
    source = Path("suites", re.sub(r"[^\w-]+", "-", short))  # each choice of suites has a folder, by default
    return model_commands.run_model_evaluation(
        find_root(), "tasks.extensions.suites.evaluation", model, revision, source, out, options, numbers
    )


COMMANDS = (evaluate,)
