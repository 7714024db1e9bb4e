"""Where a plan of memory gets what nobody said: the model, the number of devices, their memory."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tasks.common.errors import ConfigError, DataError
from tasks.memory import shapes
from tasks.memory.shapes import Shape
from tasks.memory.workloads import Shard

BYTES = re.compile(r"^(\d+(?:\.\d+)?) ?(GB|GiB|MB|MiB)$", re.IGNORECASE)
SECONDS = 10.0  # for an answer of the hub
UNITS = {"gb": 10**9, "gib": 2**30, "mb": 10**6, "mib": 2**20}


def resolve_model_shape(text: str) -> Shape:
    """The shape of a folder, a size such as 8B, or a model of the hub by its id; DataError with one line where it
    cannot be known.
    """
    if (Path(text) / "config.json").is_file():
        return shapes.read_shape_from_folder(Path(text))
    if sized := shapes.estimate_shape_from_size(text):
        return sized
    if text.count("/") == 1 and not Path(text).exists():
        return _fetch_hub_model_shape(text, "main")
    raise DataError(
        f"--model {text}: expected a folder with a config.json, a size such as 8B or 350M, or an id of the hub"
    )


def resolve_starting_model_shape(sections: Mapping[str, Any]) -> Shape:
    """The model that the flow starts from: as it stands in data/pretrained, or as params.yaml describes it."""
    pretrained = sections["pretrained"]
    made = Path("data/pretrained")
    if pretrained.init == "scratch":
        words = sections["tokenizer"].vocabulary
        inner = 8 * pretrained.width // 3
        if (made / "config.json").is_file():  # a small corpus has fewer tokens than the tokenizer may have
            words = min(words, shapes.read_shape_from_folder(made).vocabulary)
        size = pretrained.width // pretrained.heads
        return Shape(
            "the model of pretrained", "llama", words, pretrained.width, pretrained.layers,
            pretrained.heads, pretrained.heads, size, inner, True, pretrained.context,
        )  # fmt: skip
    if pretrained.init == "directory":
        return shapes.read_shape_from_folder(Path(pretrained.path))
    return (
        shapes.read_shape_from_folder(made)
        if (made / "config.json").is_file()
        else _fetch_hub_model_shape(pretrained.hub_id, pretrained.hub_revision)
    )


def resolve_reward_model_shape(sections: Mapping[str, Any], stage: str, policy: Shape) -> Shape:
    """The reward model of a stage where it is there already, otherwise one of the policy's shape."""
    folder = Path(getattr(sections[stage], "reward_model_path", ""))
    return shapes.read_shape_from_folder(folder) if (folder / "config.json").is_file() else policy


def _fetch_hub_model_shape(name: str, revision: str) -> Shape:
    """By the cache of the hub, or else by one question to it."""
    import httpx
    from huggingface_hub import constants, try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json", revision=revision)
    try:
        if isinstance(cached, str):
            return shapes.build_shape_from_config(json.loads(Path(cached).read_text()), name)
        address = f"{constants.ENDPOINT}/{name}/resolve/{revision}/config.json"
        response = httpx.get(address, timeout=SECONDS, follow_redirects=True).raise_for_status()
        return shapes.build_shape_from_config(response.json(), name)
    except (httpx.HTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{name}: neither cached nor reachable ({type(error).__name__}: {reason})") from None


def read_stage_resources(stage: str) -> tuple[int, bool, Shard]:
    """Devices that dvc.yaml gives a stage, `gpu`, or without GPUs `processes`; whether they are GPUs; what they divide
    besides the batch.
    """
    stages = (YAML(typ="safe").load(Path("dvc.yaml")) or {}).get("stages") or {}
    definition = stages.get(stage) or {}
    requested = (definition.get("do", definition).get("meta") or {}).get("resources") or {}
    gpus = int(requested.get("gpu", 0))
    return gpus or max(1, int(requested.get("processes", 1))), gpus > 0, requested.get("shard", "")


def parse_memory_size(text: str) -> int:
    """Bytes of a text such as 80GB or 24GiB; ConfigError for other text."""
    match = BYTES.match(text.strip())
    if not match or not float(match[1]):
        raise ConfigError(f"--device-memory {text}: expected a size such as 80GB or 24GiB")
    return round(float(match[1]) * UNITS[match[2].lower()])


def measure_smallest_gpu_memory() -> int | None:
    """Bytes of the smallest GPU that is visible, by its driver; None without one, or where POSTTRAIN_DEVICE asks for
    the CPU.
    """
    if os.environ.get("POSTTRAIN_DEVICE", "cuda").startswith("cpu"):
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        completed = subprocess.run(
            [*command, *([f"--id={visible}"] if visible else [])],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    sizes = [int(line) for line in completed.stdout.split() if line.isdecimal()]
    return None if completed.returncode or visible == "" or not sizes else min(sizes) * 2**20


def get_machine_memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def measure_resident_memory() -> int:
    """Bytes that this process holds now; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
