"""Models and tokenizers on disk, in Hugging Face layout: nothing is pickled, and no remote code is run.

transformers is imported by the functions that need it: it costs two seconds, and half the stages handle tables only.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tasks.common import adapters, processes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
    from tasks.common.tokenizers import Tokenizer

TOKENIZER = "tokenizer_config.json"  # beside the weights of a language model
Model = TypeVar("Model", bound="PretrainedModel")


def choose_device() -> str:
    """Where models go: POSTTRAIN_DEVICE, else a GPU where there is one, else the CPU. It is no parameter."""
    import torch

    return os.environ.get("POSTTRAIN_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


def load_model(path: Path, dtype: str = "float32") -> "PretrainedCausalLM":
    """A causal language model in evaluation mode (dropout off), in fp32 unless `dtype` says otherwise; an adapter is
    merged.
    """
    from transformers import AutoModelForCausalLM

    adapted = adapters.has_adapter(path)
    model: PretrainedCausalLM = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=adapters.choose_loading_dtype(dtype) if adapted else dtype,
        local_files_only=True,
        trust_remote_code=False,
        **adapters.NONE,
    )
    if adapted:
        adapters.merge_saved_adapter(model, path, dtype)
    return prepare_model_on_device(model, load_tokenizer(path) if (path / TOKENIZER).is_file() else None)


def prepare_model_on_device(model: Model, tokenizer: "Tokenizer | None" = None) -> Model:
    """The model on the device, in evaluation mode, with the faster products where it has plain linear layers.

    A language model is given its tokenizer: rows of its head that no token has are never sampled (lm_head.restrict).
    """
    from torch import nn

    from tasks.algorithms.common.linear import replace_linear_layers
    from tasks.algorithms.language.lm_head import mask_spare_tokens

    made = replace_linear_layers(model).eval().to(choose_device())
    if tokenizer is not None and isinstance(made, nn.Module):
        mask_spare_tokens(made, find_unused_head_rows(made, tokenizer))
    return made


def find_unused_head_rows(model: "PretrainedModel", tokenizer: "Tokenizer") -> "Tensor":
    """The rows of the model's head that the tokenizer has no token for, in order: (n,)."""
    import torch

    head: Any = model.get_output_embeddings() or model.get_input_embeddings()
    rows = torch.arange(len(head.weight))
    return rows[~torch.isin(rows, torch.tensor([*tokenizer.get_vocab().values()]))]


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
    if not processes.is_main_process():
        return
    model.save_pretrained(path, state_dict=weights)
    tokenizer.save_pretrained(path)
    for written in path.glob("*.safetensors"):  # for their owner alone, whatever the umask says of the others
        written.chmod((path / "config.json").stat().st_mode)
