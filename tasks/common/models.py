"""Models and tokenizers on disk, in Hugging Face layout: nothing is pickled, and no remote code is run.

transformers is imported by the functions that need it: it costs two seconds, and half the stages handle tables only.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tasks.common import adapters, processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
    from tasks.common.tokenizers import Tokenizer

Model = TypeVar("Model", bound="PretrainedModel")


def device() -> str:
    """Where models go: POSTTRAIN_DEVICE, else a GPU where there is one, else the CPU. It is no parameter."""
    import torch

    return os.environ.get("POSTTRAIN_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


def load_model(path: Path, dtype: str = "float32") -> "PretrainedCausalLM":
    """A causal language model in evaluation mode (dropout off), in fp32 unless `dtype` says otherwise; an adapter is merged."""
    from transformers import AutoModelForCausalLM

    adapted = adapters.has_adapter(path)
    model: PretrainedCausalLM = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=adapters.unrounded(dtype) if adapted else dtype,
        local_files_only=True,
        trust_remote_code=False,
        **adapters.NONE,
    )
    if adapted:
        adapters.merge_saved(model, path, dtype)
    return placed(model)


def placed(model: Model) -> Model:
    """The model on the device, in evaluation mode, with the faster products where it has plain linear layers."""
    from tasks.algorithms.common.linear import with_fast_products

    return with_fast_products(model).eval().to(device())


def load_tokenizer(path: Path) -> "Tokenizer":
    """The tokenizer saved beside a model."""
    from transformers import AutoTokenizer

    tokenizer: Tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    return tokenizer


def save_model(
    model: "PretrainedModel", tokenizer: "Tokenizer", path: Path, weights: "Mapping[str, Tensor] | None" = None
) -> None:
    """Model and tokenizer as one directory that `from_pretrained` loads; of several processes the first writes it.

    `weights` are those of a model that is divided, by name, as they stand on the first process.
    """
    if not processes.is_main():
        return
    model.save_pretrained(path, state_dict=weights)
    tokenizer.save_pretrained(path)
    for written in path.glob("*.safetensors"):  # for their owner alone, whatever the umask says of the others
        written.chmod((path / "config.json").stat().st_mode)
