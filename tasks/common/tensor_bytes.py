"""The first tensor in which two safetensors files differ, compared bit by bit without loading a model.

A file is the length of its header (8 bytes, little end first), the header in JSON, and the tensors' bytes
(https://huggingface.co/docs/safetensors). Files are mapped, so that checkpoints larger than the memory can be compared.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
PART = 2**24  # bytes of a tensor that are compared at once
LARGEST_HEADER = 10**8  # bytes, as safetensors itself has it
TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "BOOL": np.uint8,
}


class FormatError(ValueError):
    """Not a safetensors file."""


def find_tensor_difference(recorded: Path, made: Path) -> dict[str, Any] | None:
    """`what` in one line, and the name, shape, dtype, number of values and largest difference; None if all tensors are
    equal.

    Tensors are gone through as they lie in the recorded file.
    """
    (before, reference) = _read_header(recorded)
    (after, other) = _read_header(made)
    different: list[dict[str, Any]] = []
    for name in [*before, *(name for name in after if name not in before)]:
        if (facts := _compare_tensor(name, before.get(name), after.get(name), reference, other)) is not None:
            different.append(facts)
    if not different:
        return None
    first = different[0]
    more = f"; {len(different)} of {len({**before, **after})} tensors differ" if len(different) > 1 else ""
    return {**first, "what": first["what"] + more, "tensors": len(different)}


def _compare_tensor(
    name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, reference: Bytes, other: Bytes
) -> dict[str, Any] | None:
    if before is None or after is None:
        return {"what": f"tensor {name}: only in the {'made' if before is None else 'recorded'} file", "tensor": name}
    kinds = [f"{facts['dtype']} {'x'.join(map(str, facts['shape'])) or 'scalar'}" for facts in (before, after)]
    if kinds[0] != kinds[1]:
        return {"what": f"tensor {name}: {kinds[0]} recorded, {kinds[1]} made", "tensor": name}
    (begin, end) = before["data_offsets"]
    (start, stop) = after["data_offsets"]
    count, largest, total = _count_differing_values(reference[begin:end], other[start:stop], before["dtype"])
    if not count:
        return None
    by = "" if largest is None else f", by {largest:.3g} at most"
    return {
        "what": f"tensor {name} ({kinds[0]}): {count} of {total} values differ{by}",
        "tensor": name,
        "dtype": before["dtype"],
        "shape": before["shape"],
        "values": count,
        "of": total,
        "largest": largest,
    }


def _count_differing_values(reference: Bytes, other: Bytes, dtype: str) -> tuple[int, float | None, int]:
    """How many values differ in any bit, the largest difference of those that are numbers, and how many values there
    are.
    """
    width = 2 if dtype == "BF16" else np.dtype(TYPES.get(dtype, np.uint8)).itemsize
    if len(reference) != len(other) or len(reference) % width:
        raise FormatError(f"a tensor's bytes do not fit its type {dtype}")
    count = 0
    largest = float("-inf")
    for begin in range(0, len(reference), PART):
        bits = [np.ascontiguousarray(part[begin : begin + PART]).view(f"u{width}") for part in (reference, other)]
        where = np.flatnonzero(bits[0] != bits[1])
        if len(where):
            count += len(where)
            with np.errstate(all="ignore"):
                apart = np.abs(_decode_numbers(bits[0][where], dtype) - _decode_numbers(bits[1][where], dtype))
            largest = max(largest, float(np.nanmax(apart, initial=float("-inf"))))
    comparable = largest > float("-inf") and (dtype in TYPES or dtype == "BF16")
    return count, largest if comparable else None, len(reference) // width


def _decode_numbers(bits: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    if dtype == "BF16":  # the upper half of a float32
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view(TYPES.get(dtype, np.uint8)).astype(np.float64)


def _read_header(file: Path) -> tuple[dict[str, Mapping[str, Any]], Bytes]:
    """The tensors' entries in the order of their bytes, and these bytes."""
    size = file.stat().st_size
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            raise FormatError(f"{file}: not a safetensors file")
        header = json.loads(content.read(length))
    header.pop("__metadata__", None)
    body: Bytes = np.memmap(file, np.uint8, "r", 8 + length) if size > 8 + length else np.zeros(0, np.uint8)
    for facts in header.values():
        begin, end = facts["data_offsets"]
        if not 0 <= begin <= end <= len(body):
            raise FormatError(f"{file}: a tensor's bytes lie outside the file")
    return dict(sorted(header.items(), key=lambda item: item[1]["data_offsets"])), body
