"""Playing with a Decision Transformer: it is asked for a return, and what has been earned since is subtracted.

All running episodes are at the same step and go through the model together. No computation of a step is cached for the
next one: when the window slides, the inputs of every layer but the first change.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.transition_tensors import Spaces


class ConditionedModel(Protocol):
    """What playing needs of a Decision Transformer."""

    spaces: Spaces
    context: int  # K
    head: nn.Linear

    def __call__(
        self, returns_to_go: Tensor, observations: Tensor, actions: Tensor, timesteps: Tensor, *, last: bool = ...
    ) -> Tensor:
        """Logits or actions (B, K, A) from (B, K), (B, K, O), (B, K) or (B, K, A), and (B, K); only the last ones if
        `last`.
        """
        ...

    def eval(self) -> object:
        """Dropout off."""
        ...


class Conditioned:
    """A policy that remembers its last K steps and the return still to come (a Player, see
    tasks/offline/environments/rollouts.py).
    """

    def __init__(self, model: ConditionedModel, target: float) -> None:
        """`model` is a DecisionTransformer; `target` is the return to ask for, in the environment's own units."""
        self.model = model
        self.target = target

    def begin(self, episodes: int) -> None:
        """Forget what was played before."""
        spaces = self.model.spaces
        self.step = 0
        self.left = torch.full((episodes,), self.target)  # the return still to come
        self.returns_to_go = torch.empty(episodes, 0)
        self.observations = torch.empty(episodes, 0, spaces.observation)
        action = (
            torch.empty(episodes, 0, dtype=torch.long) if spaces.discrete else torch.empty(episodes, 0, spaces.action)
        )
        self.actions = action

    @torch.no_grad()
    def act(self, running: Tensor, observations: Tensor) -> Tensor:
        """Actions of the running episodes: the most probable discrete ones, or the predicted continuous ones."""
        self.model.eval()
        seen = self.observations.new_zeros(len(self.left), observations.shape[1])
        seen[running] = observations
        self.returns_to_go = self._append_step(self.returns_to_go, self.left)
        self.observations = self._append_step(self.observations, seen)
        unknown = self.actions.new_zeros(len(self.left), *self.actions.shape[2:])  # the model cannot see it
        self.actions = self._append_step(self.actions, unknown)
        length = self.actions.shape[1]
        steps = torch.arange(self.step + 1 - length, self.step + 1).expand(len(running), length)
        inputs = (self.returns_to_go[running], self.observations[running], self.actions[running], steps)
        device = self.model.head.weight.device
        outputs = self.model(*(tensor.to(device) for tensor in inputs), last=True)[:, -1].cpu()
        actions = outputs.argmax(dim=-1) if self.model.spaces.discrete else outputs
        self.actions[running, -1] = actions
        return actions

    def observe(self, running: Tensor, rewards: Tensor) -> None:
        """Subtract the rewards (M,) from the return still to come; the model divides both by the same scale."""
        self.left[running] -= rewards
        self.step += 1

    def _append_step(self, history: Tensor, now: Tensor) -> Tensor:
        """The history (E, L, ..) with one more step, the first dropped if it is longer than the context."""
        return torch.cat([history, now[:, None]], dim=1)[:, -self.model.context :]
