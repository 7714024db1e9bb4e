"""Arithmetic with a calculator: `calculate 37 * 48` is answered with the result, `answer 1776` ends the episode.

The reward is 1 for a right answer. A call can cost something, and the calculator can be left out, to see what it is
worth.
"""

import random
import re
from collections.abc import Mapping, Sequence

from tasks.agents.environments.protocol import Message, Setting, Turn, check_and_fill_settings, get_number_setting

DEFAULTS: Mapping[str, Setting] = {
    "easiest": 1,  # digits of a factor or summand, at least: 1 to 6
    "hardest": 2,  # at most: as many or more
    "tool": True,  # whether there is a calculator
    "call_cost": 0.0,  # of each call
    "turns": 4,  # after which the episode ends without an answer
}
SIGNS = ("+", "-", "*")
CALL = re.compile(r"calculate (-?\d{1,12}) ?([-+*]) ?(-?\d{1,12})")
ANSWER = re.compile(r"answer (-?\d{1,24})")


class Calculator:
    """The environment; see DEFAULTS for its settings."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        validated = check_and_fill_settings(settings, DEFAULTS)
        self.easiest = int(get_number_setting(validated, "easiest", 1, 6))
        self.hardest = int(get_number_setting(validated, "hardest", self.easiest, 6))
        self.turns = int(get_number_setting(validated, "turns", 1, 1000))
        self.call_cost = get_number_setting(validated, "call_cost", 0, 1000)
        self.tool = bool(validated["tool"])

    def reset(self, seed: int) -> Sequence[Message]:
        """Draw a task."""
        generator = random.Random(seed)
        digits = generator.randint(self.easiest, self.hardest)
        first, second = (generator.randint(10 ** (digits - 1), 10**digits - 1) for _ in range(2))
        sign = generator.choice(SIGNS)
        self.task = f"{first} {sign} {second}"
        self.result = _calculate(first, sign, second)
        self.turns_played = 0
        self.result_is_shown = False
        return [{"role": "user", "content": f"What is {self.task}?"}]

    def step(self, action: str) -> Turn:
        """Calculate or answer."""
        self.turns_played += 1
        last = self.turns_played >= self.turns
        if answer := ANSWER.fullmatch(action.strip()):
            right = float(int(answer[1]) == self.result)
            return Turn("", right, True, {"right": right})
        if self.tool and (call := CALL.fullmatch(action.strip())):
            computed = _calculate(int(call[1]), call[2], int(call[3]))
            self.result_is_shown = self.result_is_shown or computed == self.result
            return Turn(str(computed), -self.call_cost, last, {"calls": 1.0})
        return Turn("I do not understand that.", 0.0, last)

    def best_action(self) -> str:
        """Calculate first, where there is a calculator."""
        return f"calculate {self.task}" if self.tool and not self.result_is_shown else f"answer {self.result}"

    def optimum(self) -> float:
        """1: who knows the answer need not ask."""
        return 1.0


def _calculate(first: int, sign: str, second: int) -> int:
    return first + second if sign == "+" else first - second if sign == "-" else first * second
