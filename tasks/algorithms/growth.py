"""More layers on top of a model's own: depth that a reward model needs beyond the policy that it starts from.

Which token was to be expected stands in a policy's last layer only. To hold the token that came against it, a model has to
look back at that layer from a higher one; a reward model of the policy's own depth has none (arXiv:2110.14168 and
arXiv:2203.02155 train reward models of other sizes than the policy's, too).
"""

import copy
from typing import Any

import torch

WRITES = ("o_proj", "down_proj")  # the matrices by which a layer adds to what it was given


def add_layers(model: Any, count: int, generator: torch.Generator) -> None:
    """Put `count` new layers between the last one and the final norm, in place.

    They are of the last layer's make: norms as there, matrices drawn anew with the model's initial deviation, and 0 where
    they write, so that the model gives what it gave until it is trained. ValueError for a model that is not built so.
    """
    body, config = model.base_model, model.config
    layers = getattr(body, "layers", None)
    if layers is None or not hasattr(getattr(layers[-1], "self_attn", None), "o_proj"):
        raise ValueError(f"{type(model).__name__} is not built of layers that can be added to")
    for _ in range(count):
        layer = copy.deepcopy(layers[-1])
        layer.self_attn.layer_idx = len(layers)
        for name, weight in layer.named_parameters():
            with torch.no_grad():
                if any(part in name for part in WRITES):
                    weight.zero_()
                elif weight.dim() == 2:
                    weight.copy_(config.initializer_range * torch.randn(weight.shape, generator=generator))
        layers.append(layer)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [*config.layer_types, *config.layer_types[-1:] * count]
