"""What was read and said in a game as a vector of fixed size: hashed bags of words. Nothing is learned, and nothing is
remembered elsewhere.

A bag holds the words of a text and its pairs of neighbouring words, each added to the bucket and with the sign that its
CRC-32 gives (feature hashing, arXiv:0902.2206). Upper and lower case are the same, punctuation is left out.
"""

import re
import zlib
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
WORD = re.compile(r"\w+")
TURNS = 10.0  # the number of turns is divided by it


def compute_hashed_bag_of_words(text: str, features: int) -> Vector:
    """The words of a text and its pairs of neighbouring words, in `features` buckets: (F,)."""
    words = WORD.findall(text.lower())
    buckets = np.zeros(features, np.float32)
    for term in (*words, *(f"{word} {other}" for word, other in pairwise(words))):
        code = zlib.crc32(term.encode())
        buckets[(code >> 1) % features] += 1.0 if code & 1 else -1.0
    return buckets


def compute_observation_size(features: int) -> int:
    """The length of an observation."""
    return 3 * features + 1


class GameReader:
    """Reads one game from its opening on, and says after each turn what the state is.

    An observation is, one after the other, the bag of what was just read, the bag of the action before it, the memory,
    and the number of turns divided by TURNS. The memory is the sum of the bags of all that was read and said before,
    each worth `decay` times as much with every further turn: with it a key that was taken three turns ago is still
    known.
    """

    def __init__(self, features: int, decay: float) -> None:
        self.features = features
        self.decay = decay
        self.turns = -1
        self.memory = self.last = np.zeros(features, np.float32)

    def read(self, text: str, action_text: str = "") -> Vector:
        """The observation (3 F + 1,) after `action_text` was answered with `text`; at the opening nothing was said."""
        action = compute_hashed_bag_of_words(action_text, self.features)
        heard = compute_hashed_bag_of_words(text, self.features)
        self.memory = np.float32(self.decay) * self.memory + self.last + action
        self.last = heard
        self.turns = self.turns + 1
        turns = np.array([self.turns / TURNS], np.float32)
        return np.concatenate([heard, action, self.memory, turns], dtype=np.float32)
