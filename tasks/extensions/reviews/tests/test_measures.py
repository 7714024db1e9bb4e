"""What is measured of continuations, worked out by hand."""

import math

import pandas as pd
import pytest

from tasks.common import tables
from tasks.extensions.reviews import measures
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.extensions.reviews.tables.steering import SteeringMeasures
from tests.conftest import PARAMS

CONFIG = SteeringConfig.model_validate({**PARAMS["steering"], "bootstrap": 200})


def continuations(rows):
    """(opening, text, tokens, logp, reference, first, second) of each sample."""
    names = ("opening_id", "continuation", "tokens", "logp", "reference", "first", "second")
    table = pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows])
    return table.assign(policy="ppo", sample=table.groupby("opening_id").cumcount(), opening="I saw it.", ended=True)


ROWS = [
    ("a", "It was superb. It was superb.", 8, -4.0, -8.0, 0.9, 0.8),
    ("a", "It was dull.", 4, -3.0, -4.0, 0.2, 0.6),
    ("b", "It was superb.", 4, -2.0, -3.0, 0.51, 0.4),
    ("b", "So moving!", 3, -1.0, -5.0, 1.0, 0.5),
]


@pytest.fixture
def found():
    own = measures.aggregate_by_opening(continuations(ROWS), ["superb", "moving"])
    return measures.estimate_policy_measures(CONFIG, own, own)


def test_shares_and_the_gap(found):
    """A probability of exactly one half is not positive."""
    assert found["positive/first"].mean == pytest.approx(3 / 4)
    assert found["positive/second"].mean == pytest.approx(2 / 4)
    assert found["gap"].mean == pytest.approx(1 / 4)


def test_the_price(found):
    kl = [4.0, 1.0, 1.0, 4.0]
    assert found["kl"].mean == pytest.approx(sum(kl) / 4)
    assert found["kl_token"].mean == pytest.approx(sum(kl) / 19)
    assert found["perplexity"].mean == pytest.approx(math.exp(20 / 19))
    assert found["tokens"].mean == pytest.approx(19 / 4)
    wrong = math.exp((8 / 8 + 4 / 4 + 3 / 4 + 5 / 3) / 4)  # a mean of the samples' own
    assert found["perplexity"].mean != pytest.approx(wrong, rel=0.01)


def test_variety(found):
    """Opening a has 8 + 4 words, of them it, was, superb, dull and the full stop; opening b 4 + 3, of them seven."""
    assert found["distinct_1"].mean == pytest.approx((5 / 12 + 7 / 7) / 2)
    pairs_a, pairs_b = {"it was", "was superb", "superb .", ". it", "was dull", "dull ."}, 5
    assert found["distinct_2"].mean == pytest.approx((len(pairs_a) / 10 + pairs_b / 5) / 2)
    assert found["commonest"].mean == pytest.approx(3 / 5)
    assert found["praise"].mean == pytest.approx(4 / 19)


def test_distinct_and_commonest():
    assert measures.compute_distinct_ngram_share(["a a a", "a"], 1) == 1 / 4
    assert measures.compute_distinct_ngram_share(["a a a", "a"], 2) == 1 / 2
    assert measures.compute_distinct_ngram_share(["a", ""], 2) == 0.0
    assert measures.find_commonest_sentence(["Two. One.", "One. Two."]) == "One."
    assert measures.find_commonest_sentence([""]) == ""
    assert measures.split_sentences(" It was 3.5 hours! Long?  No.") == ["It was 3.5 hours!", "Long?", "No."]


def test_the_difference_is_opening_by_opening():
    sft = measures.aggregate_by_opening(continuations(ROWS), [])
    own = measures.aggregate_by_opening(continuations([(*row[:5], 0.9, 0.9) for row in ROWS]), [])
    found = measures.estimate_policy_measures(CONFIG, own, sft)
    assert found["over_sft/first"].mean == pytest.approx(1 - 3 / 4)
    assert found["over_sft/second"].mean == pytest.approx(1 - 2 / 4)
    assert "over_sft/first" not in measures.estimate_policy_measures(CONFIG, sft, sft)


def test_silence_has_measures_too(tmp_path):
    """A policy that ends at once has no words and no sentences."""
    own = measures.aggregate_by_opening(
        continuations([(name, "", 1, -0.1, -9.0, 0.4, 0.5) for name in "aabb"]), ["superb"]
    )
    found = measures.estimate_policy_measures(CONFIG, own, own)
    assert (found["commonest"].mean, found["praise"].mean, found["distinct_1"].mean) == (0.0, 0.0, 0.0)
    tables.write_table(
        SteeringMeasures, measures.build_measures_table({"ppo": found}), tmp_path / "steering_measures.parquet"
    )
