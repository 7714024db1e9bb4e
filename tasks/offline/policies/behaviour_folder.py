"""What the stage `behaviour` leaves of an environment, and how it is read: policies, replayed episodes, and the two
returns of a score.
"""

import json
from pathlib import Path

from tasks.algorithms.offline.networks.actors import Behaviour
from tasks.common.errors import DataError
from tasks.offline.datasets import dataset_files, episodes
from tasks.offline.datasets.episodes import Episode
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.environments import saved_environments
from tasks.offline.policies import files

# folders of policies
RANDOM = "random"
MEDIUM = "medium"
EXPERT = "expert"
REPLAY = "replay"
REFERENCE = "reference.json"
UNKNOWN = (
    "no good return is known: branches.behaviour.{0}.steps is 0; expected two numbers in transitions.references.{0}"
)
RECORDERS = "behaviour"  # in a data set's folder: the policies that recorded it, by tier


def load_behaviour_policy(folder: Path, tier: str) -> Behaviour:
    """One of the policies; DataError with one line if there is none of that tier."""
    if not (folder / tier).is_dir():
        raise DataError(f"{folder}: no {tier} policy; branches.behaviour.{folder.name}.steps is 0?")
    return files.load_policy(folder / tier, {"Behaviour": Behaviour})


def read_replay_episodes(folder: Path) -> list[Episode]:
    """The episodes of training up to the medium policy; DataError with one line if there are none."""
    if not (folder / REPLAY).is_dir():
        raise DataError(f"{folder}: no episodes of training; branches.behaviour.{folder.name}.steps is 0?")
    return list(episodes.read_episode_file(folder / REPLAY / dataset_files.DATA))


def read_score_reference(folder: Path) -> ScoreReference:
    """The two returns that a score is measured between; DataError with one line if nothing says what a good one is."""
    described = json.loads((folder / REFERENCE).read_text())
    if "maximum" not in described:
        raise DataError(f"{folder}: {UNKNOWN.format(folder.name)}")
    return ScoreReference(described["minimum"], described["maximum"])


def read_environment_id(folder: Path) -> str:
    """The environment's id, which the folder need not be named like."""
    name: str = json.loads((folder / REFERENCE).read_text())["environment"]
    return saved_environments.point_environment_id_to_folder(name, folder)
