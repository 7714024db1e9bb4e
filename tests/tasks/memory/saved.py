"""What torch itself keeps for the backward pass, and how large; and stages without a params.yaml."""

import torch

from tasks.memory.shapes import build_shape_from_config
from tasks.memory.workloads import Workload

SIZES = {"vocab_size": 100, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}


def saved_bytes(model, call):
    """Bytes of all storages that autograd keeps during `call()`, without the model's own weights and buffers."""
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()  # kept alive, so that no address is given out twice
    own = {part.untyped_storage().data_ptr() for part in (*model.parameters(), *model.buffers())}
    del result
    return sum(size for place, size in seen.items() if place not in own)


def shape(model):
    return build_shape_from_config(model.config.to_dict(), "a model")


def workload(stage, model, **changes):
    """Four sequences of 32 tokens, whole, in one pass on one GPU."""
    usual = {
        "precision": "fp32", "optimizer": "adamw", "checkpointing": False, "rank": 0, "batch": 4, "micro_batch": None,
        "accumulate": 1, "prompt": 0, "answer": 32, "samples": 1, "whole": True, "sampled": 0,
    }  # fmt: skip
    return Workload(stage, model, **usual | changes)
