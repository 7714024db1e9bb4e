"""The user's own data files, read before a run that would read them or train a model: a fault costs seconds then, and
not a training.

tasks/preflight reads them with the stages' readers, in a process of its own, and asks a hub how many problems it has.
It also makes the environments that are not Gymnasium's own, which may not suit. A run without such files and
environments starts none.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.params.files import PARAMS, ParameterError, parse_params
from tasks.common.config import BRANCHES

READERS = (
    "corpus",
    "problems",
    "demonstrations",
    "preferences",
    "solutions",
    "evaluate",
)  # sections of the core with `source`; mixture has one a data set
OWN = {"file", "files", "people", "mixture"}  # the sources that are files of the user's
SUFFIXES = (".jsonl", ".json", ".parquet")


def check_data_files(root: Path, out_of_date: Collection[str], later: bool = True) -> list[str]:
    """What the files of the stages that will run hold, a line each; ParameterError with one line for the first fault in
    them.

    With `later` a line tells of a fault in what only later runs read, where a model is trained; a copy of the
    repository may lack those files.
    """
    parameters = parse_params((root / PARAMS).read_text())
    files = _needs_user_files(root, parameters, {name.partition("@")[0] for name in out_of_date})
    if (
        not (files or _needs_imports_or_environments(parameters, out_of_date))
        or not (root / "tasks/preflight").is_dir()
    ):
        return []
    command = [
        sys.executable,
        "-m",
        "tasks.preflight",
        "--data",
        *([] if later else ["--needed"]),
        *sorted(out_of_date),
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        try:
            message = str(json.loads(last))
        except ValueError:
            message = last or f"reading the data files ended with exit status {done.returncode}"
        raise ParameterError(message)
    return done.stdout.splitlines()


def _needs_user_files(root: Path, parameters: Any, stages: Collection[str]) -> bool:
    """Whether any stage that will run reads files of the user's, or trains a model while there are any."""
    counted = _get_params_section(parameters, "problems").get("source") == "hub" and {"responses", "mixture"} & {
        *stages
    }
    sections = {*READERS, "mixture", *_list_extension_sections(root)} if _has_training_stage(stages) else {*stages}
    has_files = any(section in sections for section in _iterate_sections_with_files(root, parameters))
    return bool(has_files or ("problems" in stages and counted))


def _has_training_stage(stages: Collection[str]) -> bool:
    """Whether a model of the language flow will be trained."""
    from tasks.language.configs.parts.names import list_policy_names

    return not {*list_policy_names(), "reward_model"}.isdisjoint(stages)


def _iterate_sections_with_files(root: Path, parameters: Any) -> Iterator[str]:
    """The sections of the language flow that name files of the user's, or whose rows of a hub's set lie here
    already.
    """
    mixed = _iterate_dataset_sources(_get_params_section(parameters, "mixture").get("datasets"))
    sources = {
        name: {_get_params_section(parameters, name).get("source")}
        for name in (*READERS, *_list_extension_sections(root))
    } | {"mixture": {*mixed}}
    for name, kinds in sources.items():
        if kinds & OWN or ("hub" in kinds and (root / "data" / name).is_dir()):
            yield name
    if _has_row_files(root, str(_get_params_section(parameters, "evaluate").get("pairs_path", ""))):
        yield "evaluate"
    branches = _get_params_section(parameters, BRANCHES)
    yield from (
        name for name in _list_extension_sections(root) if branches.get(name) and _get_params_section(parameters, name)
    )


def _list_extension_sections(root: Path) -> list[str]:
    """The sections of the extensions that read files before a run (tasks/preflight/extensions.py)."""
    files = root.glob("tasks/extensions/*/configs/*.py")
    return [file.stem for file in files if (file.parents[1] / "preflight.py").is_file()]


def _has_row_files(root: Path, path: str) -> bool:
    """Whether there is a file of the user's, or a folder with one; what a stage makes lies in a folder of data/ of its
    name.
    """
    folder, name, *_ = *Path(path).parts, "", ""
    patterns = (f"tasks/*/{name}.py", f"tasks/extensions/*/configs/{name}.py")
    if not path or (folder == "data" and any(any(root.glob(pattern)) for pattern in patterns)):
        return False
    rows = root / path
    return rows.is_file() or (rows.is_dir() and any(file.suffix in SUFFIXES for file in rows.iterdir()))


def _get_params_section(parameters: Any, name: str) -> Mapping[str, Any]:
    section = parameters.get(name) if isinstance(parameters, dict) else None
    return section if isinstance(section, dict) else {}


def _iterate_dataset_sources(datasets: Any) -> Iterator[str]:
    """The sources of a section's data sets, which are a list or have names."""
    listed = datasets.values() if isinstance(datasets, dict) else datasets or []
    yield from (str(dataset.get("source")) for dataset in listed if isinstance(dataset, dict))


def _needs_imports_or_environments(parameters: Mapping[str, Any], out_of_date: Collection[str]) -> bool:
    """Whether data sets are imported, or environments are made that have arguments, wrappers or a package of their
    own.
    """
    datasets = _select_outdated_branches(parameters, "transitions", out_of_date)
    environments = _select_outdated_branches(parameters, "behaviour", out_of_date)
    imports = any(dataset.get("source") in ("minari", "minari-remote", "d4rl") for dataset in datasets.values())
    return imports or any(
        _is_foreign_environment(str(environment.get("id") or name)) for name, environment in environments.items()
    )


def _select_outdated_branches(
    parameters: Mapping[str, Any], stage: str, out_of_date: Collection[str]
) -> dict[str, Any]:
    """The entries of a stage's branches that will run."""
    entries = _get_params_section(_get_params_section(parameters, BRANCHES), stage)
    return {name: entry for name, entry in entries.items() if f"{stage}@{name}" in out_of_date}


def _is_foreign_environment(environment: str) -> bool:
    """Whether it is not one of Gymnasium's own without arguments or wrappers; one that a folder holds may not be there
    yet.
    """
    from gymnasium import registry

    from tasks.offline.configs.behaviour import OWN

    return environment not in (*OWN, *registry) and not environment.startswith("tasks.")
