"""Credit: cases worked out by hand, and what must hold of all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.algorithms.agents.credit import compute_credit
from tasks.algorithms.agents.transcripts import Transcript, make_transcripts

PLAIN = {"over": "turns", "baseline": "none", "standardized": False, "gamma": 0.5, "lam": 0.0}


def episodes(*turns, tokens=1):
    """Episodes of so many turns; each turn is an observation of one token and an action of `tokens`."""
    made = []
    for count in turns:
        one = Transcript()
        for turn in range(count):
            one.observe([1], turn)
            one.act([2] * tokens, turn, [0.0] * tokens)
        made.append(one)
    return make_transcripts(made, pad=0)


def by_turn(batch, found):
    return found.gather(1, batch.last) * batch.taken


REWARDS, GROUPS = torch.tensor([[1.0, 2.0, 4.0], [8.0, 0.0, 0.0]]), torch.tensor([0, 0])


def test_total_and_reward_to_go():
    batch = episodes(3, 1)
    total = compute_credit("total", batch, REWARDS, GROUPS, None, **PLAIN)
    assert by_turn(batch, total.advantages).tolist() == [[3.0, 3.0, 3.0], [8.0, 0.0, 0.0]]
    to_go = compute_credit("to_go", batch, REWARDS, GROUPS, None, **PLAIN)
    assert by_turn(batch, to_go.advantages).tolist() == [[3.0, 4.0, 4.0], [8.0, 0.0, 0.0]]
    assert to_go.returns.tolist() == [[3.0, 4.0, 4.0], [8.0, 0.0, 0.0]]
    assert to_go.targets is None


def test_one_step_errors_of_a_critic():
    batch, values = episodes(3, 1), torch.tensor([[10.0, 20.0, 40.0], [80.0, 0.0, 0.0]])
    found = compute_credit("advantage", batch, REWARDS, GROUPS, values, **PLAIN)
    assert by_turn(batch, found.advantages).tolist() == [[1.0, 2.0, -36.0], [-72.0, 0.0, 0.0]]
    assert found.targets.tolist() == [[11.0, 22.0, 4.0], [8.0, 0.0, 0.0]]
    q = compute_credit("q", batch, REWARDS, GROUPS, values, **PLAIN)
    assert by_turn(batch, q.advantages).tolist() == values.tolist()
    assert q.targets.tolist() == [[11.0, 22.0, 4.0], [8.0, 0.0, 0.0]]


def test_groups_are_compared_by_episode_or_by_turn():
    batch, rewards, groups = (
        episodes(2, 2, 1),
        torch.tensor([[0.0, 1.0], [0.0, 3.0], [6.0, 0.0]]),
        torch.tensor([0, 0, 0]),
    )
    own = {**PLAIN, "gamma": 1.0, "baseline": "group"}
    total = compute_credit("total", batch, rewards, groups, None, **own)
    assert by_turn(batch, total.advantages) == pytest.approx(torch.tensor([[-7 / 3] * 2, [-1 / 3] * 2, [8 / 3, 0]]))
    to_go = compute_credit("to_go", batch, rewards, groups, None, **own)
    assert by_turn(batch, to_go.advantages) == pytest.approx(torch.tensor([[-7 / 3, -1], [-1 / 3, 1], [8 / 3, 0]]))


def test_the_mean_is_over_turns_that_were_taken():
    batch = episodes(3, 1)
    found = compute_credit("to_go", batch, REWARDS, GROUPS, None, **{**PLAIN, "baseline": "mean"})
    mean = (3 + 4 + 4 + 8) / 4
    assert by_turn(batch, found.advantages)[0].tolist() == [3 - mean, 4 - mean, 4 - mean]


def test_over_tokens_gamma_stands_between_turns_alone():
    """Lambda 1 makes every token's advantage the discounted rewards behind it, less its value."""
    batch = episodes(2, tokens=2)
    rewards, values = torch.tensor([[1.0, 4.0]]), torch.zeros(batch.acts.shape)
    found = compute_credit(
        "advantage", batch, rewards, torch.tensor([0]), values, **{**PLAIN, "over": "tokens", "lam": 1.0}
    )
    assert found.advantages.tolist() == [[0, 3.0, 3.0, 0, 4.0, 4.0]]
    assert found.targets.tolist() == [[0, 3.0, 3.0, 0, 4.0, 4.0]]


def test_over_tokens_the_next_value_is_that_behind_the_observation():
    batch = episodes(2)
    values = torch.tensor([[0.0, 10.0, 0.0, 20.0]])
    found = compute_credit(
        "advantage", batch, torch.tensor([[1.0, 4.0]]), torch.tensor([0]), values, **{**PLAIN, "over": "tokens"}
    )
    assert found.advantages.tolist() == [[0, 1 + 0.5 * 20 - 10, 0, 4 - 20]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 3), st.floats(0, 1), st.integers(0, 99))
def test_with_one_token_an_action_turns_and_tokens_agree(turns, tokens, lam, seed):
    """And with lambda 1 and a critic that knows nothing, both are reward-to-go, however many tokens an action has."""
    generator = torch.Generator().manual_seed(seed)
    batch = episodes(*turns)
    rewards = torch.randn(batch.taken.shape, generator=generator) * batch.taken
    values = torch.randn(batch.taken.shape, generator=generator) * batch.taken
    own = {**PLAIN, "gamma": 0.9, "lam": lam}
    groups = torch.zeros(len(batch), dtype=torch.long)
    by_turns = compute_credit("advantage", batch, rewards, groups, values, **own)
    at_tokens = compute_credit(
        "advantage", batch, rewards, groups, batch.expand_to_tokens(values), **{**own, "over": "tokens"}
    )
    assert torch.allclose(by_turns.advantages, at_tokens.advantages, atol=1e-5)
    longer = episodes(*turns, tokens=tokens)
    zeros = torch.zeros(longer.acts.shape)
    own = {**own, "lam": 1.0}
    found = compute_credit("advantage", longer, rewards, groups, zeros, **{**own, "over": "tokens"})
    assert torch.allclose(
        found.advantages, compute_credit("to_go", longer, rewards, groups, None, **own).advantages, atol=1e-5
    )
