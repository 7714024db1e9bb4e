"""The data sets that an offline run would import, read with the stages' own reader, and the environments that other
packages have.

What is wrong with one is a line before anything is trained. No environment is played, but modules that params.yaml
names are imported.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from tasks.common.errors import DataError
from tasks.offline import transitions
from tasks.offline.configs.behaviour import BehaviourConfig
from tasks.offline.configs.transitions import EpisodeDataset, TransitionsConfig
from tasks.offline.datasets import dataset_files, dataset_import
from tasks.offline.environments import saved_environments, simulators
from tasks.offline.policies.behaviour_folder import UNKNOWN
from tasks.preflight.data import is_small_enough_to_read, should_read_before_run


def iterate_offline_dataset_checks(
    behaviour: BehaviourConfig, config: TransitionsConfig, stages: Collection[str]
) -> Iterator[str]:
    """A line for each thing to be said of imports among `stages`, which will run; DataError for the first fault in
    them, or in an environment.
    """
    names = {name: settings.id or name for name, settings in behaviour.environments.items()}
    for name, environment in names.items():
        if f"behaviour@{name}" in stages and not is_environment_not_made_yet(environment):
            simulators.get_policy_spaces(environment)
    for name, dataset in config.datasets.items():
        environment = names[dataset.environment]
        imports = dataset.source in transitions.IMPORTS and f"transitions@{name}" in stages
        if imports and not is_environment_not_made_yet(environment):
            yield from _iterate_imported_dataset_checks(
                config, name, dataset, environment, trained=behaviour.environments[dataset.environment].steps > 0
            )


def _iterate_imported_dataset_checks(
    config: TransitionsConfig, name: str, dataset: EpisodeDataset, environment: str, *, trained: bool
) -> Iterator[str]:
    """What one data set holds; of a large one its metadata alone are read."""
    remote = dataset.source == "minari-remote"
    location = str(dataset.location)
    path = dataset_import.find_downloaded_minari_dataset(location) if remote else Path(config.path) / location
    if path is None:
        yield f"transitions: data set {name}: {location} is not here yet; it is read once Minari has downloaded it"
        return
    if not should_read_before_run(str(path)):
        if dataset.source != "d4rl" and not is_small_enough_to_read(path):
            dataset_import.read_minari_metadata(path, environment)
        return
    recording = transitions.import_dataset(name, dataset, environment, Path(config.path))
    dataset_files.check_dataset_episodes(name, environment, recording.episodes)
    named = transitions.find_named_score_reference(config, dataset, recording)
    if named is None and not trained and dataset_files.find_known_maximum_return(environment) is None:
        raise DataError(f"data set {name}: {UNKNOWN.format(dataset.environment)}")
    steps = sum(map(len, recording.episodes))
    yield f"transitions: {len(recording.episodes):,} episodes of {steps:,} steps in {dataset.location}"
    yield from (f"transitions: data set {name}: {note}" for note in recording.notes)


def is_environment_not_made_yet(environment: str) -> bool:
    """Whether it is one that a folder will hold, which a stage has not made yet."""
    _, _, folder = environment.partition(":")
    return folder.startswith("data/") and saved_environments.find_environment_folder(environment) is None
