"""Adam at a constant rate, as the small networks of offline methods are trained, with a state that a checkpoint can keep."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from tasks.algorithms.optimizer import load_moments, moments


class Adam:
    """Adam (arXiv:1412.6980) on these parameters, in one fused call a step; `clip` bounds the gradient's norm."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, clip: float | None = None) -> None:
        self.parameters, self.clip = list(parameters), clip
        self.adam = torch.optim.Adam(self.parameters, learning_rate, fused=True)

    def step(self, loss: Tensor) -> None:
        """Minimise the scalar `loss` by one step; gradients of these parameters that stood before do not count."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.adam.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The moments, flat."""
        return moments([self.adam])

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Take up what `state_dict` gave."""
        load_moments([self.adam], state)
