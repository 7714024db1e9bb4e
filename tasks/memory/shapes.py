"""A language model by its numbers: what config.json, params.yaml or a size such as "8B" says of its matrices.

Nothing here imports torch: weights and activations are counted by formula, and a test compares both with torch's own
models.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tasks.common.errors import DataError

SIZE = re.compile(r"^(\d+(?:\.\d+)?) ?([MB])$", re.IGNORECASE)
UNITS = {"M": 10**6, "B": 10**9}
GATED = ("llama", "mistral", "qwen2", "qwen3")  # RMS norms, rotary positions, a gate beside the feed-forward layer
PLAIN = ("gpt2", "gpt_neox")  # layer norms with biases, and no gate


class Matrix(NamedTuple):
    """A linear layer: its name as it ends, and its sizes."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False

    @property
    def weights(self) -> int:
        """How many weights it has, its bias included."""
        return self.inputs * self.outputs + self.outputs * self.bias


@dataclass(frozen=True)
class Shape:
    """A causal language model with attention in every layer."""

    name: str  # as it is shown
    kind: str  # model_type of config.json
    vocabulary: int
    width: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    inner: int  # width of the feed-forward layer
    tied: bool  # embeddings and head are one matrix
    context: int  # positions
    query_bias: bool = False
    output_bias: bool = False
    inner_bias: bool = False
    named: int | None = None  # weights in all, where somebody said how many, and the layers are stretched to them

    @property
    def scale(self) -> float:
        """How far each matrix is stretched, so that all weights are as many as were named."""
        return self.named / replace(self, named=None).weights if self.named else 1.0

    @property
    def gated(self) -> bool:
        """Whether a gate stands beside the feed-forward layer, and norms are those of Llama."""
        return self.kind not in PLAIN

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_size

    @property
    def key_width(self) -> int:
        """Width of all keys together, and of all values."""
        return self.key_heads * self.head_size

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The linear layers of one layer, as transformers names them."""
        d = self.width
        q = self.query_width
        k = self.key_width
        f = self.inner
        if self.kind == "gpt2":
            return (
                Matrix("c_attn", d, 3 * d, True),
                Matrix("c_proj", d, d, True),
                Matrix("c_fc", d, f, True),
                Matrix("c_proj", f, d, True),
            )
        if self.kind == "gpt_neox":
            return (
                Matrix("query_key_value", d, 3 * d, self.query_bias),
                Matrix("dense", d, d, self.query_bias),
                Matrix("dense_h_to_4h", d, f, True),
                Matrix("dense_4h_to_h", f, d, True),
            )
        return (
            Matrix("q_proj", d, q, self.query_bias),
            Matrix("k_proj", d, k, self.query_bias),
            Matrix("v_proj", d, k, self.query_bias),
            Matrix("o_proj", q, d, self.output_bias),
            Matrix("gate_proj", d, f, self.inner_bias),
            Matrix("up_proj", d, f, self.inner_bias),
            Matrix("down_proj", f, d, self.inner_bias),
        )

    @property
    def layer(self) -> int:
        """Weights of one layer."""
        norms = 2 * self.width * (1 if self.gated else 2) + 2 * self.head_size * (self.kind == "qwen3")
        return round(self.scale * (sum(matrix.weights for matrix in self.matrices) + norms))

    @property
    def embedding(self) -> int:
        """Weights of the embeddings of tokens: as many as the head has."""
        return round(self.scale * self.vocabulary * self.width)

    @property
    def body(self) -> int:
        """Weights without those of a head of its own."""
        positions = self.context * self.width * (self.kind == "gpt2")
        last = self.width * (1 if self.gated else 2)
        return self.embedding + self.layers * self.layer + round(self.scale * (positions + last))

    @property
    def weights(self) -> int:
        """All weights; a matrix that is both embeddings and head counts once."""
        return self.named or self.body + (0 if self.tied else self.embedding)

    def adapter(self, rank: int) -> int:
        """Weights of LoRA's two factors beside each linear layer (`targets: all-linear`)."""
        return self.layers * sum(rank * (matrix.inputs + matrix.outputs) for matrix in self.matrices)

    def hidden(self) -> int:
        """Weights of the matrices within the layers, which Muon updates."""
        return round(self.scale * self.layers * sum(matrix.inputs * matrix.outputs for matrix in self.matrices))


