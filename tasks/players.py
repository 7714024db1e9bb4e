"""Policies on disk: config.json says which kind of policy and of what sizes, model.safetensors has all its tensors.

A policy is a module with `spaces` and `sizes` (a dict as JSON has it, the keyword arguments it is made from); a new one adds
one entry to BUILDERS, under the name of its class.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tasks import trunks
from tasks.algorithms.offline.networks import MeanAction, Preferences, QValues, Spaces
from tasks.algorithms.offline.stochastic import Categorical, Gaussian, SquashedGaussian
from tasks.algorithms.offline.tabular_q import QTable

CONFIG, WEIGHTS = "config.json", "model.safetensors"
BUILDERS: dict[str, Callable[..., Any]] = {  # called with the spaces and the sizes
    "Preferences": Preferences,
    "QValues": QValues,
    "MeanAction": MeanAction,
    "Categorical": Categorical,
    "Gaussian": Gaussian,
    "SquashedGaussian": SquashedGaussian,
    "QTable": QTable,
    "DecisionTransformer": trunks.decision_transformer,
}


def save(policy: Any, path: Path) -> None:
    """Write the policy to the folder `path`; the same policy gives the same bytes."""
    kind = type(policy).__name__
    if kind not in BUILDERS:
        raise ValueError(f"{kind} has no entry in tasks/players.py, so it could not be loaded again")
    path.mkdir(parents=True, exist_ok=True)
    config = {"kind": kind, "spaces": asdict(policy.spaces), "sizes": policy.sizes}
    (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in policy.state_dict().items()}
    save_file(tensors, path / WEIGHTS)


def load(path: Path) -> Any:
    """The policy that `save` wrote, in evaluation mode; SystemExit with one line if there is none."""
    try:
        config = json.loads((path / CONFIG).read_text())
        build = BUILDERS[config["kind"]]
    except FileNotFoundError:
        raise SystemExit(f"{path}: no policy here ({CONFIG} is missing)") from None
    except KeyError:
        raise SystemExit(f"{path / CONFIG}: no policy of a known kind ({', '.join(BUILDERS)})") from None
    policy = build(Spaces(**config["spaces"]), **config["sizes"])
    policy.load_state_dict(load_file(path / WEIGHTS))
    return policy.eval()
