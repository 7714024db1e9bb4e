"""Before stages start on a GPU: which of them need more memory than it has, and what to change. By arithmetic, in a
process of its own.

A run without a GPU starts no process and imports nothing for this.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from flows.engine.stage_types import PlannedStage

KNOWN = "POSTTRAIN_DEVICE_MEMORY"  # the environment's word for it, such as 80GB, where the GPU is another machine's


def list_device_memory_problems(root: Path, planned: Sequence[PlannedStage]) -> list[str]:
    """A line for each stage that will run and would not fit; none without a GPU here, or memory that the environment
    names.
    """
    device_memory = os.environ.get(KNOWN)
    stages = [stage.name for stage in planned if stage.reason and (stage.gpu or device_memory)]
    if not stages or not (root / "tasks/memory").is_dir():
        return []
    command = [
        sys.executable,
        "-m",
        "tasks.memory",
        "--check",
        *([f"--device-memory={device_memory}"] if device_memory else []),
    ]
    done = subprocess.run([*command, *stages], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        *_, last = ["it ended without a word", *done.stderr.strip().splitlines()]
        return [f"memory was not planned: {last.removeprefix('posttrain: ')}"]
    return done.stdout.splitlines()
