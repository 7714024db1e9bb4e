"""What is measured of a policy's continuations: means over openings with 95 % intervals, an opening's samples averaged
first.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.common import estimates, paired_intervals
from tasks.common.estimates import Estimate
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.extensions.reviews.word_classifier import split_words

POSITIVE = 0.5  # a text counts as positive above it
SENTENCE = re.compile(r"(?<=[.!?])\s+")
METRICS = {
    "positive/first": "The share of the continuations that the reward model takes for positive: what "
    "policies are paid for.",
    "positive/second": "The same share by the second classifier, which is never a reward.",
    "gap": "The first share minus the second: above the SFT model's where a policy pleases its reward more than "
    "another judge.",
    "over_sft/first": "The policy's share by the reward model minus the SFT model's, opening by opening.",
    "over_sft/second": "The same difference by the second classifier.",
    "kl": "The mean over continuations of log pi - log pi_SFT (k1), in nats: how far the policy has "
    "gone from the SFT model.",
    "kl_token": "The same in nats a token: the sum over all continuations by the number of their tokens.",
    "perplexity": "The perplexity of the continuations under the SFT model: the exponential of its mean negative "
    "log-likelihood a token.",
    "distinct_1": "The share of the words of an opening's samples that are different ones, from 0 to 1; it falls "
    "where a policy repeats itself.",
    "distinct_2": "The same share of pairs of neighbouring words.",
    "commonest": "The share of all sentences that the policy's commonest sentence has: the "
    "plainest sign of a collapse.",
    "praise": "The share of all words that are among the 20 which speak most for a positive text, by the second "
    "classifier.",
    "tokens": "The mean length of a continuation in tokens.",
}


def split_sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [part for part in SENTENCE.split(text.strip()) if part]


def compute_distinct_ngram_share(texts: Sequence[str], size: int) -> float:
    """Of all runs of `size` words in the texts, the share of different ones (arXiv:1510.03055, section 5.4); 0 without
    any.
    """
    ngrams = [run for text in texts for run in list_ngrams(split_words(text), size)]
    return len({*ngrams}) / len(ngrams) if ngrams else 0.0


def list_ngrams(text_words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All runs of `size` neighbours."""
    return [tuple(text_words[at : at + size]) for at in range(len(text_words) - size + 1)]


def find_commonest_sentence(texts: Sequence[str]) -> str:
    """The sentence that the texts have most often; of equals the first by the alphabet. Empty without any."""
    counts = Counter(sentence for text in texts for sentence in split_sentences(text))
    return min(counts, key=lambda candidate: (-counts[candidate], candidate), default="")


def aggregate_by_opening(samples: pd.DataFrame, praise: Sequence[str]) -> pd.DataFrame:
    """Sums and means of each opening's samples, from which all measures are made."""
    texts = samples["continuation"]
    top = find_commonest_sentence(samples["continuation"].tolist())
    text_words = texts.map(split_words)
    good = {*praise}
    rows = pd.DataFrame(
        {
            "opening_id": samples["opening_id"],
            "first": (samples["first"] > POSITIVE).astype(float),
            "second": (samples["second"] > POSITIVE).astype(float),
            "kl": samples["logp"] - samples["reference"],
            "surprise": -samples["reference"],
            "tokens": samples["tokens"].astype(float),
            "sentences": texts.map(lambda text: float(len(split_sentences(text)))),
            "top": texts.map(lambda text: float(split_sentences(text).count(top))),
            "words": text_words.map(lambda word_list: float(len(word_list))),
            "praise": text_words.map(lambda word_list: float(sum(word in good for word in word_list))),
        }
    )
    means = rows.groupby("opening_id", sort=True).mean()
    for size in (1, 2):
        means[f"distinct_{size}"] = [
            compute_distinct_ngram_share([*some], size) for _, some in texts.groupby(samples["opening_id"], sort=True)
        ]
    return means


def estimate_policy_measures(
    config: SteeringConfig, per_opening: pd.DataFrame, sft: pd.DataFrame
) -> dict[str, Estimate]:
    """METRICS of one policy, and the differences to the SFT model, from `by_opening` of both."""

    def mean(values: pd.Series) -> Estimate:
        return estimates.bootstrap_mean(values.to_numpy(), config.seed, config.bootstrap)

    def ratio(parts: str, wholes: str) -> Estimate:
        return estimates.bootstrap_ratio(
            per_opening[parts].to_numpy(), per_opening[wholes].to_numpy(), config.seed, config.bootstrap
        )

    surprise = ratio("surprise", "tokens")
    metrics = {
        "positive/first": estimates.estimate_share(per_opening["first"]),
        "positive/second": estimates.estimate_share(per_opening["second"]),
        "gap": mean(per_opening["first"] - per_opening["second"]),
        "kl": mean(per_opening["kl"]),
        "kl_token": ratio("kl", "tokens"),
        "perplexity": Estimate(*(float(np.exp(value)) for value in (surprise.mean, surprise.low, surprise.high))),
        "distinct_1": mean(per_opening["distinct_1"]),
        "distinct_2": mean(per_opening["distinct_2"]),
        "commonest": ratio("top", "sentences") if per_opening["sentences"].any() else Estimate(0.0, 0.0, 0.0),
        "praise": ratio("praise", "words") if per_opening["words"].any() else Estimate(0.0, 0.0, 0.0),
        "tokens": mean(per_opening["tokens"]),
    }
    if per_opening is not sft:
        changes: NDArray[np.float64] = (per_opening[["first", "second"]] - sft[["first", "second"]]).to_numpy()
        first, second = paired_intervals.bootstrap_mean_differences(changes)
        metrics |= {"over_sft/first": first, "over_sft/second": second}
    return metrics


def build_measures_table(by_policy: Mapping[str, Mapping[str, Estimate]]) -> pd.DataFrame:
    """All policies' measures (schema SteeringMeasures)."""
    return pd.DataFrame(
        {"policy": policy, "measure": name, "mean": estimate.mean, "low": estimate.low, "high": estimate.high}
        for policy, metrics in by_policy.items()
        for name, estimate in metrics.items()
    )
