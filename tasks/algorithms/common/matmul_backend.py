"""Which library computes large products in single precision on this machine: torch's default (MKL on x86), or oneDNN.

Neither is faster on every processor, and they round differently. So each machine measures once and keeps the answer in
the user's cache folder: every later run gives the same bits. Only the measurement imports torch, in a process of its
own.
"""

import fcntl
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

VARIABLE = "POSTTRAIN_PRODUCTS"  # names a library; nothing is measured then
TORCH = "torch"
ONEDNN = "onednn"
MARGIN = 0.95  # of torch's time: oneDNN is chosen if it takes less
SHAPES = ((512, 320, 1280, 8), (64, 576, 1536, 24), (256, 256, 256, 48), (2560, 256, 256, 8))  # .., repetitions
LONGEST = 300.0  # seconds of the clock for the measurement, which takes a few on an idle machine
ROOT = Path(__file__).parents[3]
PROCESSOR = Path("/proc/cpuinfo")
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}  # flag -> name, widest first

Seconds = Mapping[str, Sequence[float]]  # library -> seconds for each of SHAPES


def get_or_measure_matmul_library() -> str:
    """The library: POSTTRAIN_PRODUCTS as it is, or the choice of this machine."""
    return os.environ.get(VARIABLE) or _load_or_measure_choice()


def read_processor_facts() -> dict[str, str]:
    """What Linux says of the first processor, and its `vectors`: the widest that it has; empty on other systems."""
    try:
        lines = PROCESSOR.read_text().splitlines()
    except OSError:
        return {}
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    flags = facts.get("flags", facts.get("Features", "")).split()
    return {**facts, "vectors": next((vectors for flag, vectors in VECTORS.items() if flag in flags), "")}


@cache
def _load_or_measure_choice() -> str:
    """The choice that is kept for this machine, or else a measurement; torch where nothing can be measured or kept."""
    try:
        file = _get_cache_file_path()
        machine = _describe_machine()
        return _read_choices(file).get(machine) or _measure_and_save_choice(file, machine)
    except (OSError, RuntimeError, ValueError, ImportError, subprocess.SubprocessError):
        return TORCH  # no room, no home, no torch, or a measurement that failed


def _get_cache_file_path() -> Path:
    """The file in the user's cache folder; FileNotFoundError where the user has no home."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not folder.is_absolute():
        folder = Path.home().resolve(strict=True) / ".cache"
    return folder / "posttrain" / "products.json"


def _describe_machine() -> str:
    """Processor and version of torch. Processors of several generations share a name, so family and model count too."""
    facts = read_processor_facts()
    keys = ("model name", "vendor_id", "cpu family", "model", "stepping", "CPU part", "vectors")
    described = ", ".join(f"{key} {facts[key]}" for key in keys if facts.get(key))
    return f"{described or platform.processor() or platform.machine()}; torch {metadata.version('torch')}"


def _read_choices(file: Path) -> dict[str, str]:
    """The choices by machine; without those that are no library, and empty if the file is torn or another's."""
    try:
        content = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    choices = content if isinstance(content, dict) else {}
    return {machine: library for machine, library in choices.items() if library in (TORCH, ONEDNN)}


def _measure_and_save_choice(file: Path, machine: str) -> str:
    """Measure and keep the choice. Of several processes the first does; the others wait and read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        choices = _read_choices(file)
        if machine not in choices:
            new = file.with_suffix(".new")
            new.touch()  # where nothing can be kept, nothing is measured
            choices[machine] = choose_faster_library(_measure_in_subprocess())
            new.write_text(json.dumps(choices, indent=2) + "\n")
            new.replace(file)
        return choices[machine]


def choose_faster_library(seconds: Seconds) -> str:
    """oneDNN, if the geometric mean over the shapes of its time / torch's is below MARGIN; else torch."""
    if ONEDNN not in seconds:  # this torch is built without it
        return TORCH
    ratios = [mine / its for mine, its in zip(seconds[ONEDNN], seconds[TORCH], strict=True)]
    return ONEDNN if statistics.geometric_mean(ratios) < MARGIN else TORCH


def _measure_in_subprocess() -> Seconds:
    """`seconds` in a process of its own, whose threads and memory are nobody else's."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "tasks.algorithms.common.matmul_backend"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=True,
        timeout=LONGEST,
    )
    measured: Seconds = json.loads(done.stdout)
    return measured


def measure_library_seconds() -> Seconds:
    """Processor seconds of one thread for x W^T + b with its gradients, the least of several in alternation."""
    import torch
    from torch.nn.functional import linear as by_torch

    from tasks.algorithms.common.linear import onednn_linear

    torch.set_num_threads(1)
    libraries: dict[str, Any] = {TORCH: by_torch}
    if torch.backends.mkldnn.is_available():
        libraries[ONEDNN] = onednn_linear
    measured: dict[str, list[float]] = {library: [] for library in libraries}
    for rows, inputs, outputs, repetitions in SHAPES:
        x = torch.ones(rows, inputs)
        weight = torch.ones(outputs, inputs)
        bias = torch.ones(outputs)
        factors = [each.requires_grad_() for each in (x, weight, bias)]
        gradient = torch.ones(rows, outputs)
        least = dict.fromkeys(libraries, float("inf"))
        for _ in range(repetitions):
            for library, product in libraries.items():
                began = time.process_time()
                torch.autograd.grad(product(x, weight, bias), factors, gradient)
                least[library] = min(least[library], time.process_time() - began)
        for library in libraries:
            measured[library].append(least[library])
    return measured


if __name__ == "__main__":
    print(json.dumps(measure_library_seconds()))
