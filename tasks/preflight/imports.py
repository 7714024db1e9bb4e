"""Data sets of others, read as the stage `transitions` imports them: before the behaviour policies of their environments are trained."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.common.errors import DataError, StageError
from tasks.offline import transitions
from tasks.offline.configs.transitions import Dataset
from tasks.offline.datasets import episodes
from tasks.offline.datasets.episodes import BadEpisode
from tasks.offline.environments import kept, simulators
from tasks.preflight.data import is_made

ON_DISK = ("minari", "d4rl")


def read(configs: Mapping[str, Any], stages: Collection[str], later: bool = True) -> Iterator[str]:
    """A line for each data set on disk that a stage of `stages` will import; StageError for the first fault in one.

    With `later`, those that only a later run imports are read as well where a behaviour policy is trained, and a fault in one is said.
    """
    own = configs["transitions"]
    trained = later and any(name.startswith("behaviour@") for name in stages)
    for name, dataset in own.datasets.items() if not is_made(own.path) else ():
        environment = configs["behaviour"].environments[dataset.environment].id or dataset.environment
        needed = f"transitions@{name}" in stages
        if dataset.source not in ON_DISK or not (needed or trained) or is_to_be_made(environment):
            continue
        try:
            line = _line(name, dataset, environment, Path(own.path))
        except StageError as error:
            if needed:
                raise
            yield f"no stage of this run reads it, but transitions@{name} would end with: {error}"
        else:
            yield from [line] if needed else []


def _line(name: str, dataset: Dataset, environment: str, raw: Path) -> str:
    found = transitions.import_episodes(name, dataset, environment, raw)
    spaces = simulators.spaces_of(environment)
    try:
        if not found:
            raise DataError("no episodes")
        episodes.check(found, spaces.observation, spaces.action, spaces.discrete)
    except (DataError, BadEpisode) as error:
        raise DataError(f"data set {name}: {error}") from None
    steps, actions = sum(map(len, found)), "actions" if spaces.discrete else "numbers an action"
    shown = f"{spaces.observation} numbers an observation, {spaces.action} {actions}"
    return f"transitions: {name}: {len(found):,} episodes of {steps:,} steps in {environment}: {shown}"


def is_to_be_made(environment: str) -> bool:
    """Whether it is one that a folder will hold, which a stage has not made yet."""
    _, _, folder = environment.partition(":")
    return folder.startswith("data/") and kept.folder_of(environment) is None
