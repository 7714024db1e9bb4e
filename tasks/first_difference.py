"""Where two versions of a file first differ: which tensor, which row and column, which key, which line or byte.

`python -m tasks.first_difference` reads [[name, file, file], ...] as JSON from standard input and writes a list with
one object for each: `what` is one line for a person, the other keys are its facts. The name's ending says what the
files hold.
"""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tasks.common.tensor_bytes import find_tensor_difference

Facts = dict[str, Any]
CHUNK = 2**20  # bytes
ROWS = 2048  # of a table that are compared at once
SHOWN = 80  # characters of a value in a message
SAME_CONTENT = "its content is the same; only the encoding differs"
_MISSING = object()


def find_first_difference(name: str, recorded: Path, made: Path) -> Facts:
    """Where the two files, whose bytes differ, first differ in content; of a broken file, where their bytes do."""
    compare = BY_SUFFIX.get(Path(name).suffix, _compare_bytes)
    try:
        return compare(recorded, made)
    except (ValueError, KeyError, TypeError, OSError, RecursionError):  # torn, or not what the name says
        return _compare_bytes(recorded, made)


def _compare_tensors(recorded: Path, made: Path) -> Facts:
    return find_tensor_difference(recorded, made) or _compare_bytes(recorded, made)


def _compare_parquet(recorded: Path, made: Path) -> Facts:
    import pyarrow.parquet as pq

    tables = pq.read_table(recorded), pq.read_table(made)
    fields = [{field.name: str(field.type) for field in table.schema} for table in tables]
    if fields[0] != fields[1]:
        names = [name for name in {**fields[0], **fields[1]} if fields[0].get(name) != fields[1].get(name)]
        name = names[0] if names else "their order"
        pair = [str(types.get(name, "no such column")) for types in fields]
        return {"what": f"column {name}: {pair[0]} recorded, {pair[1]} made", "column": name}
    for start in range(0, max(table.num_rows for table in tables), ROWS):
        slices = [table.slice(start, ROWS) for table in tables]
        if not slices[0].equals(slices[1]):
            rows = zip_longest(*(part.to_pylist() for part in slices), fillvalue=_MISSING)
            if (difference := _find_differing_row(enumerate(rows, start))) is not None:
                return difference
    return {"what": SAME_CONTENT}


def _compare_csv(recorded: Path, made: Path) -> Facts:
    with recorded.open(newline="") as recorded_file, made.open(newline="") as made_file:
        readers = csv.DictReader(recorded_file), csv.DictReader(made_file)
        if readers[0].fieldnames != readers[1].fieldnames:
            return {
                "what": (
                    f"its columns: {_format_value(readers[0].fieldnames)} recorded, "
                    f"{_format_value(readers[1].fieldnames)} made"
                )
            }
        difference = _find_differing_row(enumerate(zip_longest(*readers, fillvalue=_MISSING)))
    return difference or {"what": SAME_CONTENT}


def _find_differing_row(rows: Iterator[tuple[int, tuple[Any, ...]]]) -> Facts | None:
    """The first row, counted from 0, that differs, and its first column that does."""
    for index, (before, after) in rows:
        if before is _MISSING or after is _MISSING:
            more = "made" if before is _MISSING else "recorded"
            return {"what": f"only the {more} table has row {index}", "row": index}
        for column in before:
            if not _are_equal(before[column], after[column]):
                pair = _format_pair(before[column], after[column])
                step = {"step": before["step"]} if "step" in before else {}
                at = f" (step {before['step']})" if step else ""
                return {"what": f"row {index}{at}, column {column}: {pair}", "row": index, "column": column, **step}
    return None


def _compare_json(recorded: Path, made: Path) -> Facts:
    difference = _find_differing_key(json.loads(recorded.read_text()), json.loads(made.read_text()))
    return difference or {"what": SAME_CONTENT}


def _compare_json_lines(recorded: Path, made: Path) -> Facts:
    with recorded.open() as recorded_file, made.open() as made_file:
        for index, (before, after) in enumerate(zip_longest(recorded_file, made_file)):
            if before is None or after is None:
                return {"what": f"only the {'made' if before is None else 'recorded'} file has line {index + 1}"}
            if (difference := _find_differing_key(json.loads(before), json.loads(after))) is not None:
                return {**difference, "what": f"line {index + 1}, {difference['what']}", "line": index + 1}
    return {"what": SAME_CONTENT}


def _find_differing_key(before: Any, after: Any, key: str = "") -> Facts | None:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        inner: Iterator[tuple[str, Any, Any]] = (
            (str(name), before.get(name, _MISSING), after.get(name, _MISSING)) for name in {**before, **after}
        )
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(before, after, fillvalue=_MISSING)
        inner = ((str(index), recorded, made) for index, (recorded, made) in enumerate(pairs))
    else:
        return (
            None
            if _are_equal(before, after)
            else {"what": f"{f'key {key}' if key else 'its value'}: {_format_pair(before, after)}", "key": key}
        )
    differences = (
        _find_differing_key(recorded, made, f"{key}.{name}" if key else name) for name, recorded, made in inner
    )
    return next(filter(None, differences), None)


def _compare_bytes(recorded: Path, made: Path) -> Facts:
    """The first byte that differs, and in a text the line with it."""
    offset = 0
    lines = 1
    text = True
    with recorded.open("rb") as recorded_file, made.open("rb") as made_file:
        while True:
            before = recorded_file.read(CHUNK)
            after = made_file.read(CHUNK)
            if before != after or not before:
                break
            offset = offset + len(before)
            lines = lines + before.count(b"\n")
            text = text and b"\0" not in before
    same = next(
        (at for at, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), min(len(before), len(after))
    )
    if text and b"\0" not in before + after:
        line = lines + before[:same].count(b"\n")
        begin = before.rfind(b"\n", 0, same) + 1
        texts = [part[begin:].split(b"\n", 1)[0].decode(errors="replace") for part in (before, after)]
        return {"what": f"line {line}: {_format_pair(*texts)}", "line": line, "byte": offset + same}
    sizes = f"{recorded.stat().st_size} bytes recorded, {made.stat().st_size} made"
    return {"what": f"byte {offset + same} is the first that differs ({sizes})", "byte": offset + same}


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two values are the same; NaN is NaN here, and 1 is not true."""
    if isinstance(first, float) and isinstance(second, float):
        return first == second or (math.isnan(first) and math.isnan(second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_are_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_are_equal, first, second))
    return type(first) is type(second) and bool(first == second)


def _format_pair(before: Any, after: Any) -> str:
    return f"{_format_value(before)} recorded, {_format_value(after)} made"


def _format_value(value: Any) -> str:
    text = "nothing" if value is _MISSING else value if isinstance(value, str) else repr(value)
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= SHOWN else text[: SHOWN - 4] + " ..."


BY_SUFFIX: Mapping[str, Callable[[Path, Path], Facts]] = {
    ".safetensors": _compare_tensors,
    ".parquet": _compare_parquet,
    ".csv": _compare_csv,
    ".json": _compare_json,
    ".jsonl": _compare_json_lines,
}

if __name__ == "__main__":
    print(
        json.dumps(
            [find_first_difference(name, Path(recorded), Path(made)) for name, recorded, made in json.load(sys.stdin)]
        )
    )