# Two small shapes and published models, which stand for a size that is named alone: the nearest one in the logarithm of
# its weights.
KNOWN = (
    Shape("10M", "llama", 4096, 256, 8, 8, 8, 32, 1024, True, 1024),
    Shape("50M", "llama", 8192, 512, 11, 8, 8, 64, 2048, True, 2048),
    Shape("SmolLM2-135M", "llama", 49152, 576, 30, 9, 3, 64, 1536, True, 8192),
    Shape("Qwen2.5-0.5B", "qwen2", 151936, 896, 24, 14, 2, 64, 4864, True, 32768, query_bias=True),
    Shape("Qwen2.5-1.5B", "qwen2", 151936, 1536, 28, 12, 2, 128, 8960, True, 131072, query_bias=True),
    Shape("Llama-3.2-3B", "llama", 128256, 3072, 28, 24, 8, 128, 8192, True, 131072),
    Shape("Llama-3-8B", "llama", 128256, 4096, 32, 32, 8, 128, 14336, False, 8192),
    Shape("Qwen2.5-14B", "qwen2", 152064, 5120, 48, 40, 8, 128, 13824, False, 131072, query_bias=True),
    Shape("Qwen2.5-32B", "qwen2", 152064, 5120, 64, 40, 8, 128, 27648, False, 131072, query_bias=True),
    Shape("Llama-3-70B", "llama", 128256, 8192, 80, 64, 8, 128, 28672, False, 8192),
)


def estimate_shape_from_size(text: str) -> Shape | None:
    """The shape of a size such as 8B or 0.5B, with exactly so many weights; None for other text."""
    match = SIZE.match(text)
    if not match or not float(match[1]):
        return None
    wanted = round(float(match[1]) * UNITS[match[2].upper()])
    nearest = min(KNOWN, key=lambda shape: abs(math.log(shape.weights / wanted)))
    return replace(nearest, named=wanted, name=f"{text} (layers as in {nearest.name})")


def build_shape_from_config(config: Mapping[str, Any], name: str, weights: int | None = None) -> Shape:
    """The shape that a config.json describes; DataError for an architecture of which nothing is known.

    `weights` is their number where the model's files tell it. An architecture without a formula then counts as one like
    Llama.
    """
    config = config.get("text_config", config)
    kind = str(config.get("model_type"))
    if kind not in (*GATED, *PLAIN) and weights is None:
        raise DataError(
            f"{name}: model type {kind}: its weights are not counted here; expected one of "
            f"{', '.join((*GATED, *PLAIN))}, a folder "
            "with the weights, or a size such as 8B"
        )
    try:
        shape = _build_gpt2_shape(config, name) if kind == "gpt2" else _build_common_shape(config, name, kind)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(f"{name}: config.json: no usable {error.args[0] if error.args else 'size'}") from None
    if weights is None or kind in (*GATED, *PLAIN):
        return shape
    return replace(shape, named=weights)


def _build_gpt2_shape(config: Mapping[str, Any], name: str) -> Shape:
    width = config["n_embd"]
    heads = config["n_head"]
    inner = config.get("n_inner") or 4 * width
    positions = config["n_positions"]
    size = width // heads
    tied = config.get("tie_word_embeddings", True)
    return Shape(
        name, "gpt2", config["vocab_size"], width, config["n_layer"], heads, heads, size, inner, tied, positions
    )


def _build_common_shape(config: Mapping[str, Any], name: str, kind: str) -> Shape:
    width = config["hidden_size"]
    heads = config["num_attention_heads"]
    attention = bool(config.get("attention_bias", kind == "gpt_neox"))
    return Shape(
        name,
        kind,
        config["vocab_size"],
        width,
        config["num_hidden_layers"],
        heads,
        config.get("num_key_value_heads") or heads,
        config.get("head_dim") or width // heads,
        config["intermediate_size"],
        bool(config.get("tie_word_embeddings", False)),
        config.get("max_position_embeddings") or 0,
        query_bias=kind == "qwen2" or attention,
        output_bias=attention,
        inner_bias=bool(config.get("mlp_bias", False)),
    )


def read_shape_from_folder(folder: Path) -> Shape:
    """The shape of a model in Hugging Face layout; DataError with one line where it cannot be known."""
    try:
        config = json.loads((folder / "config.json").read_text())
        if not isinstance(config, dict):
            raise ValueError
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{folder}: config.json cannot be read ({type(error).__name__})") from None
    return build_shape_from_config(config, str(folder), _count_stored_weights(folder))


def _count_stored_weights(folder: Path) -> int | None:
    """The number of weights in the safetensors files of a folder, by their headers; None without any."""
    total = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            written = opened.read(length) if length < 2**28 else b"{}"
        try:
            header = json.loads(written)
            total += sum(math.prod(tensor["shape"]) for key, tensor in header.items() if key != "__metadata__")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DataError(f"{file}: cannot be read as safetensors") from None
    return total or None
