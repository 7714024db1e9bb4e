"""Check what a stage wrote before it enters the cache: `python -m tasks.check PATH...`, one line a problem, exit code
1.

With `-` for the paths it answers questions until standard input ends, so that a whole flow needs to start it only once.

Tables are held against their schema, weights and numbers must be finite. Transformers is not imported, and torch only
for number formats that numpy lacks, so that a check costs little.
"""

import functools
import importlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pandas as pd
import pandera.errors
from safetensors import SafetensorError, safe_open

from tasks.common.tables import Table
from tasks.offline.datasets import episodes

HOME = Path(__file__).parent
NUMPY_DTYPES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U8", "BOOL")
SHOWN = 5  # failures of one table that are told one by one


@functools.cache
def collect_table_schemas() -> dict[str, type[Table]]:
    """Name of a file, or FOLDER/NAME where tables of one name differ -> its schema: all that FILES of the modules
    tables.py and tables/*.py names.
    """
    schemas: dict[str, type[Table]] = {}
    for file in sorted([*HOME.glob("*/**/tables.py"), *HOME.glob("*/**/tables/*.py")]):
        module = importlib.import_module(".".join((HOME.name, *file.relative_to(HOME).with_suffix("").parts)))
        schemas |= getattr(module, "FILES", {})
    return schemas


def find_table_schema(path: Path) -> type[Table] | None:
    """The schema of a stage's table, by its place; None for a table of which none is known."""
    return collect_table_schemas().get(f"{path.parent.name}/{path.name}") or collect_table_schemas().get(path.name)


def find_table_problems(path: Path) -> Iterator[str]:
    """Where a parquet file breaks its schema; a file without a known schema is a problem too."""
    schema = find_table_schema(path)
    if schema is None:
        yield "no schema is known for this table (FILES of a module tables.py names it)"
        return
    try:
        schema.validate(pd.read_parquet(path), lazy=True)
    except pandera.errors.SchemaErrors as error:
        cases = error.failure_cases
        of_row = (cases["schema_context"] == "DataFrameSchema") & cases["index"].notna()  # told once for each column
        cases = cases[~(of_row & cases.duplicated(["check", "index"]))]
        for case in cases.head(SHOWN).to_dict("records"):
            row = "" if pd.isna(case["index"]) else f", row {case['index']}"
            yield (
                f"not a {schema.__name__} table: column {case['column']}{row}: {case['check']}, got "
                f"{case['failure_case']!r}"
            )
        if len(cases) > SHOWN:
            yield f"not a {schema.__name__} table: {len(cases) - SHOWN} more failures"


def find_weight_problems(path: Path) -> Iterator[str]:
    """Tensors that hold a NaN or an infinity."""
    with safe_open(path, framework="np") as file:
        names = list(file.keys())
        in_numpy = all(file.get_slice(name).get_dtype() in NUMPY_DTYPES for name in names)
    with safe_open(path, framework="np" if in_numpy else "pt") as file:
        for name in names:
            tensor = file.get_tensor(name) if in_numpy else file.get_tensor(name).float().numpy()
            if bad := np.count_nonzero(~np.isfinite(tensor)):
                yield f"tensor {name}: {bad} of {tensor.size} values are not finite"


def find_json_problems(path: Path) -> Iterator[str]:
    """Numbers that are NaN or infinite, by their key."""

    def walk(value: object, key: str) -> Iterator[str]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, f"{key}.{name}" if key else str(name))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, f"{key}[{index}]")
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{key}: expected a finite number, got {value}"

    yield from walk(json.loads(path.read_text()), "")


def find_csv_problems(path: Path) -> Iterator[str]:
    """Columns of numbers with a NaN, an infinity or a gap. A header without rows is a curve with no steps.

    What one variant of a method measures and another does not, such as a loss of text, is no gap.
    """
    frame = pd.read_csv(path)
    for column in frame.select_dtypes("number"):
        bad = ~np.isfinite(frame[column])
        if "variant" in frame:
            bad &= frame[column].notna().groupby(frame["variant"]).transform("any")
        if bad.any():
            yield (
                f"column {column}, line {int(bad.to_numpy().argmax()) + 2}: expected a finite number, got "
                f"{frame[column][bad].iloc[0]}"
            )


def find_episode_problems(path: Path) -> Iterator[str]:
    """The first fault of a data set of transitions; metadata.json beside it says what it should hold."""
    described = json.loads((path.parent / "metadata.json").read_text())
    observations, actions = (json.loads(described[name]) for name in ("observation_space", "action_space"))
    discrete = actions["type"] == "Discrete"
    try:
        trajectories = list(episodes.read_episode_file(path))
        episodes.check_episodes(
            trajectories, observations["shape"][0], actions["n"] if discrete else actions["shape"][0], discrete
        )
    except episodes.BadEpisode as error:
        yield str(error)
        return
    for name, count in (("total_episodes", len(trajectories)), ("total_steps", sum(map(len, trajectories)))):
        if described[name] != count:
            yield f"{name}: {count} here, but {described[name]} in metadata.json"


CHECKS: dict[str, Callable[[Path], Iterator[str]]] = {
    ".parquet": find_table_problems,
    ".safetensors": find_weight_problems,
    ".json": find_json_problems,
    ".csv": find_csv_problems,
    ".hdf5": find_episode_problems,
}


def find_file_problems(path: Path) -> Iterator[str]:
    """Every problem of a file, or of the files under a directory, as `file: what`; unreadable files are problems."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        check = CHECKS.get(file.suffix)
        if check is None or not file.is_file():
            continue
        try:
            yield from (f"{file}: {problem}" for problem in check(file))
        except (
            ValueError,
            KeyError,
            OSError,
            SafetensorError,
        ) as error:  # json, csv and parquet readers raise ValueErrors
            yield f"{file}: cannot be read: {' '.join(str(error).split())}"


def serve_check_requests() -> None:
    """Answer each line of standard input, a JSON list of paths, with the JSON list of their problems.

    The end of standard input ends the process at once, even during a check, since the process that asked is gone.
    """
    questions: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            questions.put(line)
        os._exit(0)

    Thread(target=listen, daemon=True).start()
    # what a library prints is no answer
    answers = sys.stdout
    sys.stdout = sys.stderr
    try:
        while True:
            paths = json.loads(questions.get())
            print(
                json.dumps([problem for path in paths for problem in find_file_problems(Path(path))]),
                file=answers,
                flush=True,
            )
    except Exception:
        traceback.print_exc()
        os._exit(1)  # the listening thread would keep an ordinary exit from closing standard input


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        serve_check_requests()
    faults = [problem for argument in sys.argv[1:] for problem in find_file_problems(Path(argument))]
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    sys.exit(1 if faults else 0)
