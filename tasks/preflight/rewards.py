"""Each reward that counts, tried on a reference, an empty, a huge and a hostile answer, with the time that each
takes.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from tasks.language.configs.parts.python_rewards import BY_MODEL, is_python_reward
from tasks.language.rewards import weighted_rewards
from tasks.language.rewards.python_functions import FunctionWorker, PythonFunction
from tasks.language.rewards.reward import AnsweredProblem
from tasks.language.rewards.verifier import Verifier

HUGE = 100_000  # characters
HOSTILE = "\\boxed{9**9**9**9}\n\x1b[2J\x00<|end|> #### " + "(" * 2000


def iterate_reward_trials(
    name: str, row: Mapping[str, Any], columns: Mapping[str, Any], config: Any
) -> Iterator[tuple[str, float, float]]:
    """(answer, reward, seconds) for each of the four answers, a reference where there is one; the reward is nan where
    it does not apply.
    """
    answers = {"reference": row["solution"], "empty": "", "huge": "7 " * (HUGE // 2), "hostile": HOSTILE}
    if not row["solution"]:
        del answers["reference"]
    with ExitStack() as ending:
        verifier = ending.enter_context(Verifier())
        helpers = ending.enter_context(weighted_rewards.open_reward_helpers({name: 1.0}))
        functions = {}
        if is_python_reward(name):
            functions[name] = PythonFunction(name, Path(config.reward_files), config.reward_seconds)
            ending.callback(functions[name].close)
        for what, text in answers.items():
            answered = AnsweredProblem(row["question"], row["solution"], row["answer"], text, True, columns)
            started = time.monotonic()
            scores = weighted_rewards.compute_weighted_rewards(
                [answered], {name: 1.0}, verifier, None, functions, helpers
            )
            yield what, scores.total[0].item(), time.monotonic() - started


def iterate_reward_trial_lines(section: str, config: Any, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each reward of a section that counts, but for those of a reward model, which need its weights.

    The prompt is the first of `rows` that the section's own reward is for; without any, the files of functions in
    Python are loaded.
    """
    policy_rows = [row for row in rows if row.get("reward", "policy") == "policy"]
    further = [json.loads(row.get("columns") or "{}") for row in policy_rows]
    for name, weight in config.reward.items():
        if weight and is_python_reward(name) and not policy_rows:
            FunctionWorker(name).close()
            yield f"{section}.reward {name}: it can be loaded; there are no prompts yet to try it on"
        if weight and name not in BY_MODEL and policy_rows:
            columns = dict.fromkeys(chain.from_iterable(further)) | further[0]
            trials = [
                f"{what} {'none' if math.isnan(value) else f'{value:.2f}'} ({1000 * seconds:.0f} ms)"
                for what, value, seconds in iterate_reward_trials(name, policy_rows[0], columns, config)
            ]
            yield f"{section}.reward {name}: {', '.join(trials)}"
