"""Transcripts: where actions begin and end, by a case worked out by hand."""

import torch

from tasks.algorithms.agents.critic import gather_action_values, gather_state_values, gather_token_values
from tasks.algorithms.agents.transcripts import Transcript, make_transcripts, stack_sampled_logps


def two():
    """Observation, action, observation, action; and a shorter one."""
    long, short = Transcript(), Transcript()
    long.observe([1, 2], 0)
    long.act([3, 4], 0, [-1.0, -2.0])
    long.observe([5], 1)
    long.act([6], 1, [-3.0])
    short.observe([1], 0)
    short.act([9], 0, [-4.0])
    return make_transcripts([long, short], pad=0), [long, short]


def test_places_of_actions():
    batch, episodes = two()
    assert batch.tokens.tolist() == [[1, 2, 3, 4, 5, 6], [1, 9, 0, 0, 0, 0]]
    assert batch.acts.tolist() == [[False, False, True, True, False, True], [False, True, False, False, False, False]]
    assert batch.taken.tolist() == [[True, True], [True, False]]
    assert batch.before.tolist() == [[1, 4], [0, 0]]
    assert batch.last.tolist() == [[3, 5], [1, 0]]
    assert batch.expand_to_tokens(torch.tensor([[0.5, 0.25], [2.0, 7.0]])).tolist() == [
        [0, 0, 0.5, 0.5, 0, 0.25],
        [0, 2, 0, 0, 0, 0],
    ]
    assert stack_sampled_logps(episodes).tolist() == [[0, 0, -1, -2, 0, -3], [0, -4, 0, 0, 0, 0]]
    assert episodes[0].action(0) == [3, 4]
    assert batch.rows(torch.tensor([1])).tokens.tolist() == [[1, 9]]


def test_parts_are_of_similar_lengths():
    """Lengths 3, 1, 2, 1: the two of one token first, in their order."""
    episodes = [Transcript() for _ in range(4)]
    for length, one in zip((3, 1, 2, 1), episodes, strict=True):
        one.observe([1] * length, 0)
    batch = make_transcripts(episodes, pad=0)
    assert [part.tolist() for part in batch.parts(torch.arange(4), 2)] == [[1, 3], [2, 0]]
    assert [part.tolist() for part in batch.parts(torch.tensor([3, 0, 1]), 2)] == [[3, 1], [0]]


def test_values_are_read_where_the_state_or_the_action_ends():
    batch, _ = two()
    values = torch.tensor([[0.0, 1, 2, 3, 4, 5], [6, 7, 0, 0, 0, 0]])
    assert gather_state_values(values, batch).tolist() == [[1, 4], [6, 0]]
    assert gather_action_values(values, batch).tolist() == [[3, 5], [7, 0]]
    assert gather_token_values(values, batch).tolist() == [[0, 0, 1, 2, 0, 4], [0, 6, 0, 0, 0, 0]]
