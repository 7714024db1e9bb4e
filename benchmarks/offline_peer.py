"""d3rlpy in a Python of its own, since it pins another version of Gymnasium than this project; it answers one command
at a time.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.algorithms.offline.transition_tensors import Transitions

VARIABLE = "POSTTRAIN_D3RLPY"
HOW = (
    "d3rlpy has an environment of its own here: `python -m venv d3rlpy && d3rlpy/bin/pip install "
    "d3rlpy==2.8.1`, then set "
    f"{VARIABLE}=d3rlpy/bin/python"
)
SCRIPT = Path(__file__).with_name("offline_d3rlpy.py")
DEFAULTS = {
    "optimizer": "adam",
    "discrete": True,
    "keep_last": False,
    "beta": 0.0,
}  # defaults of a case


def get_d3rlpy_python() -> str:
    """The Python with d3rlpy; SystemExit with one line if there is none."""
    found = os.environ.get(VARIABLE)
    if not found or not Path(found).is_file():
        raise SystemExit(HOW)
    return found


class Peer:
    """A process that runs offline_d3rlpy.py; use it in a `with`."""

    def __init__(self) -> None:
        single = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [
                get_d3rlpy_python(),
                "-I",
                "-W",
                "ignore",
                str(SCRIPT),
            ],  # -I: profile.py beside it would hide the one of Python
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if os.environ.get(f"{VARIABLE}_LOG") is None else None,
            text=True,
            env=os.environ | single,
        )

        assert process.stdin
        assert process.stdout
        self.process = process
        self.there = process.stdin
        self.back = process.stdout

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.there.close()
        self.back.close()
        self.process.wait(30)

    def ask(self, command: str, **given: Any) -> dict[str, Any]:
        """The answer to one command of offline_d3rlpy.Side; SystemExit if the process has died."""
        self.there.write(json.dumps([command, given], default=str) + "\n")
        self.there.flush()
        line = self.back.readline()
        if not line:
            raise SystemExit(f"d3rlpy's process has ended at {command}; {VARIABLE}_LOG=1 shows what it says")
        return dict(json.loads(line))

    def make(self, data: Path, actions: int, observation: int, seed: int, **settings: Any) -> str:
        """Build an algorithm there; the versions of d3rlpy and its torch."""
        told = self.ask(
            "make", settings=DEFAULTS | settings, data=data, observation=observation, action=actions, seed=seed
        )
        return str(told["versions"])


def write_transitions(transitions: Transitions, path: Path) -> Path:
    """A data set as NPZ."""
    names = ("observations", "actions", "rewards", "next_observations", "terminated", "lengths")
    np.savez(path, **{name: getattr(transitions, name).numpy() for name in names})
    return path


def write_weights(parameters: Sequence[Tensor], path: Path) -> Path:
    """These parameters as NPZ, in their order, which must be d3rlpy's."""
    np.savez(path, **{f"weight_{number}": p.detach().numpy() for number, p in enumerate(parameters)})
    return path


def write_rows(rows: Tensor, path: Path) -> Path:
    """Row numbers of K batches (K, B) as NPZ."""
    np.savez(path, rows=rows.numpy())
    return path


def read_arrays(path: Path, kind: str) -> list[Tensor]:
    """The arrays that the peer saved: `weight`s or `gradient`s."""
    with np.load(path) as arrays:
        count = sum(name.startswith(kind) for name in arrays)
        return [torch.from_numpy(arrays[f"{kind}_{number}"]) for number in range(count)]
