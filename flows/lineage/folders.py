"""A folder that a stage reads as one input, and in which several stages put their outputs, such as data/evaluate.

DVC records one hash for it, which no stage made. It is the hash of the list of all files in the folder, so the outputs
that it held are proved by putting their own lists together: the same hash, the same files.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.lineage import cache_objects

Outs = Mapping[str, str]  # path -> hash


def find_folder_outputs(root: Path, folder: str, md5: str, candidates: Iterable[Outs]) -> tuple[dict[str, str], str]:
    """The outputs in `folder` when it had this hash, and a note where the chain breaks or is not proved.

    Each candidate is what all stages had made at some time, the likeliest first. No outputs and no note: none was ever
    in there.
    """
    unproved: dict[str, str] = {}
    had_outputs = False
    for outs in candidates:
        inside = {path: out_md5 for path, out_md5 in outs.items() if path.startswith(f"{folder}/")}
        had_outputs = had_outputs or bool(inside)
        if inside and (computed_md5 := compute_folder_hash(root, folder, inside)) == md5:
            return inside, ""
        if inside and computed_md5 is None:
            unproved = unproved or inside
    if unproved:
        return unproved, "not proved to be these outputs: the cache does not list their files any more"
    note = (
        "the chain breaks here: stages put outputs in this folder, but which ones it held as "
        f"{md5[:8]} is not on record"
    )
    return {}, note if had_outputs else ""


def compute_folder_hash(root: Path, folder: str, outs: Outs) -> str | None:
    """DVC's hash of a folder in which these outputs are all there is; None if the cache does not have a list that it
    takes.
    """
    listed = []
    for path, md5 in outs.items():
        try:
            files = cache_objects.read_cached_file_hashes(root, md5)
        except PlanError:
            return None
        for name, file_md5 in files.items():
            within = path[len(folder) + 1 :] + (f"/{name}" if name else "")
            listed.append({"md5": file_md5, "relpath": within})
    listed.sort(key=lambda item: item["relpath"])
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"
