"""Small Markov decision processes whose values are known, by hand or by dynamic programming on the true dynamics."""

from dataclasses import dataclass

import torch

from tasks.algorithms.offline.transition_tensors import Transitions

SHARES = 6  # probabilities are multiples of a sixth, so that counts can match them exactly


def recorded(steps, states, length=None):
    """Steps (state, action, reward, next state, terminated), one-hot; one episode, or episodes of `length` steps."""
    here, actions, rewards, there, terminated = (torch.tensor(column) for column in zip(*steps, strict=True))
    lengths = torch.full((len(steps) // length,), length) if length else torch.tensor([len(steps)])
    eye = torch.eye(states)
    return Transitions(eye[here], actions, rewards, eye[there], terminated, lengths)


@dataclass(frozen=True)
class Chain:
    """Dynamics of S states and A actions."""

    following: torch.Tensor  # (S, A, SHARES) long: next states, each as probable
    rewards: torch.Tensor  # (S, A)
    ending: torch.Tensor  # (S, A) bool


def dynamics(states, actions, seed):
    """A chain drawn at random; about a fifth of all actions end it."""
    generator = torch.Generator().manual_seed(seed)
    return Chain(
        torch.randint(states, (states, actions, SHARES), generator=generator),
        torch.randn(states, actions, generator=generator),
        torch.rand(states, actions, generator=generator) < 0.2,
    )


def sampled(chain):
    """Data with every action in every state, and each next state as often as its probability says; episodes are
    truncated.
    """
    states, actions, _ = chain.following.shape
    steps = [
        (state, action, chain.rewards[state, action], there, chain.ending[state, action].item())
        for state in range(states)
        for action in range(actions)
        for there in chain.following[state, action].tolist()
    ]
    return recorded(steps, states, length=1)


def evaluated(chain, gamma, probabilities):
    """Q of a policy pi(a|s) (S, A), solved exactly: (S, A) double."""
    states, actions, _ = chain.following.shape
    moves = torch.nn.functional.one_hot(chain.following, states).double().mean(dim=2)  # (S, A, S)
    moves *= gamma * (~chain.ending).double().unsqueeze(-1)
    between = torch.einsum("xas,sb->xasb", moves, probabilities.double()).reshape(states * actions, -1)
    solved = torch.linalg.solve(torch.eye(states * actions).double() - between, chain.rewards.double().flatten())
    return solved.view(states, actions)


def optimal(chain, gamma):
    """Q of the best policy, by policy iteration: (S, A) double."""
    states, actions, _ = chain.following.shape
    greedy = torch.zeros(states, dtype=torch.long)
    while True:
        q = evaluated(chain, gamma, torch.eye(actions)[greedy])
        if torch.equal(q.argmax(dim=1), greedy):
            return q
        greedy = q.argmax(dim=1)
