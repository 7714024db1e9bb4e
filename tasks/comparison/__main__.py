"""`python -m tasks.comparison`: hold two evaluations against each other. `posttrain compare` starts it.

Standard input is a JSON object: `most`, how many flipped answers are told each way, and `pairs`, each with its `flow`,
with `same` if both sides are one and the same evaluation, and with the files of its sides `a` and `b`. Standard output
is the list of the pairs' comparisons; of a pair that cannot be compared it has only the `fault`, in one line.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from tasks.common.errors import StageError
from tasks.common.terminal import format_in_one_line
from tasks.comparison import evaluations, returns


def compare_pair(pair: Mapping[str, Any], most: int) -> dict[str, Any]:
    """One pair."""
    a = pair["a"]
    b = pair["b"]
    same = bool(pair["same"])
    try:
        if pair["flow"] == "offline":
            return returns.compare_returns(a, b, same)
        if pair["flow"] == "agents":
            return returns.compare_game_returns(a, b, same)
        return evaluations.compare_evaluations(
            evaluations.read_evaluation(a), evaluations.read_evaluation(b), same, most
        )
    except (StageError, OSError, ValueError, KeyError) as error:
        return {"fault": format_in_one_line(str(error)) or type(error).__name__}


def main() -> None:
    """Read, compare, print."""
    request = json.load(sys.stdin)
    print(json.dumps([compare_pair(pair, request["most"]) for pair in request["pairs"]]))


if __name__ == "__main__":
    main()
