"""Where things are that stages made: a checkpoint by its folder or its stage, a stage's metrics, whether an out is as
it was recorded.
"""

from collections.abc import Mapping
from contextlib import chdir, closing
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from flows.engine.dvc_lock import Entry, get_entry_hashes, read_lock_entries
from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error, open_repo


def resolve_checkpoint_folder(root: Path, model: str) -> Path:
    """The folder of a checkpoint: a path, or a stage's out that is a model; PlanError if it is not there.

    Relative within `root`.
    """
    folder = Path(model).absolute()
    if folder.is_dir():
        relative_folder = folder.relative_to(root) if folder.is_relative_to(root) else folder
        if not (folder / "config.json").is_file() and (policies := _list_policy_folders(root / relative_folder)):
            raise PlanError(
                f"{model}: {len(policies)} policies are in it; name one, such as {relative_folder / policies[0]}"
            )
        return relative_folder
    recorded = _read_lock_entries(root)
    if model not in recorded:
        close = get_close_matches(model, recorded, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise PlanError(f"{model}: neither a folder nor a stage that has run{hint}")
    outs = [Path(path) for path in get_entry_hashes(recorded[model], "outs")]
    for out in outs:
        if (root / out / "config.json").is_file():
            return out
    missing = [out for out in outs if not (root / out).exists()]
    if missing:
        raise PlanError(f"{missing[0]}: not there; `posttrain run {model}` brings it back")
    if policies := [out / policy for out in outs for policy in _list_policy_folders(root / out)]:
        raise PlanError(f"{model}: this stage makes {len(policies)} policies; name one, such as {policies[0]}")
    raise PlanError(f"{model}: this stage makes no model; its outs are {', '.join(map(str, outs))}")


def is_made_from(root: Path, folder: Path, data: Path) -> bool:
    """Whether the folder, relative to `root`, is an out of a stage that `data` led to as dvc.lock has it, and `data` is
    there.
    """
    recorded = _read_lock_entries(root)
    makers = {path: entry for entry in recorded.values() for path in get_entry_hashes(entry, "outs")}
    waiting = [str(folder)]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path == str(data):
            return (root / data).is_dir()
        if path in makers and path not in seen:
            waiting += get_entry_hashes(makers[path], "deps")
        seen.add(path)
    return False


def _list_policy_folders(folder: Path) -> list[Path]:
    """The folders of an offline stage's policies, a variant's seeds or all, relative to `folder`."""
    configs = [*folder.glob("seed-*/config.json"), *folder.glob("*/seed-*/config.json")]
    return sorted(file.parent.relative_to(folder) for file in configs)


def get_metrics_file(root: Path, stage: str) -> Path:
    """The file of what a stage measured, relative to `root`; PlanError if there is none."""
    recorded = _read_lock_entries(root)
    if stage not in recorded:
        raise PlanError(f"{stage}: no stage of this name has run")
    for path in get_entry_hashes(recorded[stage], "outs"):
        if path.endswith(".json") and (root / path).is_file():
            return Path(path)
    raise PlanError(f"{stage}: this stage has no file of metrics")


def list_table_files(root: Path, target: str) -> list[Path]:
    """The tables (.parquet, .csv) of a stage or of a path; PlanError if there are none."""
    target_path = Path(target).absolute()
    recorded = _read_lock_entries(root)
    sources = (
        [target_path]
        if target_path.exists()
        else [root / path for path in get_entry_hashes(recorded.get(target, {}), "outs")]
    )
    files = [file for source in sources for file in ([source] if source.is_file() else sorted(source.rglob("*")))]
    if table_files := [file for file in files if file.suffix in (".parquet", ".csv")]:
        return table_files
    raise PlanError(f"{target}: no tables here" if sources else f"{target}: neither a path nor a stage that has run")


def list_altered_outputs(root: Path, stage: str) -> list[str]:
    """The outs of a stage that are not what dvc.lock says that it made."""
    from flows.engine.dvc_closure import StageGraph

    with chdir(root), closing(open_repo(root)) as repo, convert_dvc_errors_to_plan_error():
        [loaded] = StageGraph(repo).load([stage])
        return [path for out in loaded.outs for path in out.workspace_status()]


def load_recorded_params(root: Path, stage: str) -> dict[str, Any]:
    """The parameters that dvc.lock says a stage's outs were made with, by their dotted keys."""

    def leaves(value: object, key: str) -> dict[str, Any]:
        if isinstance(value, Mapping) and value:
            return {name: leaf for inner in value for name, leaf in leaves(value[inner], f"{key}.{inner}").items()}
        return {key: value}

    entry: Entry = _read_lock_entries(root).get(stage, {})
    return {
        name: leaf
        for sections in entry.get("params", {}).values()
        for section, content in sections.items()
        for name, leaf in leaves(content, section).items()
    }


def _read_lock_entries(root: Path) -> Mapping[str, Entry]:
    with convert_dvc_errors_to_plan_error():
        return read_lock_entries(root)
