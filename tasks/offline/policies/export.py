"""`python -m tasks.offline.policies.export FOLDER OUT`: write a trained policy as others load it, and print what it is
as JSON.

`posttrain export` starts it. OUT gets policy.pt (TorchScript) and, where `onnx`, `onnxscript` and `onnxruntime` are
installed, policy.onnx: raw observations in, greedy actions out, with the scaling of observations inside. Each must act
as the policy does on OBSERVATIONS random observations. The policy's own config.json and model.safetensors are copied
beside them. With `--explain FILE...`, files of metrics, the JSON has a sentence for each number in them.
"""

import argparse
import contextlib
import io
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks import metrics
from tasks.algorithms.offline.networks.mlp import Network
from tasks.common.errors import DataError
from tasks.offline.policies import files, kinds

SCRIPT = "policy.pt"
ONNX = "policy.onnx"
NEEDED = ("onnx", "onnxscript", "onnxruntime")
OBSERVATIONS = 1000
ROUNDING = 1e-5  # of an action's component, whose range is from -1 to 1


class Acting(nn.Module):
    """A policy whose output is its greedy action."""

    def __init__(self, policy: Network) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Tensor) -> Tensor:
        """(M, O) to (M,) long or (M, A)."""
        return self.policy.act(observations)  # type: ignore[operator,no-any-return]  # every subclass acts


def export_offline_policy(folder: Path, out: Path) -> dict[str, Any]:
    """Write the policy in `folder` to the folder `out`; returns what it is.

    DataError with one line if it cannot be written so.
    """
    policy = kinds.load_policy_of_any_kind(folder)
    if not isinstance(policy, Network):
        raise DataError(
            f"{folder}: a {type(policy).__name__} is no network of the present observation, and cannot be exported"
        )
    observations = draw_probe_observations(policy)
    expected = policy.act(observations)
    _check_same_actions(
        f"{folder}: TorchScript", write_and_load_torchscript(policy, out / SCRIPT), observations, expected
    )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if not missing:
        _check_same_actions(f"{folder}: ONNX", write_and_load_onnx(policy, out / ONNX), observations, expected)
    for name in (files.CONFIG, files.WEIGHTS):
        shutil.copyfile(folder / name, out / name)
    return {
        "kind": "acting",
        "architecture": type(policy).__name__,
        "weights": sum(parameter.numel() for parameter in policy.parameters()),
        "observation": policy.spaces.observation,
        "action": policy.spaces.action,
        "discrete": policy.spaces.discrete,
        "checked": OBSERVATIONS,
        "missing": missing,
    }


def draw_probe_observations(policy: Network) -> Tensor:
    """Random observations about the data's, most of them beyond: (OBSERVATIONS, O)."""
    drawn = torch.randn(OBSERVATIONS, policy.spaces.observation, generator=torch.Generator().manual_seed(0))
    return policy.normaliser.mean + 3 * policy.normaliser.deviation * drawn


def write_and_load_torchscript(policy: Network, file: Path) -> Callable[[Tensor], Tensor]:
    """Write TorchScript; returns what was written, as a function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is deprecated, and that sizes are constants
        torch.jit.trace(Acting(policy), draw_probe_observations(policy)[:2]).save(str(file))
        loaded: Callable[[Tensor], Tensor] = torch.jit.load(str(file))
    return loaded


def write_and_load_onnx(policy: Network, file: Path) -> Callable[[Tensor], Tensor]:
    """Write ONNX; returns what was written, as a function."""
    import onnxruntime

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            Acting(policy),
            (draw_probe_observations(policy)[:2],),
            str(file),
            input_names=["observations"],
            output_names=["actions"],
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            external_data=False,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda observations: torch.from_numpy(session.run(None, {"observations": observations.numpy()})[0])


def _check_same_actions(what: str, written: Callable[[Tensor], Tensor], observations: Tensor, expected: Tensor) -> None:
    """DataError unless it acts as the policy does, on many observations and on one."""
    for rows in (slice(None), slice(1)):
        actions = written(observations[rows])
        wanted = expected[rows]
        if actions.shape != wanted.shape or (actions - wanted).abs().max() > (0 if wanted.ndim == 1 else ROUNDING):
            raise DataError(f"{what} does not act as the policy does")


def main(arguments: Sequence[str]) -> None:
    """Export and print."""
    parser = argparse.ArgumentParser(prog="python -m tasks.offline.policies.export", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--explain", type=Path, nargs="*", default=[])
    options = parser.parse_args(arguments)
    try:
        facts = export_offline_policy(options.folder, options.out)
    except DataError as error:
        raise SystemExit(str(error)) from None
    by_stage = {file.stem: metrics.read_metric_meanings(file, "offline") for file in options.explain}
    meanings = {
        stage: {name.partition("/")[2]: text for name, text in sentences.items()}
        for stage, sentences in by_stage.items()
    }  # without the variant, which is one
    print(json.dumps({**facts, "meanings": meanings}))


if __name__ == "__main__":
    main(sys.argv[1:])
