"""Texts as vectors, by hand."""

import zlib

import numpy as np
import pytest

from tasks.agents.environments.vectors import GameReader, compute_hashed_bag_of_words, compute_observation_size


def place(term, features):
    code = zlib.crc32(term.encode())
    return (code >> 1) % features, 1.0 if code & 1 else -1.0


def test_a_bag_holds_words_and_pairs_of_neighbours():
    expected = np.zeros(1000)
    for term, times in {"take": 1, "red": 2, "key": 1, "take red": 1, "red key": 1, "key red": 1}.items():
        bucket, sign = place(term, 1000)
        expected[bucket] += sign * times
    assert compute_hashed_bag_of_words("Take RED-key, red!", 1000).tolist() == expected.tolist()
    assert np.abs(expected).sum() == 7, "no two of these terms share a bucket, so the signs hide nothing"
    assert compute_hashed_bag_of_words("", 5).tolist() == [0] * 5


def test_the_hash_is_the_same_everywhere():
    """CRC-32 of `key` is 0x8a90aba9.

    Its last bit is 1, so the sign is +; without that bit it ends with the bits 100, so the bucket of 8 is 4.
    """
    assert compute_hashed_bag_of_words("key", 8).tolist() == [0, 0, 0, 0, 1.0, 0, 0, 0]


def test_an_observation_is_what_was_read_what_was_said_and_what_came_before():
    features, decay = 64, 0.5
    reader = GameReader(features, decay)
    first, second, third = reader.read("a hall"), reader.read("you go", "go east"), reader.read("a lamp", "take lamp")
    hall, go, lamp = (compute_hashed_bag_of_words(text, features) for text in ("a hall", "you go", "a lamp"))
    east, take, nothing = (
        compute_hashed_bag_of_words("go east", features),
        compute_hashed_bag_of_words("take lamp", features),
        np.zeros(features),
    )
    for seen, parts in (
        (first, [hall, nothing, nothing, [0.0]]),
        (second, [go, east, hall + east, [0.1]]),
        (third, [lamp, take, decay * (hall + east) + go + take, [0.2]]),
    ):
        np.testing.assert_allclose(seen, np.concatenate(parts), rtol=1e-6)
        assert seen.shape == (compute_observation_size(features),) == (193,)
        assert seen.dtype == np.float32


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_without_decay_nothing_is_forgotten_and_with_decay_0_all_but_the_last_turn(decay):
    reader = GameReader(32, decay)
    for text in ("one", "two", "three"):
        seen = reader.read(text)
    memory = seen[64:96]
    expected = compute_hashed_bag_of_words("two", 32) + (compute_hashed_bag_of_words("one", 32) if decay else 0)
    assert memory.tolist() == expected.tolist()
