"""A number to guess: an example of an environment of one's own."""

import random


class Guess:
    """A number from 1 to `largest`; every guess is answered with higher or lower."""

    def __init__(self, settings):
        self.largest = settings.get("largest", 20)
        self.turns = settings.get("turns", 6)

    def reset(self, seed):
        """Open the game of this seed."""
        generator = random.Random(seed)
        self.number = generator.randint(1, self.largest)
        self.low, self.high, self.turns_played = 1, self.largest, 0
        return f"Game {seed}: guess a number from 1 to {self.largest}."

    def step(self, action):
        """The observation, the reward, whether the game is over, and what is counted."""
        self.turns_played += 1
        words = action.split()
        guess = int(words[1]) if len(words) == 2 and words[0] == "guess" and words[1].isdecimal() else None
        if guess == self.number:
            return "Right.", 1.0, True, {"right": 1}
        if guess is None:
            said = "Say guess and a number."
        elif guess < self.number:
            said, self.low = "Higher.", max(self.low, guess + 1)
        else:
            said, self.high = "Lower.", min(self.high, guess - 1)
        return said, 0.0, self.turns_played == self.turns, {}

    def best_action(self):
        """Halve what is left: this, and only this, is what an expert needs to be cloned."""
        return f"guess {(self.low + self.high) // 2}"
