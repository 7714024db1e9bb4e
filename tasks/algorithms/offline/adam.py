"""Adam and AdamW for the offline methods' networks, with a state that a checkpoint can keep."""

from collections.abc import Iterable, Mapping
from math import cos, pi

import torch
from torch import Tensor, nn

from tasks.algorithms.common.optimizer import collect_moments, load_moments


class Adam:
    """Adam (arXiv:1412.6980) on these parameters, in one fused call a step; `clip` bounds the gradient's norm."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, clip: float | None = None) -> None:
        self.parameters = list(parameters)
        self.clip = clip
        self.adam: torch.optim.Optimizer = torch.optim.Adam(self.parameters, learning_rate, fused=True)

    def step(self, loss: Tensor) -> None:
        """Minimise the scalar `loss` by one step, for these parameters only; earlier gradients are discarded."""
        for parameter in self.parameters:  # zero_grad takes longer than a small network's layer
            parameter.grad = None
        loss.backward(
            inputs=self.parameters
        )  # unlike autograd.grad's, these gradients have the memory layout that fused Adam needs
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.adam.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The moments as a flat mapping."""
        return collect_moments([self.adam], self.parameters)

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        load_moments([self.adam], self.parameters, state)


class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv:1711.05101); its rate rises linearly over the first `warmup` of `steps`.

    Then the rate falls along a cosine to the share `last` of its highest value; with 1 it stays constant.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        *,
        clip: float,
        weight_decay: float,
        warmup: int,
        steps: int,
        last: float,
    ) -> None:
        super().__init__(parameters, learning_rate, clip)
        self.adam = torch.optim.AdamW(self.parameters, learning_rate, weight_decay=weight_decay, fused=True)
        self.peak = learning_rate
        self.warmup = warmup
        self.steps = steps
        self.last = last
        self.steps_taken = 0

    @property
    def learning_rate(self) -> float:
        """The rate that the next step uses."""
        if self.steps_taken < self.warmup:
            return self.peak * (self.steps_taken + 1) / self.warmup
        share = min(1.0, (self.steps_taken - self.warmup) / max(1, self.steps - self.warmup))
        return self.peak * (self.last + (1 - self.last) * (1 + cos(pi * share)) / 2)

    def step(self, loss: Tensor) -> None:
        """Minimise the scalar `loss` by one step at the rate of that step."""
        for group in self.adam.param_groups:
            group["lr"] = self.learning_rate
        super().step(loss)
        self.steps_taken += 1

    def state_dict(self) -> dict[str, Tensor]:
        """The moments as a flat mapping, and the number of steps done."""
        return {"steps_taken": torch.tensor(self.steps_taken), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict({key: value for key, value in state.items() if key != "steps_taken"})
        self.steps_taken = int(state["steps_taken"])
