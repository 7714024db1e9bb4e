"""The simplest way to join Prefect and DVC, as a peer for benchmarks/engine.py: a flow whose tasks call `dvc repro
--single-item`.

`python -m benchmarks.naive_flow STAGES` runs in the folder of a dvc.yaml. STAGES is JSON: the names of the stages that
each stage waits for.
"""

import json
import subprocess
import sys

from prefect import flow, task
from prefect.futures import PrefectFuture, wait


@task
def repro(stage: str) -> None:
    """Run one stage if DVC finds that it has changed; wait where another command holds DVC's lock."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", stage]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@flow
def naive(stages: dict[str, list[str]]) -> None:
    """All stages; each begins when those that it waits for have ended."""
    futures: dict[str, PrefectFuture[None]] = {}
    for stage, before in stages.items():
        futures[stage] = repro.with_options(task_run_name=stage).submit(
            stage, wait_for=[futures[name] for name in before], return_state=False
        )
    wait(list(futures.values()))
    for future in futures.values():
        future.result()


if __name__ == "__main__":
    naive(json.loads(sys.argv[1]))
