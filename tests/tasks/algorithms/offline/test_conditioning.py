import pytest
import torch

from tests.tasks.algorithms.offline.counting import model

TARGET, LENGTHS = 5.0, [7, 2, 9, 9]


def world(step, episode):
    """The observation of an episode at a step, and the reward after it."""
    generator = torch.Generator().manual_seed(100 * episode + step)
    return torch.randn(1, generator=generator), torch.randn((), generator=generator).item()


def naive(policy, episode, length):
    """One episode played alone; its window is built anew at each step from the whole history."""
    left, seen, done, taken = [TARGET], [], [], []
    for step in range(length):
        observation, reward = world(step, episode)
        seen.append(observation)
        done.append(torch.tensor(0) if policy.spaces.discrete else torch.zeros(1))  # padding, never attended to
        window = slice(max(0, step + 1 - policy.context), step + 1)
        outputs = policy(
            torch.tensor([left[window]]),
            torch.stack(seen[window])[None],
            torch.stack(done[window])[None],
            torch.arange(step + 1)[None, window],
        )[0, -1]
        done[-1] = outputs.argmax() if policy.spaces.discrete else outputs
        taken.append(done[-1])
        left.append(left[-1] - reward)
    return taken


def attentive(discrete, context):
    """A policy whose actions depend on its whole window."""
    policy = model(discrete, context=context).eval()
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return policy


def test_what_came_before_counts_within_the_context():
    with torch.no_grad():
        taken = [torch.stack(naive(attentive(False, context), 2, 9)).tolist() for context in (1, 3, 20)]
    assert taken[0] != taken[1] != taken[2]


@pytest.mark.parametrize("context", [1, 3, 20])
@pytest.mark.parametrize("discrete", [True, False])
def test_episodes_side_by_side_act_as_each_does_alone(discrete, context):
    policy = attentive(discrete, context)
    player = policy.with_target(TARGET)
    for _ in range(2):  # and nothing is left of a game played before
        player.begin(len(LENGTHS))
        taken = [[] for _ in LENGTHS]
        for step in range(max(LENGTHS)):
            running = [episode for episode, length in enumerate(LENGTHS) if step < length]
            shown = [world(step, episode) for episode in running]
            actions = player.act(torch.tensor(running), torch.stack([observation for observation, _ in shown]))
            player.observe(torch.tensor(running), torch.tensor([reward for _, reward in shown]))
            for episode, action in zip(running, actions, strict=True):
                taken[episode].append(action)
        with torch.no_grad():
            for episode, length in enumerate(LENGTHS):
                alone = torch.stack(naive(policy, episode, length)).float()
                assert torch.allclose(torch.stack(taken[episode]).float(), alone, atol=1e-6)


def test_playing_turns_dropout_off():
    policy = model()
    policy.train()
    player = policy.with_target(1.0)
    player.begin(1)
    player.act(torch.tensor([0]), torch.zeros(1, 1))
    assert not policy.training
