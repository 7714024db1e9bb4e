"""A sentiment classifier of another kind than a language model: linear over which words and pairs of neighbouring words
a text has.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.extensions.reviews.algorithms import logistic_regression

WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """The words of a text in small letters; a sign is a word of its own."""
    return WORD.findall(text.lower())


def list_words_and_bigrams(text: str) -> list[str]:
    """The words, and the pairs of neighbours joined by a space."""
    text_words = split_words(text)
    return [*text_words, *(f"{word} {next_word}" for word, next_word in pairwise(text_words))]


@dataclass(frozen=True)
class WordClassifier:
    """Its terms with their weights in the log-odds of a positive text."""

    places: dict[str, int]
    weights: NDArray[np.float64]
    bias: float

    def positive(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The probability that each text is positive (N,)."""
        logits = torch.mv(build_term_matrix(texts, self.places), torch.from_numpy(self.weights)) + self.bias
        probabilities: NDArray[np.float64] = logits.sigmoid().numpy()
        return probabilities

    def praise(self, count: int) -> list[str]:
        """The single words that speak most for a positive text, the strongest first."""
        single = [name for name in self.places if " " not in name and name[0].isalpha()]
        return sorted(single, key=lambda name: (-self.weights[self.places[name]], name))[:count]


def build_term_matrix(texts: Sequence[str], term_columns: dict[str, int]) -> Tensor:
    """Which terms each text has: ones in a sparse matrix (N, V); terms without a place are passed over."""
    at = [
        (row, term_columns[term])
        for row, text in enumerate(texts)
        for term in sorted({*list_words_and_bigrams(text)} & term_columns.keys())
    ]
    indices = torch.tensor(at, dtype=torch.long).reshape(-1, 2).T
    ones = torch.ones(len(at), dtype=torch.float64)
    return torch.sparse_coo_tensor(indices, ones, (len(texts), len(term_columns)), check_invariants=True)


def fit_word_classifier(texts: Sequence[str], positive: Sequence[bool], minimum: int, l2: float) -> WordClassifier:
    """Learn from texts with labels; a term counts if at least `minimum` of them have it."""
    counts = Counter(term for text in texts for term in {*list_words_and_bigrams(text)})
    term_columns = {
        term: column for column, term in enumerate(sorted(term for term in counts if counts[term] >= minimum))
    }
    weights, bias = logistic_regression.fit_logistic_regression(
        build_term_matrix(texts, term_columns), torch.tensor([*positive]), l2
    )
    return WordClassifier(term_columns, weights.numpy(), bias.item())
