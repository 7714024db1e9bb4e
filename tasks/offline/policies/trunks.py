"""Transformers that a Decision Transformer is built around: a new one of ours, or any Hugging Face language model's.

transformers is imported by the functions that need it: a policy on our own trunk is trained and played without.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.decision_transformer import DecisionTransformer
from tasks.algorithms.offline.networks.transformer import Transformer
from tasks.algorithms.offline.text_pretraining import Text
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common import model_files
from tasks.common.errors import DataError


class HuggingFace(nn.Module):
    """A base model (GPT-2, Llama, Qwen, ..) as a trunk: it keeps its layers and loses its vocabulary and learned
    positions.

    Timesteps have embeddings of their own, so learned position embeddings are zeroed, as in the paper's code; rotary
    ones belong to the layers and stay. Dropout is off.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        config.vocab_size = 1
        config.bos_token_id = config.eos_token_id = config.pad_token_id = None
        model.set_input_embeddings(nn.Embedding(1, config.hidden_size))  # never used
        for embedding in (model.get_input_embeddings(), find_position_embedding(model)):
            if embedding is not None:
                nn.init.zeros_(embedding.weight).requires_grad_(False)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self.model = model
        self.width = int(config.hidden_size)
        self.sizes = {"architecture": json.loads(config.to_json_string())}

    def forward(self, embeddings: Tensor, positions: Tensor | None = None) -> Tensor:
        """Hidden states (B, P, W) of these positions (P,) of `embeddings` (B, T, W); of all without `positions`."""
        hidden: Tensor = self.model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return hidden if positions is None else hidden[:, positions]

    @torch.no_grad()
    def is_position_dependent(self) -> bool:
        """Whether a vector's place changes the output: equal vectors then come out unequal."""
        hidden = self.eval()(torch.ones(1, 4, self.width))
        return not torch.allclose(hidden, hidden[:, :1], atol=1e-3)


Trunk = Transformer | HuggingFace


@dataclass(frozen=True)
class LanguageModel:
    """A language model taken apart."""

    trunk: HuggingFace
    tokens: Tensor  # (V, W)
    positions: Tensor | None  # (C, W); None where the layers have rotary ones
    head: Tensor | None  # (V, W), None if it equals `tokens`
    longest: int  # the longest sequence that it was made for

    def text(self, length: int) -> Text:
        """The embeddings and the head around the trunk, for rows of up to `length` tokens."""
        positions = torch.zeros(length, self.trunk.width) if self.positions is None else self.positions
        return Text(self.tokens, positions, self.head)


def find_position_embedding(model: Any) -> nn.Embedding | None:
    """A GPT-2-like base model's position embeddings; None of others."""
    positions: nn.Embedding | None = getattr(model, "wpe", None)
    return positions


def load_language_model(source: str | Path, revision: str | None) -> LanguageModel:
    """The causal language model in a directory, or with a hub id at a revision; DataError with one line if there is
    none.
    """
    from transformers import AutoModelForCausalLM

    at: dict[str, Any] = {} if isinstance(source, Path) else {"revision": revision}
    whole = model_files.load_checked_model(AutoModelForCausalLM, source, **at)
    tokens = whole.get_input_embeddings().weight.detach()
    head = whole.get_output_embeddings().weight.detach()
    position_embedding = find_position_embedding(whole.base_model)
    positions = None if position_embedding is None else position_embedding.weight.detach().clone()
    trunk = HuggingFace(whole.base_model)
    if trunk.is_position_dependent():
        raise DataError(
            f"{source}: its position embeddings cannot be taken out; models like GPT-2 or Llama can be used"
        )
    same = head.data_ptr() == tokens.data_ptr()
    return LanguageModel(trunk, tokens, positions, None if same else head, whole.config.max_position_embeddings)


def build_trunk(sizes: Mapping[str, Any]) -> Trunk:
    """A trunk with new weights of a trunk's `sizes`."""
    if "architecture" not in sizes:
        return Transformer(**sizes)
    from transformers import AutoConfig, AutoModel

    architecture = dict(sizes["architecture"])
    config = AutoConfig.for_model(architecture.pop("model_type"), **architecture)
    return HuggingFace(AutoModel.from_config(config, dtype=torch.float32))


def build_decision_transformer(spaces: Spaces, *, trunk: dict[str, Any], **sizes: Any) -> DecisionTransformer:
    """A policy of these sizes, as tasks/offline/policies/kinds.py loads it."""
    return DecisionTransformer(spaces, build_trunk(trunk), **sizes)
