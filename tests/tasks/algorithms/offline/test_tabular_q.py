import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.algorithms.offline import tabular_q
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tasks.offline.policies import files, kinds
from tests.tasks.algorithms.offline.chains import dynamics, optimal, recorded, sampled


def learnt(data, actions, gamma, tolerance=1e-12):
    spaces = Spaces(data.observations.shape[1], actions, True)
    policy, here, there = tabular_q.build_q_table(data, spaces, gamma, most=1000)
    return policy, list(tabular_q.fit(policy, data, here, there, tolerance))


def q_of(policy, state):
    """Q of each action in a one-hot state, given its number; None for an action that was never taken there."""
    [place] = (policy.states.argmax(dim=1) == state).nonzero().flatten().tolist()
    rows = zip(policy.q[place].tolist(), policy.counts[place].tolist(), strict=True)
    return [q if count else None for q, count in rows]


def test_q_is_the_mean_over_the_transitions_from_there():
    # From state 0 action 1 leads twice to 1 with reward 0 and 3, and once ends with reward 6; from 1 action 0 ends with
    # 4.
    data = recorded(
        [(0, 1, 0.0, 1, False), (0, 1, 3.0, 1, False), (0, 1, 6.0, 2, True), (1, 0, 4.0, 2, True)], states=3
    )
    policy, rows = learnt(data, 2, gamma=0.5)
    assert q_of(policy, 1) == [4.0, None]
    assert q_of(policy, 0) == [None, pytest.approx(((0 + 2) + (3 + 2) + 6) / 3)]
    assert policy.counts.sum(dim=0).tolist() == [1, 3]
    assert rows[-1]["change"] <= 1e-12


def test_the_best_path_may_be_of_pieces_of_several_episodes():
    # One episode goes 0 -> 1 -> 2 for little, another 3 -> 1 -> 4 for much: the best path from 0 is in no episode.
    data = recorded(
        [(0, 0, 0.0, 1, False), (1, 0, 1.0, 2, True), (3, 0, 0.0, 1, False), (1, 1, 10.0, 4, True)], states=5, length=2
    )
    policy, _ = learnt(data, 2, gamma=0.9)
    assert policy.values(torch.eye(5)[:2]).tolist() == pytest.approx([9.0, 10.0])
    assert policy.act(torch.eye(5)[:2]).tolist() == [0, 1]


def test_an_action_that_the_data_lacks_is_not_chosen_however_bad_the_others_are():
    policy, _ = learnt(recorded([(0, 2, -50.0, 1, True), (1, 1, 5.0, 0, True)], states=2), 3, gamma=0.9)
    assert policy.act(torch.eye(2)).tolist() == [2, 1]


def test_a_truncated_episode_goes_on_and_a_terminated_one_does_not():
    ends = [(0, 0, 0.0, 1, False), (0, 1, 2.0, 1, True), (1, 0, 10.0, 2, True)]
    policy, _ = learnt(recorded(ends, states=3, length=1), 2, gamma=0.5)
    assert q_of(policy, 0) == [5.0, 2.0]


def test_a_state_that_the_data_never_left_is_worth_the_least_that_can_come():
    # In state 1 the data was truncated. At V = 0, as the lecture begins, going there would beat the way through state
    # 2.
    way = [(0, 0, -1.0, 1, False), (0, 1, -1.0, 2, False), (2, 0, -1.0, 3, True)]
    policy, _ = learnt(recorded(way, states=4, length=1), 2, gamma=0.9)
    assert policy.act(torch.eye(4)[:1]).tolist() == [1]
    assert q_of(policy, 0) == [pytest.approx(-1 - 0.9 * 10), pytest.approx(-1.9)]
    assert policy.values(torch.eye(4)[1:2]).tolist() == [-10.0]
    gains, _ = learnt(recorded([(0, 0, 1.0, 1, False), (0, 1, 1.0, 1, True)], states=2, length=1), 2, gamma=0.9)
    assert q_of(gains, 0) == [1.0, 1.0]  # where rewards are positive, the least is that no more come


def test_in_a_state_never_seen_it_does_the_commonest_action():
    ones = [(0, 2, 0.0, 1, True), (1, 2, 0.0, 0, True), (1, 0, 5.0, 0, True)]
    policy, _ = learnt(recorded(ones, states=2), 3, gamma=0.9)
    assert policy.act(torch.tensor([[0.0, 1.0], [0.5, 0.5]])).tolist() == [0, 2]


@given(seed=st.integers(0, 10_000), gamma=st.sampled_from([0.0, 0.5, 0.9, 0.95]))
@settings(max_examples=10)
def test_on_data_that_show_the_dynamics_exactly_it_is_the_dynamics_optimum(seed, gamma):
    chain = dynamics(states=4, actions=2, seed=seed)
    policy, _ = learnt(sampled(chain), 2, gamma)
    order = policy.states.argmax(dim=1)
    torch.testing.assert_close(policy.q, optimal(chain, gamma)[order], rtol=1e-9, atol=1e-8)


def test_it_ends_when_no_value_changes_by_more_than_the_tolerance():
    chain = dynamics(states=5, actions=3, seed=1)
    _, close = learnt(sampled(chain), 3, gamma=0.9, tolerance=1e-2)
    _, closer = learnt(sampled(chain), 3, gamma=0.9, tolerance=1e-8)
    assert len(close) < len(closer)
    assert close[-1]["change"] <= 1e-2 < close[-2]["change"]


def test_too_many_states_are_counted():
    chain = sampled(dynamics(states=5, actions=3, seed=1))
    with pytest.raises(tabular_q.TooManyStates, match="5 distinct observations, and a table has at most 4"):
        tabular_q.build_q_table(chain, Spaces(5, 3, True), 0.9, most=4)


def test_a_saved_table_acts_the_same(tmp_path):
    policy, _ = learnt(sampled(dynamics(states=5, actions=3, seed=1)), 3, gamma=0.9)
    files.save_policy(policy, tmp_path)
    again = kinds.load_policy_of_any_kind(tmp_path)
    seen = torch.cat([torch.eye(5), torch.zeros(1, 5)])
    assert torch.equal(again.act(seen), policy.act(seen))
    assert torch.equal(again.values(seen), policy.values(seen))
    assert again.gamma == 0.9


def test_observations_that_differ_in_the_sign_of_zero_are_one_state():
    seen = torch.tensor([[0.0, 1.0], [-0.0, 1.0]])
    data = Transitions(
        seen, torch.tensor([0, 1]), torch.tensor([1.0, 2.0]), seen, torch.tensor([True, True]), torch.tensor([1, 1])
    )
    policy, _ = learnt(data, 2, gamma=0.9)
    assert policy.act(seen).tolist() == [1, 1]
