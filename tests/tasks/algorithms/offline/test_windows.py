import torch

from tasks.algorithms.offline.transition_tensors import Transitions
from tasks.algorithms.offline.windows import EpisodeWindows


def transitions(lengths=(3, 1, 2)):
    """Transition n has observation n, action n and reward 2^n."""
    count = sum(lengths)
    numbers = torch.arange(count)
    seen = numbers[:, None].float()
    return Transitions(seen, numbers, 2.0**numbers, seen, torch.zeros(count, dtype=torch.bool), torch.tensor(lengths))


def test_a_window_ends_with_its_episode_and_is_padded_on_the_right():
    episodes = EpisodeWindows(transitions(), context=3)
    cut = episodes.cut(torch.tensor([0, 1, 3, 4]))
    assert cut.valid.tolist() == [[True] * 3, [True, True, False], [True, False, False], [True, True, False]]
    assert cut.actions[cut.valid].tolist() == [0, 1, 2, 1, 2, 3, 4, 5]
    assert cut.observations[cut.valid].flatten().tolist() == [0, 1, 2, 1, 2, 3, 4, 5]
    assert cut.timesteps[cut.valid].tolist() == [0, 1, 2, 1, 2, 0, 0, 1]
    # 2^n to the end of the episode: 1 + 2 + 4, 2 + 4, 4; 8; 16 + 32, 32.
    assert cut.returns_to_go[cut.valid].tolist() == [7, 6, 4, 6, 4, 8, 48, 32]


def test_returns_to_go_reach_beyond_the_window():
    cut = EpisodeWindows(transitions(), context=2).cut(torch.tensor([0]))
    assert cut.returns_to_go.tolist() == [[7, 6]]


def test_a_window_is_no_longer_than_the_longest_episode():
    assert EpisodeWindows(transitions(), context=20).cut(torch.tensor([0])).actions.shape == (1, 3)


def test_episodes_are_drawn_in_proportion_to_length_and_starts_uniformly():
    data = transitions(lengths=(8, 2))
    batches = EpisodeWindows(data, context=4).batches(20_000, torch.Generator().manual_seed(0))
    starts = next(batches).actions[:, 0]
    shares = torch.bincount(starts, minlength=10) / len(starts)
    assert torch.allclose(shares, torch.full((10,), 0.1), atol=0.01)  # five standard deviations
    # Episodes drawn evenly, the known mistake, would start a quarter of the windows at each transition of the short
    # one.
    assert shares[8:].sum() < 0.25


def test_batches_follow_the_generator_alone():
    def draw():
        return next(EpisodeWindows(transitions(), context=3).batches(64, torch.Generator().manual_seed(1))).actions

    torch.manual_seed(0)
    first = draw()
    torch.manual_seed(1)
    assert torch.equal(draw(), first)
