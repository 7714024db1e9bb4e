"""Adam and AdamW, as offline methods' networks are trained, with a state that a checkpoint can keep."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from tasks.algorithms.optimizer import load_moments, moments


class Adam:
    """Adam (arXiv:1412.6980) on these parameters, in one fused call a step; `clip` bounds the gradient's norm."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, clip: float | None = None) -> None:
        self.parameters, self.clip = list(parameters), clip
        self.adam: torch.optim.Optimizer = torch.optim.Adam(self.parameters, learning_rate, fused=True)

    def step(self, loss: Tensor) -> None:
        """Minimise the scalar `loss` by one step, these parameters only; gradients that stood before do not count."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward(inputs=self.parameters)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.adam.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The moments, flat."""
        return moments([self.adam])

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Take up what `state_dict` gave."""
        load_moments([self.adam], state)


class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv:1711.05101), its rate growing linearly over the first `warmup` steps."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rate: float, *, clip: float, weight_decay: float, warmup: int
    ) -> None:
        super().__init__(parameters, learning_rate, clip)
        self.adam = torch.optim.AdamW(self.parameters, learning_rate, weight_decay=weight_decay, fused=True)
        self.learning_rate, self.warmup, self.done = learning_rate, warmup, 0

    def step(self, loss: Tensor) -> None:
        """Minimise the scalar `loss` by one step at the rate of that step."""
        self.done += 1
        for group in self.adam.param_groups:
            group["lr"] = self.learning_rate * min(1.0, self.done / max(1, self.warmup))
        super().step(loss)

    def state_dict(self) -> dict[str, Tensor]:
        """The moments, flat, and the number of steps done."""
        return {"done": torch.tensor(self.done), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Take up what `state_dict` gave."""
        super().load_state_dict({key: value for key, value in state.items() if key != "done"})
        self.done = int(state["done"])
