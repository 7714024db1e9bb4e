"""The report over the seeds of a sweep: what each seed's pipeline left is laid out, and `python -m tasks.seeds` makes
the page of it.

It is a child process, since flows import no stage's code.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects
from flows.params.files import PARAMS, SEED
from flows.sweeps import dvc_objects
from flows.sweeps.sweep import Ended
from flows.workers.in_copy import open_scratch_folder

HOME = Path(".dvc/tmp/posttrain/copies")
MODULE = Path("tasks/seeds/__main__.py")
EVALUATED = "evaluate@"
PAGES = ("seeds.html", "seeds.md")
CURVE = ("data/reward_model", "curve.csv")


def write_sweep_seeds_report(root: Path, ended: Sequence[Ended], out: Path) -> str | None:
    """Write seeds.html and seeds.md to `out`; their first sentence. None where there are no evaluations of at least two
    seeds.

    PlanError of one line where the page cannot be made.
    """
    whole = [
        ended_point
        for ended_point in ended
        if ended_point.done and any(stage.startswith(EVALUATED) for stage in ended_point.entries)
    ]
    if len(whole) < 2 or not (root / MODULE).is_file():
        return None
    with open_scratch_folder(root / HOME, "seeds-") as (folder, _):
        named = []
        for ended_point in whole:
            name = str(dict(ended_point.point.settings)[SEED])
            _write_point_outputs(root, ended_point, folder / name)
            named.append(f"{name}={folder / name}")
        command = [sys.executable, "-m", "tasks.seeds", "--out", str(folder / "pages"), *named]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            *_, last = ["it failed", *done.stderr.strip().splitlines()]
            raise PlanError(f"the report over seeds: {last}")
        for page in PAGES:
            (folder / "pages" / page).replace(out / page)
        return done.stdout.strip()


def _write_point_outputs(root: Path, ended: Ended, folder: Path) -> None:
    folder.mkdir()
    (folder / PARAMS).write_text(ended.params)
    for stage, entry in ended.entries.items():
        for path, md5 in get_entry_hashes(entry, "outs").items():
            if stage.startswith(EVALUATED) and path.startswith("data/evaluate/"):
                dvc_objects.check_out_cached_object(root, md5, folder / path)
            elif path == CURVE[0] and (curve := cache_objects.read_cached_file_hashes(root, md5).get(CURVE[1])):
                dvc_objects.check_out_cached_object(root, curve, folder / path / CURVE[1])
