"""Models of some thousand weights, and one whose probabilities can be read off a table."""

from types import SimpleNamespace

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from tasks.algorithms.language.completions import make_completions

SIZES = {
    "vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,  # large, so that a random model prefers some tokens clearly
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
GPT2_SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}


def llama(seed=0, **changes):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})).eval()


def llama_scorer(seed=0, **changes):
    torch.manual_seed(seed)
    return LlamaForSequenceClassification(LlamaConfig(**{**SIZES, "num_labels": 1, **changes})).eval()


def qwen2(seed=0):
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(**SIZES)).eval()


def gpt2(seed=0, **changes):
    torch.manual_seed(seed)
    sizes = {key: value for key, value in SIZES.items() if key not in ("hidden_size", "num_key_value_heads")}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **GPT2_SIZES, **changes})).eval()


ARCHITECTURES = {"llama": llama, "qwen2": qwen2, "gpt2": gpt2}


class Bigrams(torch.nn.Module):
    """A model whose next token depends on the last one only: row i of `table` has the probabilities after token i."""

    def __init__(self, table):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(table).log())

    def forward(self, input_ids, **_):
        return SimpleNamespace(logits=self.logits[input_ids], past_key_values=NoCache())


class NoCache:
    """A bigram model needs to remember nothing."""

    layers = ()

    def batch_select_indices(self, rows):
        pass


def completions(prompts, responses, pad):
    """One response to each of `prompts`; equal prompts that follow each other stand once."""
    asked, owner = [], []
    for prompt in prompts:
        if not asked or asked[-1] != prompt:
            asked.append(prompt)
        owner.append(len(asked) - 1)
    return make_completions(asked, owner, responses, pad)


# After 0, 1 and the end token 2. In the tests below 2 is the padding as well.
BIGRAMS = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]
END = 2
