"""What benchmarks/rl.py compares: sizes and cases.

Imports nothing, so that the parent of the measured processes is small.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Algorithm = Literal["grpo", "dpo"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
Device = Literal["cpu", "cuda"]
OURS = "posttrain"
THEIRS = "TRL"
THREADS = 2
STATIC = {"cache_implementation": "static"}  # TRL's fastest sampling on a CPU; benchmarks/rl.md has the other ways


@dataclass(frozen=True)
class Size:
    """A model, and the size of its steps."""

    architecture: Literal["llama", "qwen2"]
    shape: Mapping[str, Any]  # its configuration
    prompts: int  # in a GRPO step
    samples: int  # responses to each: G
    pairs: int  # in a DPO step
    response: int  # tokens, at most
    stop: float  # probability of an end token, if responses end by themselves
    micro_batch: int  # responses (GRPO) or pairs (DPO) in one pass


@dataclass(frozen=True)
class Case:
    """One line of the tables."""

    algorithm: Algorithm
    prompt: int  # tokens
    natural: bool  # whether responses end by themselves
    size: Size
    device: Device
    threads: int
    steps: int  # the first is a warm-up
    attention: str = "sdpa"
    trl: Mapping[str, Any] = field(default_factory=lambda: STATIC)  # changes to GRPOConfig


def build_llama_shape(width: int, layers: int, heads: int, inner: int, vocabulary: int) -> dict[str, Any]:
    """A Llama's shape, embeddings tied."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    }


QWEN = {
    **build_llama_shape(896, 24, 14, 4864, 151936),
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
STOP = 1 / 36  # of at most 64 tokens: 30 in the mean
CPU = Size(
    "llama",
    build_llama_shape(320, 7, 5, 864, 4096),
    prompts=8,
    samples=8,
    pairs=8,
    response=64,
    stop=STOP,
    micro_batch=16,
)
CUDA = Size("qwen2", QWEN, prompts=8, samples=8, pairs=8, response=64, stop=STOP, micro_batch=16)
QUICK = Size(
    "llama", build_llama_shape(32, 2, 2, 64, 64), prompts=2, samples=2, pairs=2, response=6, stop=0.2, micro_batch=2
)
