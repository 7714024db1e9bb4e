"""A pretended device for every machine: its tensors claim to lie on `meta`, but the CPU computes them.

As on a GPU, an operation on tensors of both devices is an error, except with single numbers. So a test without a GPU
shows whether a method keeps all its tensors on the stage's device, and the results are the CPU's.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "meta"
COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)


class Elsewhere(torch.Tensor):
    """A tensor on that device; `inner` has its numbers."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Elsewhere":
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=torch.device(NAME), **layout)
        made.inner = inner
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _compute(function, arguments, options or {})


def _compute(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    """One of torch's operations: its results lie on the device of its tensors, or on the requested device."""
    tensors = [one for one in tree_leaves((arguments, options)) if isinstance(one, torch.Tensor)]
    away = any(isinstance(one, Elsewhere) for one in tensors)
    left = [tuple(one.shape) for one in tensors if not isinstance(one, Elsewhere) and one.dim()]
    if away and left and function not in COPIES:
        raise RuntimeError(f"{function}: a tensor of shape {left[0]} is on the CPU, others are elsewhere")
    if options.get("device") is not None:
        away = torch.device(options["device"]).type == NAME
        options = {**options, "device": "cpu"}
    found = function(*tree_map(_inner, arguments), **tree_map(_inner, options))
    given = {id(_inner(one)): one for one in tensors}  # an in-place operation returns its own tensor
    if not away:
        return found
    return tree_map(lambda one: given.get(id(one), Elsewhere(one)) if isinstance(one, torch.Tensor) else one, found)


def _inner(one: Any) -> Any:
    return one.inner if isinstance(one, Elsewhere) else one


class Mode(TorchDispatchMode):
    """Lets factories and copies make tensors on that device; `at_home` are the operations on the CPU's tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.at_home, self.away = set[str](), set[str]()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        leaves = tree_leaves((arguments, options or {}))
        away = any(isinstance(one, Elsewhere) for one in leaves)
        (self.away if away else self.at_home).add(function.overloadpacket.__name__)
        return _compute(function, arguments, options or {})
