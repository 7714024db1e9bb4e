"""Policies on disk: config.json says which kind of policy and of what sizes, model.safetensors has all its tensors.

A policy is a module with `spaces` and `sizes` (a dict as JSON has it, the keyword arguments it is made from). The kinds
are not listed here: a stage that writes its own kind must not depend on the code of all others
(tasks/offline/policies/kinds.py lists them).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Protocol, Self, TypeGuard, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor

from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import DataError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


class Saved(Protocol):
    """A module that knows the arguments it is made from."""

    spaces: Spaces

    @property
    def sizes(self) -> Mapping[str, object]:
        """The arguments that it is made from besides its spaces, as JSON values."""
        ...

    def eval(self) -> Self:
        """Dropout off."""
        ...

    def state_dict(self) -> Mapping[str, Tensor]:
        """All tensors by name."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Load what `state_dict` returned."""
        ...


class Valued(Protocol):
    """A policy that predicts its own return."""

    def values(self, observations: Tensor) -> Tensor:
        """The predicted return from here on: (M, O) to (M,)."""
        ...


Policy = TypeVar("Policy", bound=Saved)


def has_value_estimates(policy: object) -> TypeGuard[Valued]:
    """Whether a policy predicts its own return."""
    return hasattr(policy, "values")


def save_policy(policy: Saved, path: Path) -> None:
    """Write the policy to the folder `path`, under the name of its class; the same policy gives the same bytes."""
    path.mkdir(parents=True, exist_ok=True)
    config = {"kind": type(policy).__name__, "spaces": asdict(policy.spaces), "sizes": policy.sizes}
    (path / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in policy.state_dict().items()}
    (path / WEIGHTS).write_bytes(serialised(tensors))  # save_file's files are their owner's alone, whatever the umask


def load_policy(path: Path, builders: Mapping[str, Callable[..., Policy]]) -> Policy:
    """The policy that `save` wrote, in evaluation mode; DataError with one line if there is none of these kinds.

    `builders` are called with the spaces and, by name, the sizes.
    """
    try:
        config = json.loads((path / CONFIG).read_text())
        build = builders[config["kind"]]
        policy = build(Spaces(**config["spaces"]), **config["sizes"])
        policy.load_state_dict(load_file(path / WEIGHTS))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no policy here ({Path(error.filename or WEIGHTS).name} is missing)") from None
    except (KeyError, TypeError, json.JSONDecodeError):
        raise DataError(f"{path / CONFIG}: no policy of a known kind ({', '.join(builders)})") from None
    except (SafetensorError, RuntimeError) as error:  # torn, or of other sizes
        raise DataError(f"{path / WEIGHTS}: not what {CONFIG} says: {' '.join(str(error).split())}") from None
    return policy.eval()


def hash_policy_weights(path: Path) -> str:
    """The SHA-256 of the saved policy's tensors, by which data tells who recorded it."""
    return sha256((path / WEIGHTS).read_bytes()).hexdigest()
