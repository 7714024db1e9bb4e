"""The architectures of well-known models with random weights and few layers; windows are shorter than the tests'
prompts.
"""

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.tasks.tiny import SIZES, gpt2, llama

VOCABULARY, WINDOW = 48, 6


def _made(kind, config, **changes):
    def make(seed=0, **more):
        torch.manual_seed(seed)
        return kind(config(**{**SIZES, "vocab_size": VOCABULARY, **changes, **more})).eval()

    return make


SHAPES = {
    "llama": lambda seed=0: llama(seed, vocab_size=VOCABULARY),
    "qwen2": _made(Qwen2ForCausalLM, Qwen2Config),
    "qwen3": _made(Qwen3ForCausalLM, Qwen3Config, head_dim=8),
    "gemma2": _made(Gemma2ForCausalLM, Gemma2Config, head_dim=8, query_pre_attn_scalar=8, sliding_window=WINDOW),
    "gemma3": _made(
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "mistral": _made(MistralForCausalLM, MistralConfig, sliding_window=WINDOW),
    "phi3": _made(Phi3ForCausalLM, Phi3Config),
    "gpt2": lambda seed=0: gpt2(seed, vocab_size=VOCABULARY),
    "gpt_neox": _made(GPTNeoXForCausalLM, GPTNeoXConfig),
}
SLIDING = ("gemma2", "gemma3", "mistral")
