"""Files that are read again: a table whose bytes have been validated is not validated anew, a model is a copy of the
one read before.
"""

import copy
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import torch

from tasks.common import model_files, models, tables

LARGEST = 2**22  # bytes of a folder whose model is kept
MOST = 32  # models that are kept


Replacement = tuple[ModuleType, str, Callable[..., Any]]  # of a function of a module, by its name


def replacements() -> list[Replacement]:
    """Functions like `tables.read_table`, `models.load_model` and `model_files.load_checked_model` that remember what
    they have read.
    """
    return [
        (tables, "read_table", validated_once(tables.read_table)),
        (models, "load_model", loaded_once(models.load_model, lambda path, *_, **__: path)),
        (
            model_files,
            "load_checked_model",
            loaded_once(model_files.load_checked_model, lambda _, source, *__, **___: source),
        ),
    ]


def validated_once(read: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """`tables.read_table`, which validates a file of the same bytes by the same schema once."""
    valid: set[tuple[type, bytes]] = set()

    def read_or_skip(schema: type[tables.Table], path: Path) -> pd.DataFrame:
        if not Path(path).is_file():
            return read(schema, path)
        key = schema, sha256(Path(path).read_bytes()).digest()
        if key in valid:
            return pd.read_parquet(path)
        frame = read(schema, path)
        valid.add(key)
        return frame

    return read_or_skip


def loaded_once(load: Callable[..., Any], source: Callable[..., object]) -> Callable[..., Any]:
    """`load`, of which each model is a copy of the first of the same files and arguments, unless random numbers were
    drawn for that.

    The first is a copy too: how weights lie in memory decides the last bit of a product.
    """
    kept: dict[object, Any] = {}  # the one that was needed last at the end

    def load_or_copy(*arguments: Any, **options: Any) -> Any:
        folder = source(*arguments, **options)
        if not isinstance(folder, Path) or not (content := digest(folder)):
            return load(*arguments, **options)
        rest = tuple(one for one in arguments if one is not folder)
        settings = repr((rest, sorted(options.items()))), os.environ.get("POSTTRAIN_DEVICE"), torch.get_default_dtype()
        key = content, settings
        if key not in kept:
            before = torch.get_rng_state()
            model = load(*arguments, **options)
            if not torch.equal(before, torch.get_rng_state()):
                return model
            if len(kept) == MOST:
                kept.pop(next(iter(kept)))
            kept[key] = model
        else:
            kept[key] = kept.pop(key)
        return copy.deepcopy(kept[key])

    return load_or_copy


def digest(folder: Path) -> bytes:
    """Of the folder's path and all its files; nothing where there are none, or much."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files or sum(path.stat().st_size for path in files) > LARGEST:
        return b""
    hashed = sha256(str(folder).encode())
    for path in files:
        hashed.update(str(path).encode())
        hashed.update(path.read_bytes())
    return hashed.digest()
