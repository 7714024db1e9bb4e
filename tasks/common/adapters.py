"""LoRA (arXiv:2106.09685) through peft: a weight W stays as it is, and alpha / rank times B A, of low rank, is learned
beside it.

peft's layers stand within the model, which keeps its class. So whatever reads the model works with and without them.
peft is imported by the functions that need it, since most runs have no adapter.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tasks.children import patterns
from tasks.common import processes
from tasks.common.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasks.algorithms.language.causal_lm import PretrainedModel


class Adapted(Protocol):
    """A module whose layers have adapters."""

    def named_modules(self) -> "Iterator[tuple[str, nn.Module]]":
        """All parts with their names."""
        ...

    def get_submodule(self, target: str) -> "nn.Module":
        """The part of this name."""
        ...

    def parameters(self) -> "Iterator[nn.Parameter]":
        """All weights."""
        ...


# as peft names them
FILE = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
NONE = {
    "adapter_kwargs": {"subfolder": "-"}
}  # arguments with which transformers does not look for them; its models save otherwise
NAME = "default"
# How peft matches what stands in adapter_config.json; the first two are lists of names, or one regular expression.
NAMES_OR_PATTERN = ("target_modules", "exclude_modules")
PATTERNS = {
    **dict.fromkeys(NAMES_OR_PATTERN, "{}"),
    **dict.fromkeys(("rank_pattern", "alpha_pattern"), r"(.*\.)?({})$"),
    "modules_to_save": r"(^|.*\.){}($|\..*)",
    "layers_pattern": r"(?:^|.*?\.){}\.(?P<idx>\d+)\.",
}
SHOWN = 8  # names shown of a longer list


def add_adapter(
    model: "PretrainedModel", rank: int, alpha: float, dropout: float, targets: str | Sequence[str]
) -> None:
    """Freeze the model and put an adapter beside its linear layers: those with the names, or `all-linear` for all but
    the head.

    B starts at 0, so that the model is at first what it was. A is drawn from torch's generator. ConfigError with one
    line where a name is none of a layer, or is that of the head or of the embeddings, which other parts of the model
    may share.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    outer = {
        id(part) for part in (model.get_input_embeddings(), model.get_output_embeddings(), _find_score_head(model))
    }
    inner = {name for name, part in _list_linear_layers(model) if id(part) not in outer}
    wanted = sorted({name.rpartition(".")[2] for name in inner}) if targets == "all-linear" else list(targets)
    if unknown := [name for name in wanted if not any(f".{layer}".endswith(f".{name}") for layer in inner)]:
        layer_names = sorted({name.rpartition(".")[2] for name in inner})
        raise ConfigError(
            f"params.yaml: lora.targets: {unknown[0]} is no linear layer of {model.name_or_path}; there are "
            f"{', '.join(layer_names[:SHOWN])}"
        )
    lora_config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=wanted,
        fan_in_fan_out=any(isinstance(part, Conv1D) for _, part in _list_linear_layers(model)),
    )
    inject_adapter_in_model(lora_config, model, NAME)
    if head := _find_score_head(model):
        head.requires_grad_(True)


def has_adapter(folder: Path) -> bool:
    """Whether the model saved in this folder has an adapter beside its weights."""
    return (folder / FILE).is_file()


@contextmanager
def disable_adapters(model: "Adapted") -> Iterator[None]:
    """In the block the model is what it was before its adapter was added. For passes without gradients."""
    layers = list(_iterate_adapted_layers(model))
    for _, layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for _, layer in layers:
            layer.enable_adapters(True)


def merge_adapters(model: "Adapted") -> None:
    """Add each adapter to its weight, in place; the model is then one without adapters, all of whose weights can be
    trained.
    """
    for name, layer in list(_iterate_adapted_layers(model)):
        layer.merge()
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer.get_base_layer())
    _make_all_trainable(model)


def choose_loading_dtype(dtype: str) -> str:
    """The type in which a model is to be loaded whose adapter is then merged."""
    return "float32" if dtype == "bfloat16" else dtype


def merge_saved_adapter(model: "Adapted", folder: Path, dtype: str) -> None:
    """Add to a model's weights, in place, the adapter that stands beside them in the folder; it may be another one than
    `save`'s.

    Load the model as `unrounded(dtype)`: the sums are rounded to `dtype`, as those of a model that was saved merged.
    """
    from peft import PeftModel

    _check_adapter_patterns(model, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads what transformers has given another name
        PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    _make_all_trainable(model)
    if dtype == "bfloat16":
        for p in model.parameters():
            p.data = p.data.bfloat16()


def _check_adapter_patterns(model: "Adapted", folder: Path) -> None:
    """DataError where a regular expression of adapter_config.json cannot be matched with the names of the model's parts
    in little time.
    """
    try:
        config = json.loads((folder / FILE).read_text())
        lists = {
            name: [config[name]] if isinstance(config.get(name), str) else config.get(name) or () for name in PATTERNS
        }
        expressions = {
            name: [pattern for pattern in lists[name] if isinstance(pattern, str)]
            for name in PATTERNS
            if name not in NAMES_OR_PATTERN or isinstance(config.get(name), str)
        }
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"{folder / FILE}: cannot be read ({type(error).__name__}: {error})") from None
    names = [name for name, _ in model.named_modules()]
    if wrong := patterns.find_pattern_fault(
        expressions, PATTERNS, [*names, *(f"base_model.model.{name}" for name in names)]
    ):
        raise DataError(f"{folder / FILE}: {wrong}")


def _make_all_trainable(model: "Adapted") -> None:
    for p in model.parameters():
        p.requires_grad_(True)
    vars(model).pop("peft_config", None)


def save_adapter(model: "PretrainedModel", folder: Path) -> None:
    """Write the adapter as peft does: adapter_model.safetensors, and adapter_config.json, which names no path; of
    several processes the first does.
    """
    from safetensors.torch import save_file

    if not processes.is_main_process():
        return
    folder.mkdir(parents=True, exist_ok=True)
    marked = {f".{kind}.{NAME}.": f".{kind}." for kind in ("lora_A", "lora_B")}
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        for inside, written in marked.items():
            if inside in name:
                tensors[f"base_model.model.{name.replace(inside, written)}"] = tensor.contiguous()
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    config = {
        name: sorted(v) if isinstance(v, set) else v for name, v in vars(model)["peft_config"][NAME].to_dict().items()
    }
    (folder / FILE).write_text(json.dumps({**config, "base_model_name_or_path": None}, indent=2, sort_keys=True) + "\n")
    (folder / WEIGHTS).chmod((folder / FILE).stat().st_mode)


def _iterate_adapted_layers(model: "Adapted") -> Iterator[tuple[str, Any]]:
    """The layers with an adapter, by name."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return ((name, part) for name, part in model.named_modules() if isinstance(part, BaseTunerLayer))


def _list_linear_layers(model: "PretrainedModel") -> "list[tuple[str, nn.Module]]":
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    return [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear | Conv1D)]


def _find_score_head(model: "PretrainedModel") -> "nn.Module | None":
    """The head of a classifier, which is new and so trained whole."""
    return getattr(model, "score", None)
