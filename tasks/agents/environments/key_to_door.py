"""Key-to-door in words: a key to take at first, an orchard for some turns, then a door that only the key opens
(arXiv:1810.06721).

What decides about the last reward is the first action. The apples between pay by chance, more or less than nothing: a
policy that credits every action with the whole return mistakes their luck for its merit.
"""

import random
from collections.abc import Mapping, Sequence

from tasks.agents.environments.protocol import Message, Setting, Turn, check_and_fill_settings, get_number_setting

DEFAULTS: Mapping[str, Setting] = {
    "orchard": 4,  # turns between the key and the door: 0 to 100
    "apples": 0.5,  # an apple is worth more or less than nothing, at most by this
    "boxes": 3,  # where the key can be: 2 to 6
}
PLACES = ("red", "blue", "green", "yellow", "black", "white")
RULES = "Take the key from its box, walk through the orchard, open the door. Say take and a box, pick or walk, open."


class KeyToDoor:
    """The environment; see DEFAULTS for its settings."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        validated = check_and_fill_settings(settings, DEFAULTS)
        self.orchard = int(get_number_setting(validated, "orchard", 0, 100))
        self.boxes = int(get_number_setting(validated, "boxes", 2, len(PLACES)))
        self.apples = get_number_setting(validated, "apples", 0, 1000)

    def reset(self, seed: int) -> Sequence[Message]:
        """Draw a game."""
        generator = random.Random(seed)
        colours = generator.sample(PLACES, self.boxes)
        self.key_box = generator.choice(colours)
        self.has_key = False
        self.turns_played = 0
        self.worth = [generator.uniform(-self.apples, self.apples) for _ in range(self.orchard)]
        seen = f"Boxes: {', '.join(colours)}. The key is in the {self.key_box} box."
        return [{"role": "user", "content": f"{RULES} Game {seed % 1000}. {seen}"}]

    def step(self, action: str) -> Turn:
        """Act; anything that is not said of the place where one is does nothing, and time goes on."""
        turn = self.turns_played
        command = " ".join(action.lower().split())
        reward = 0.0
        self.turns_played += 1
        if turn == 0:
            self.has_key = command == f"take {self.key_box}"
            feedback = "You have the key." if self.has_key else "You have nothing."
        elif turn <= self.orchard:
            picks = command == "pick"
            reward = self.worth[turn - 1] if picks else 0.0
            feedback = "You eat an apple." if picks else "You walk on."
        else:
            opens = float(command == "open" and self.has_key)
            return Turn("", opens, True, {"opened": opens})
        return Turn(
            f"{feedback} {'Apples hang here.' if self.turns_played <= self.orchard else 'Here is the door.'}",
            reward,
            False,
        )

    def best_action(self) -> str:
        """The key, the good apples, the door."""
        if self.turns_played == 0:
            return f"take {self.key_box}"
        if self.turns_played <= self.orchard:
            return "pick" if self.worth[self.turns_played - 1] > 0 else "walk"
        return "open"

    def optimum(self) -> float:
        """The door, if it can still be opened, and every apple that is good."""
        left = sum(max(0.0, worth) for worth in self.worth[max(0, self.turns_played - 1) :])
        return left + float(self.has_key or self.turns_played == 0)
