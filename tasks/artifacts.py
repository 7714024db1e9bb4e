"""Read and write what stages hand on: tables (parquet), curves (csv), models and tokenizers (Hugging Face layout).

Tables are validated in both directions. Nothing is pickled, and no remote code is run. transformers is imported by the
functions that need it: it costs two seconds, and half the stages handle tables only.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.errors

from tasks.schemas import Table


def _validate(schema: type[Table], frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    try:
        return schema.validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as error:
        cases = error.failure_cases
        first = cases.iloc[0]
        where = "" if pd.isna(first["index"]) else f", row {first['index']}"
        what = f"column {first['column']}{where}: {first['check']} fails for {first['failure_case']!r}"
        raise SystemExit(f"{path}: not a {schema.__name__} table: {what} ({len(cases)} failures in all)") from None


def read(schema: type[Table], path: Path) -> pd.DataFrame:
    """The table at `path`, validated; SystemExit with one line naming file, column and row."""
    return _validate(schema, pd.read_parquet(path), path)


def write(schema: type[Table], frame: pd.DataFrame, path: Path) -> None:
    """Validate `frame` and write it; on failure SystemExit with one line, and nothing is written."""
    frame = _validate(schema, frame.reset_index(drop=True), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path, index=False)


def write_curves(rows: Sequence[Any], path: Path) -> None:
    """Rows of metrics as csv, numbered from step 1, for `dvc plots` and the report; no rows leave only a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(list(rows), columns=None if rows else ["loss"])
    frame.insert(0, "step", range(1, len(frame) + 1))
    frame.to_csv(path, index=False)


def device() -> str:
    """Where models go: POSTTRAIN_DEVICE, else a GPU where there is one, else the CPU. It is no parameter."""
    import torch

    return os.environ.get("POSTTRAIN_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


def load_model(path: Path) -> Any:
    """A causal language model in fp32, in evaluation mode (dropout off)."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype="float32", local_files_only=True)
    return placed(model)


def placed(model: Any) -> Any:
    """The model on the device, in evaluation mode, with the faster products where it has plain linear layers."""
    from tasks.algorithms.linear import with_fast_products

    return with_fast_products(model).eval().to(device())


def load_tokenizer(path: Path) -> Any:
    """The tokenizer saved beside a model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def save_model(model: Any, tokenizer: Any, path: Path) -> None:
    """Model and tokenizer as one directory that `from_pretrained` loads."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    for weights in path.glob("*.safetensors"):  # written for their owner alone, whatever the umask says of the others
        weights.chmod((path / "config.json").stat().st_mode)
