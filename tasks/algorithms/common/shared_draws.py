"""Random numbers on several processes: those of a row are the ones that it would have on one process.

A rank draws the numbers of all rows and uses those of its own, so that a draw belongs to its row and not to the rank.
Dropout within a fused attention kernel on a GPU is out of reach: there all ranks draw the same numbers for different
rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.algorithms.common import distributed

Rows = Mapping[
    int, tuple[Tensor, int]
]  # from this rank's number of rows: which they are (n,), and how many there are in all


def has_dropout(model: object) -> bool:
    """Whether a pass in training mode draws random numbers: whether some part of the model has dropout."""
    return isinstance(model, nn.Module) and any(
        (isinstance(part, nn.Dropout) and part.p > 0)
        or any("drop" in name and isinstance(value, float) and value > 0 for name, value in vars(part).items())
        for part in model.modules()
    )


def needs_shared_draws(model: object) -> bool:
    """Whether ranks have to draw for each other's rows; they then pad their rows as the whole batch is padded."""
    return distributed.get_world_size() > 1 and has_dropout(model)


@contextmanager
def draw_for_all_rows(model: object, rows: Sequence[tuple[Tensor, int]]) -> Iterator[None]:
    """Have passes and gradients in the block draw for all rows, and use those of this rank.

    `rows` are the kinds of rows that passes have: of each this rank's numbers (n,), and how many all ranks have. The
    kinds differ in n. Afterwards torch's generators stand where rank 0's stand, which has rows wherever a rank has.
    """
    if not needs_shared_draws(model):
        yield
        return
    with _Whole({len(numbers): (numbers, count) for numbers, count in rows}):
        yield
    generators = [torch.default_generator]
    if torch.cuda.is_available():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    for generator in generators:
        state = generator.get_state()
        distributed.broadcast_tensors([state])
        generator.set_state(state)


class UniformDraws:
    """A number in [0, 1) for each row of a batch at each token that is sampled.

    Rows that have ended leave the batch once fewer than a share `full` of its rows go on, and then draw no more. Which
    they are decides what the others draw, so ranks tell each other at each token.
    """

    def __init__(self, generator: torch.Generator, count: int, share: slice, full: float) -> None:
        """Of `count` rows in all this rank has `share`."""
        self.generator = generator
        self.full = full
        self.first = share.start
        self.drawing = torch.arange(count, device=generator.device)  # the rows of the whole batch that draw
        self.left = self.count = count  # the rows of all ranks that go on

    def __call__(self, rows: Tensor) -> Tensor:
        """One number (n, 1) for each of this rank's rows that draw (n,), numbered from 0."""
        drawn = torch.rand(
            len(self.drawing), 1, generator=self.generator, device=self.generator.device, dtype=torch.float64
        )
        if distributed.get_world_size() == 1:
            return drawn
        return drawn.new_zeros(self.count, 1).index_copy(0, self.drawing, drawn)[self.first + rows]

    def mark_continuing_rows(self, rows: Tensor) -> None:
        """Say at each token which of this rank's rows go on."""
        going = torch.zeros(self.count, dtype=torch.uint8, device=self.generator.device)
        going[self.first + rows] = 1
        going = distributed.all_reduce_sum(going)[self.drawing].bool()
        self.left = int(going.sum())
        if self.left < self.full * len(self.drawing):
            self.drawing = self.drawing[going]

    def finish(self, tokens: int) -> None:
        """Take part until the other ranks' rows have ended too, for at most so many more tokens."""
        none = torch.zeros(0, dtype=torch.long, device=self.generator.device)
        while self.left and tokens and distributed.get_world_size() > 1:
            self(none)
            self.mark_continuing_rows(none)
            tokens -= 1


class _Whole(TorchDispatchMode):
    """Replaces the two operations that draw a dropout's mask; both count rows in their first dimension."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = rows

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        _types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Draw for all rows where the operation is a dropout."""
        options = kwargs or {}
        if func is torch.ops.aten.bernoulli_.float:
            whole = self._make_full_tensor(args[0])
            func(whole, *args[1:], **options)
            return args[0].copy_(whole[self.rows[len(args[0])][0]])
        if func is torch.ops.aten.native_dropout.default:
            whole, kept = func(self._make_full_tensor(args[0]).fill_(1), *args[1:], **options)
            rows = self.rows[len(args[0])][0].to(args[0].device)
            return args[0] * whole[rows], kept[rows]
        return func(*args, **options)

    def _make_full_tensor(self, local: Tensor) -> Tensor:
        """Room for what is drawn of all rows, laid out in memory as in a pass of the whole batch."""
        shape = (self.rows[len(local)][1], *local.shape[1:])
        order = sorted(range(1, local.dim()), key=lambda dim: local.stride(dim), reverse=True)
        return local.new_empty([shape[dim] for dim in (0, *order)]).permute(
            [0, *(1 + order.index(dim) for dim in range(1, local.dim()))]
        )
