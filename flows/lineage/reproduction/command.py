"""Runs a recorded command in its scratch copy, as `posttrain run` would, cut off from the repository that it came
from.
"""

import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.engine.dvc_command import CommandRunner, Progress, StageFailed
from flows.engine.stage_types import Grant
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.reproduction.scratch_copy import CannotReproduceError
from flows.machine import devices
from flows.machine.resources import Slots
from tasks.common import run_environment

# What would have the command write to the repository's records, or import from elsewhere than the copy.
POSTTRAIN = ("POSTTRAIN_PROGRESS", "POSTTRAIN_RECORDS", "POSTTRAIN_TOKEN", "POSTTRAIN_WORKER_")
CUT = ("MLFLOW_", "GIT_", "PREFECT_", "DVC_", *POSTTRAIN, "PYTHONSAFEPATH", "PYTHONHOME")
LOG = Path("mlruns/logs")  # in the copy; no stage lists it among its deps
RECORDS = Path("mlruns/records")  # likewise
STARTUP = Path("mlruns/startup")  # likewise: empty modules in place of those that Python would run first


def run_recorded_command(
    record: ExecutionRecord, copy: Path, say: Callable[[str], None], tell: Progress, to_mlflow: bool = True
) -> Path:
    """Run the recorded command in the copy; returns its log. CannotReproduceError if it fails or leaves an out unmade.

    The command has the recorded number of threads and products, and a lease of as many GPUs as dvc.yaml of the copy
    grants it; `say` gets a line if another process holds them. Without `to_mlflow` what the stage records stays in a
    file, which takes seconds less.
    """
    log = copy / LOG / f"{record.stage}.log"
    for name in run_environment.STARTUP:
        file = copy / STARTUP / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    slots = Slots()
    holder = f"the verification of {record.stage} (pid {os.getpid()} on {platform.node()})"
    try:
        with slots.hold(0, _load_granted_gpu_count(record.stage, copy), holder=holder, tell=say) as lease:
            device_variables = devices.build_device_environment(lease.names) if slots.gpus else {}
            records = {} if to_mlflow else {"POSTTRAIN_RECORDS": str(copy / RECORDS)}
            grant = Grant({**build_reproduction_environment(record, copy), **device_variables, **records}, lease.files)
            CommandRunner(copy).call(record.stage, record.entry["cmd"], copy, log, grant, tell)
    except devices.DeviceError as error:
        raise CannotReproduceError(f"{record.stage}: {error}") from None
    except StageFailed as error:
        raise CannotReproduceError(
            f"{record.stage}: the recorded command failed in the scratch copy: {error}"
        ) from None
    return log


def build_reproduction_environment(record: ExecutionRecord, copy: Path) -> dict[str, str]:
    """The environment of the command, but for the GPUs that it may use.

    It has nothing of this process's PYTHONPATH, sitecustomize and usercustomize: of code it is given what is on record.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(CUT)}
    env |= {run_environment.SEARCHED: os.pathsep.join([str(copy / STARTUP), str(copy)]), "PYTHONNOUSERSITE": "1"}
    env |= {"DVC_ROOT": str(copy), "GIT_CEILING_DIRECTORIES": str(copy.absolute().parent)}
    threads = record.environment.get("threads", "")
    if threads.isdigit():
        env["OMP_NUM_THREADS"] = threads
    elif threads:
        env.pop("OMP_NUM_THREADS", None)
    if library := record.environment.get("products"):
        env[run_environment.PRODUCTS] = library
    return env


def _load_granted_gpu_count(stage: str, copy: Path) -> int:
    """The GPUs that dvc.yaml grants the stage."""
    from ruamel.yaml import YAML

    file = copy / "dvc.yaml"
    stages: Any = ((YAML(typ="safe").load(file) if file.is_file() else None) or {}).get("stages", {})
    definition = stages.get(stage.partition("@")[0], {})
    resources = (definition.get("do", definition).get("meta") or {}).get("resources") or {}
    count = resources.get("gpu", 0) if isinstance(resources, Mapping) else 0
    return count if isinstance(count, int) else 0
