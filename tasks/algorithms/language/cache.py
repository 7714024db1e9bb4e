"""A key-value cache with room for the tokens to come: they are written in place instead of concatenated.

Transformers' dynamic cache is copied for every new token, which took most of the time of sampling from a small model on
a CPU. Layers of another kind than plain attention (sliding window, recurrent) are left as they are.
"""

from collections.abc import Callable

from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language.causal_lm import CacheLayer, KeyValueCache, PretrainedCausalLM

NewLayer = Callable[[Tensor, Tensor, Tensor, int], CacheLayer]  # of keys, values, rows and room


class RoomyLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """One layer's keys and values (N, heads, length, size), views of the front of buffers with space for more."""

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, room: int) -> None:
        super().__init__()
        self.is_initialized = True
        self.buffers = _copy_into_larger_buffer(keys, rows, room), _copy_into_larger_buffer(values, rows, room)
        self._set_views(keys.shape[-2])

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write the new tokens' keys and values; returns those of all tokens so far, as views (N, heads, length,
        size).
        """
        start = self.get_seq_length()
        count = key_states.shape[-2]
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer.narrow(2, start, count).copy_(new)  # a slice without room would lose the token in silence
        self._set_views(start + count)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows only."""
        length = self.get_seq_length()
        self.buffers = self.buffers[0][indices], self.buffers[1][indices]
        self._set_views(length)

    def _set_views(self, length: int) -> None:
        self.keys, self.values = (buffer[:, :, :length] for buffer in self.buffers)


def select_rows_and_reserve_cache_room(
    cache: KeyValueCache, rows: Tensor, room: int, kind: Callable[[DynamicLayer], NewLayer] = lambda _: RoomyLayer
) -> None:
    """Reduce or repeat a prefilled cache's rows to `rows` (N,), in place, and make room for `room` more tokens.

    `kind` returns the class that replaces a layer.
    """
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = kind(layer)(layer.keys, layer.values, rows, room)
        else:
            layer.batch_select_indices(rows)


def list_unsupported_cache_layers(model: PretrainedCausalLM) -> list[str]:
    """The kinds of layers of a model's cache that `compact_cache` cannot take a column out of; nothing where all are
    plain attention.
    """
    layers = DynamicCache(config=model.config).layers
    return [*dict.fromkeys(type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer)]


def compact_cache(cache: KeyValueCache, rows: Tensor, real: Tensor) -> Tensor:
    """Keep the cache's rows `rows` (n,), in place, and of their columns the `real` ones (n, length), moved to the right
    end.

    Returns which columns are real now (n, longest). Positions are in the keys, so that a column may stand anywhere
    before the next token. TrainingError where a layer is of another kind than plain attention, which a column cannot be
    taken out of.
    """
    longest = int(real.sum(1).max())
    order = real.long().sort(dim=1, stable=True).indices[:, -longest:]  # the real ones last, in their order
    for index, layer in enumerate(cache.layers):
        if type(layer) not in (DynamicLayer, RoomyLayer):
            raise TrainingError(
                f"a layer of the model keeps its keys in a {type(layer).__name__}; expected plain attention, "
                "without a sliding window"
            )
        shape = (len(rows), layer.keys.shape[1], longest, layer.keys.shape[3])
        columns = order.view(len(rows), 1, longest, 1).expand(shape)
        closed = DynamicLayer()
        closed.is_initialized = True
        closed.keys = layer.keys[rows].gather(2, columns)
        closed.values = layer.values[rows].gather(2, columns)
        cache.layers[index] = closed
    return real.gather(1, order)


def _copy_into_larger_buffer(states: Tensor, rows: Tensor, room: int) -> Tensor:
    _, heads, length, size = states.shape
    buffer = states.new_empty(len(rows), heads, length + room, size)
    buffer[:, :, :length] = states[rows]
    return buffer
