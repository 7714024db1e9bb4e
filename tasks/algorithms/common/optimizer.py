"""The optimizer of every algorithm: AdamW or Muon, on a schedule with linear warm-up; and one step: clip, update,
clear.

Muon (Jordan et al. 2024; scaled to AdamW's update size as in arXiv:2502.16982) orthogonalises the update of each hidden
matrix; embeddings, heads and norms stay with AdamW. For training from scratch it needed half the steps (LOG.md).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.muon import Muon
from tasks.algorithms.common.precision import get_master_weight
from tasks.algorithms.common.zero_partition import compute_weight_owners

Schedule = Literal["constant", "linear", "cosine"]
METRICS = {
    "grad_norm": "The norm of the gradient before it is clipped; where a step has several updates, that of the last.",
    "learning_rate": "The learning rate of the step: it warms up and then follows the schedule.",
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


@dataclass(frozen=True)
class OptimizerSettings:
    """Which optimizer updates the weights, and how its learning rate goes."""

    optimizer: Literal["adamw", "muon"]  # muon: Muon for the hidden matrices, AdamW for the rest
    schedule: Schedule
    warmup: float  # the share of the steps in which the learning rate rises to its peak
    final_rate: float  # the last learning rate as a share of the peak
    betas: Sequence[float]  # AdamW's two decay rates
    weight_decay: float  # of matrices only, not of norms and biases


class Optimizer:
    """AdamW for all weights, or Muon for the hidden matrices and AdamW for the rest, on one schedule of `steps` steps.

    `learning_rate` is its peak. Gradients are clipped to the norm `clip`. Of rounded weights (precision.py) it updates
    the masters. Where ranks divide the optimizer, each updates the weights that it owns, and has their moments alone;
    of a model that they divide each updates its rows.
    """

    def __init__(
        self, model: Trainable, learning_rate: float, steps: int, clip: float, settings: OptimizerSettings
    ) -> None:
        weights = [p for p in model.parameters() if p.requires_grad]
        self.divided = [(p, get_master_weight(p)) for p in weights if sharding.is_sharded_weight(p)]
        self.rounded = [
            (p, get_master_weight(p))
            for p in weights
            if get_master_weight(p) is not p and not sharding.is_sharded_weight(p)
        ]
        self.parameters = [get_master_weight(p) for p in weights]
        self.apart = [
            get_master_weight(p) for p in weights if not sharding.is_sharded_weight(p)
        ]  # the weights that each rank has whole
        self.clip = clip
        embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        outer = {
            id(get_master_weight(p))
            for module in (*embeddings, _find_output_head(model))
            if module
            for p in module.parameters()
        }
        hidden = [p for p in self.parameters if settings.optimizer == "muon" and p.dim() == 2 and id(p) not in outer]
        by_muon = {id(p) for p in hidden}
        rest = [p for p in self.parameters if id(p) not in by_muon]
        matrices = [p for p in rest if p.dim() > 1]
        vectors = [p for p in rest if p.dim() <= 1]
        self.numbered = [*matrices, *vectors, *hidden]
        self.owners = compute_weight_owners(self.numbered) if distributed.is_optimizer_sharded() else []
        local = {id(p) for p, owner in zip(self.numbered, self.owners, strict=False) if owner == distributed.get_rank()}
        mine = [[p for p in group if not self.owners or id(p) in local] for group in (matrices, vectors, hidden)]
        groups = [
            {"params": mine[0], "weight_decay": settings.weight_decay},
            {"params": mine[1], "weight_decay": 0.0},
        ]
        betas = (settings.betas[0], settings.betas[1])
        self.parts: list[torch.optim.Optimizer] = [AdamW(groups, lr=learning_rate, betas=betas, fused=True)]
        if mine[2]:
            self.parts.append(Muon(mine[2], learning_rate, settings.weight_decay, [local for _, local in self.divided]))
        self.peak = learning_rate
        self.steps_taken = 0
        self.factor = make_lr_schedule(settings.schedule, steps, settings.warmup, settings.final_rate)

    @property
    def learning_rate(self) -> float:
        """The rate that the next step uses."""
        return self.peak * self.factor(self.steps_taken)

    def step(self) -> float:
        """Sum the gradient over ranks, clip, update, clear it; returns its norm before clipping.

        TrainingError where that is not finite, before any weight moves: one nan in a gradient would make all weights
        nan.
        """
        for weight, rows in self.divided:
            sharding.move_gradient_to_rows(weight, rows)
        distributed.sum_gradients(self.apart)
        norm = self._compute_gradient_norm()
        check_finite("gradient's norm", norm.item())
        clip_grads_with_norm_(self.parameters, self.clip, norm)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.learning_rate
            part.step()
        for p in self.parameters:
            p.grad = None
        if self.owners:
            distributed.broadcast_owned_weights(self.numbered, self.owners)
        with torch.no_grad():
            for p, updated in self.rounded:
                p.copy_(updated)
        self.steps_taken += 1
        return norm.item()

    def _compute_gradient_norm(self) -> Tensor:
        """The norm of the gradient of all weights, whoever has their rows."""
        norm = get_total_norm([p.grad for p in self.apart if p.grad is not None])
        if not self.divided:
            return norm
        squares = sum(rows.grad.double().square().sum().item() for _, rows in self.divided if rows.grad is not None)
        whole = distributed.sum_values_over_ranks({"squares": squares})["squares"]
        return norm.new_tensor(whole).add(norm.square()).sqrt()

    def state_dict(self) -> dict[str, Tensor]:
        """Steps done, and the moments of each weight as `<weight>.<moment>`, weights numbered from 0.

        Ranks that divide the optimizer or the model all have to ask; the first gets all moments, the others none.
        """
        state = collect_moments(self.parts, self.numbered)
        if self.owners:
            state = distributed.collect_tensors_on_main(state, self.numbered[0].device)
        if self.divided:
            rows = {name: value for name, value in state.items() if self._is_sharded_moment(name, value)}
            state = {
                **sharding.gather_shards_on_main(rows),
                **{name: value for name, value in state.items() if name not in rows},
            }
        return {"steps_taken": torch.tensor(self.steps_taken), **state}

    def _is_sharded_moment(self, name: str, value: Tensor) -> bool:
        """Whether a moment is of a divided weight's rows; the count of steps is one number."""
        p = self.numbered[int(name.partition(".")[0])]
        return value.dim() > 0 and any(rows is p for _, rows in self.divided)

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Go on where `state_dict` was taken; the optimizer must have been made with the same arguments."""
        kept = {
            name: sharding.select_local_rows(value)
            if name != "steps_taken" and self._is_sharded_moment(name, value)
            else value
            for name, value in state.items()
        }
        self.steps_taken = int(kept.pop("steps_taken"))
        load_moments(self.parts, self.numbered, kept)


def collect_moments(parts: Sequence[torch.optim.Optimizer], weights: Sequence[Tensor]) -> dict[str, Tensor]:
    """The state of torch's optimizers as a flat mapping: `<weight>.<moment>`, weights numbered as they stand in
    `weights`.
    """
    return {
        f"{number}.{name}": value
        for number, p in enumerate(weights)
        for part in parts
        for name, value in part.state.get(p, {}).items()
    }


def load_moments(
    parts: Sequence[torch.optim.Optimizer], weights: Sequence[Tensor], state: Mapping[str, Tensor]
) -> None:
    """Load copies of what `moments` returned, of those weights that the optimizers update."""
    updaters = {id(p): part for part in parts for group in part.param_groups for p in group["params"]}
    for key, value in state.items():
        number, _, name = key.partition(".")
        p = weights[int(number)]
        if updater := updaters.get(id(p)):
            updater.state[p][name] = value.to(p.device, copy=True)


def make_lr_schedule(kind: Schedule, steps: int, warmup: float, final_rate: float) -> Callable[[int], float]:
    """The factor on the learning rate at each step, numbered from 0.

    It rises linearly to 1 over the first share `warmup` of the steps, over one step at least. Then it stays there, or
    falls to `final_rate` at the end of the last step: linearly, or along half a cosine (arXiv:1608.03983, eq. 5).
    """
    ramp = max(1, int(warmup * steps))

    def factor(step: int) -> float:
        if step < ramp:
            return (step + 1) / ramp
        if kind == "constant":
            return 1.0
        progress = min(1.0, (step - ramp) / max(1, steps - ramp))
        if kind == "linear":
            return 1 - (1 - final_rate) * progress
        return final_rate + (1 - final_rate) / 2 * (1 + math.cos(math.pi * progress))

    return factor


def _find_output_head(model: Trainable) -> nn.Module | None:
    return model.get_output_embeddings() or getattr(model, "score", None)
