"""The optimizer of every algorithm: AdamW or Muon, linear warm-up and cosine decay; and one step: clip, update, clear.

Muon (Jordan et al. 2024; scaled to AdamW's update size as in arXiv:2502.16982) orthogonalises the update of each hidden
matrix; embeddings, heads and norms stay with AdamW. For training from scratch it needed half the steps (LOG.md).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.muon import Muon

BETAS = (0.9, 0.95)
METRICS = {
    "grad_norm": "The norm of the gradient before it is clipped; where a step has several updates, that of the last.",
    "learning_rate": "The learning rate: it warms up and then decays along a cosine.",
}


def check_finite(what: str, value: float) -> None:
    """TrainingError where a loss, or a gradient's norm, is not finite."""
    if not math.isfinite(value):
        raise TrainingError(f"the {what} is {value:g}: training has diverged")


class Trainable(Protocol):
    """A module whose output head is known, as the optimizer needs it."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """All parts, itself included."""
        ...

    def get_output_embeddings(self) -> nn.Module | None:
        """The head; None for a model without one, or with a head named `score`."""
        ...


class Optimizer:
    """AdamW for all weights, or (`kind` muon) Muon for the hidden matrices and AdamW for the rest, on one schedule.

    The learning rate warms up over the first share `warmup` of `steps`, then decays to a tenth along a cosine. Weight decay
    touches matrices only, not norms and biases. Gradients are clipped to the norm `clip`.
    """

    def __init__(
        self,
        model: Trainable,
        learning_rate: float,
        steps: int,
        *,
        clip: float,
        kind: Literal["adamw", "muon"] = "adamw",
        weight_decay: float = 0.0,
        warmup: float = 0.03,
    ) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.clip = clip
        embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        outer = {id(p) for module in (*embeddings, _head(model)) if module for p in module.parameters()}
        hidden = [p for p in self.parameters if kind == "muon" and p.dim() == 2 and id(p) not in outer]
        by_muon = {id(p) for p in hidden}
        rest = [p for p in self.parameters if id(p) not in by_muon]
        groups = [
            {"params": [p for p in rest if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
        ]
        self.parts: list[torch.optim.Optimizer] = [AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)]
        if hidden:
            self.parts.append(Muon(hidden, learning_rate, weight_decay))
        self.peak, self.factor, self.steps_taken = learning_rate, schedule(steps, warmup), 0

    @property
    def learning_rate(self) -> float:
        """The rate that the next step uses."""
        return self.peak * self.factor(self.steps_taken)

    def step(self) -> float:
        """Clip, update, clear the gradient; returns its norm before clipping.

        TrainingError where that is not finite, before any weight moves: one nan in a gradient would make all weights nan.
        """
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip).item()
        check_finite("gradient's norm", norm)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.learning_rate
            part.step()
            part.zero_grad(set_to_none=True)
        self.steps_taken += 1
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """Steps done, and the moments of each weight as `<weight>.<moment>`, weights numbered from 0."""
        return {"steps_taken": torch.tensor(self.steps_taken), **moments(self.parts)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Go on where `state_dict` was taken; the optimizer must have been made with the same arguments."""
        load_moments(self.parts, {key: value for key, value in state.items() if key != "steps_taken"})
        self.steps_taken = int(state["steps_taken"])


def moments(parts: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The state of torch's optimizers as a flat mapping: `<weight>.<moment>`, weights numbered from 0 through all parts."""
    return {
        f"{number}.{name}": value
        for number, (part, p) in enumerate(_updated(parts))
        for name, value in part.state.get(p, {}).items()
    }


def load_moments(parts: Sequence[torch.optim.Optimizer], state: Mapping[str, Tensor]) -> None:
    """Load copies of what `moments` returned."""
    updated = list(_updated(parts))
    for key, value in state.items():
        number, _, name = key.partition(".")
        part, p = updated[int(number)]
        part.state[p][name] = value.to(p.device, copy=True)


def _updated(parts: Sequence[torch.optim.Optimizer]) -> Iterator[tuple[torch.optim.Optimizer, Tensor]]:
    return ((part, p) for part in parts for group in part.param_groups for p in group["params"])


def schedule(steps: int, warmup: float) -> Callable[[int], float]:
    """The factor on the learning rate at each step."""
    ramp = max(1, int(warmup * steps))

    def factor(step: int) -> float:
        if step < ramp:
            return (step + 1) / ramp
        progress = min(1.0, (step - ramp) / max(1, steps - ramp))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))

    return factor


def _head(model: Trainable) -> nn.Module | None:
    return model.get_output_embeddings() or getattr(model, "score", None)
