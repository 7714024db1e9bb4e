"""The data sets that offline methods learn from: recorded with the behaviour policies, or imported.

`random`, `medium` and `expert` are played by that policy with random actions, as in training; `medium-expert` is one
half each; `medium-replay` has all episodes that had ended when training reached the medium policy, as D4RL's. `minari`
and `d4rl` are a folder or file below `path`, whose changes DVC notices; `minari-remote` is an id that Minari downloads.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copytree

import numpy as np
import pandas as pd

from tasks.algorithms.offline.networks.actors import Sampled
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.offline.configs.transitions import EpisodeDataset, TransitionsConfig
from tasks.offline.datasets import dataset_files, dataset_import, normalized_score
from tasks.offline.datasets.dataset_import import Imported
from tasks.offline.datasets.episodes import BadEpisode, Episode
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.datasets.tables import Recorded
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tasks.offline.policies import behaviour_folder, files
from tasks.offline.policies.behaviour_folder import EXPERT, MEDIUM
from tasks.stage import Metrics, main

WAVE = 32  # episodes played side by side
RECORDERS = {  # source -> the policies that a data set of it is handed on with; a replay ends with the medium one
    "medium": (MEDIUM,),
    "medium-replay": (MEDIUM,),
    "medium-expert": (MEDIUM, EXPERT),
    "expert": (EXPERT,),
}
FIRST_SEED = 3_000_000  # of the episodes' seeds: no policy is evaluated on these
IMPORTS: dict[str, Callable[[Path, str, str], Imported]] = {  # of: raw folder, location, environment
    "minari": lambda raw, location, environment: dataset_import.read_minari_dataset(raw / location, environment),
    "minari-remote": lambda raw, location, environment: dataset_import.fetch_minari_dataset(location, environment),
    "d4rl": lambda raw, location, environment: dataset_import.read_d4rl_dataset(raw / location, environment),
}
METRICS = {
    "episodes": "The number of episodes.",
    "steps": "The number of transitions.",
    "terminated": "The share of the episodes that ended by themselves and not by a time limit, from 0 to 1.",
    "left_out": "The steps of an imported file that are in no episode: behind its last end, or without the "
    "observation that follows.",
    "cut_early": "The episodes that were cut before the longest that was cut, and so not by a time limit: what "
    "they would have earned is not known, and they are in no return or score below.",
    "return/mean": "The mean return of an episode, in the environment's own units.",
    "return/best": "The highest return of an episode.",
    "return/worst": "The lowest return of an episode.",
    "score/mean": f"The mean return as a score: {normalized_score.SCALE}.",
    "score/best": "The highest return as a score.",
    "score/worst": "The lowest return as a score.",
}


def run(config: TransitionsConfig, behaviour: Path, raw: Path, out: Path) -> Metrics:
    """Record or import the data set that `out` is named like."""
    dataset = config.datasets[out.name]
    environment = behaviour_folder.read_environment_id(behaviour)
    metadata: dict[str, object] = {"location": dataset.location}
    if dataset.source in IMPORTS:
        imported_data = import_dataset(out.name, dataset, environment, raw)
        _print_dataset_notes(out.name, *imported_data.notes)
        episodes = limit_episodes(imported_data.episodes, dataset.steps, dataset.episodes)
    else:
        imported_data = Imported([])
        episodes, metadata = _record_dataset(config.seed, out.name, dataset, behaviour)
    reference = find_named_score_reference(config, dataset, imported_data)
    if reference is None:
        reference = behaviour_folder.read_score_reference(behaviour)
    else:
        who = "transitions.references" if dataset.environment in config.references else "its metadata.json"
        _print_dataset_notes(
            out.name, f"scores are measured from {reference.minimum:g} to {reference.maximum:g}, as {who} says"
        )
    dataset_files.write_offline_dataset(out, environment, episodes, reference, {"source": dataset.source, **metadata})
    table = _build_episode_table(episodes)
    tables.write_table(Recorded, table, out / "recorded.parquet")
    for tier in RECORDERS.get(dataset.source, ()):
        copytree(behaviour / tier, out / behaviour_folder.RECORDERS / tier, dirs_exist_ok=True)
    return {**_compute_metrics(table, reference), "left_out": imported_data.left_out}


def limit_episodes(episodes: list[Episode], steps: int | None, count: int | None) -> list[Episode]:
    """The first `count` of them, or those until `steps` steps, whichever is fewer; the last one is kept whole."""
    before = np.cumsum([0, *map(len, episodes)])[:-1]  # steps before each
    kept = len(episodes) if steps is None else int(np.searchsorted(before, steps))
    return episodes[: kept if count is None else min(kept, count)]


def _print_dataset_notes(name: str, *notes: str) -> None:
    """What has to be known of a data set, a line each, in the stage's log."""
    for note in notes:
        print(f"transitions: data set {name}: {note}", file=sys.stderr, flush=True)


def find_named_score_reference(
    config: TransitionsConfig, dataset: EpisodeDataset, imported_data: Imported
) -> ScoreReference | None:
    """What params.yaml, or else the imported data, says that scores are measured between; None if neither does."""
    scale = config.references.get(dataset.environment)
    return imported_data.reference if scale is None else ScoreReference(scale.minimum, scale.maximum)


def import_dataset(name: str, dataset: EpisodeDataset, environment: str, raw: Path) -> Imported:
    """What is imported; DataError with one line naming the data set."""
    try:
        return IMPORTS[dataset.source](raw, str(dataset.location), environment)
    except BadEpisode as error:
        raise DataError(f"data set {name}: {dataset.location}: {error}") from None
    except DataError as error:  # names the file itself
        raise DataError(f"data set {name}: {error}") from None


def _record_dataset(
    seed: int, name: str, dataset: EpisodeDataset, behaviour: Path
) -> tuple[list[Episode], dict[str, object]]:
    """Its episodes, and who played them from which seed on."""
    if dataset.source == "medium-replay":
        replayed = limit_episodes(behaviour_folder.read_replay_episodes(behaviour), dataset.steps, dataset.episodes)
        described = json.loads((behaviour / behaviour_folder.REPLAY / dataset_files.METADATA).read_text())["posttrain"]
        return replayed, {"seed": described["seed"]}
    tiers = {"medium-expert": (MEDIUM, EXPERT)}.get(dataset.source, (dataset.source,))
    steps, count = (None if limit is None else -(-limit // len(tiers)) for limit in (dataset.steps, dataset.episodes))
    first = FIRST_SEED + 100_000 * seed
    episodes = [episode for tier in tiers for episode in record_episodes(behaviour, tier, steps, count, first)]
    policies = {tier: files.hash_policy_weights(behaviour / tier) for tier in tiers}
    return episodes, {"policies": policies, "seed": first}


def record_episodes(behaviour: Path, tier: str, steps: int | None, count: int | None, seed: int) -> list[Episode]:
    """Episodes played by one policy, seeded `seed`, `seed + 1`, ..; as `limited` has them."""
    environment = behaviour_folder.read_environment_id(behaviour)
    player = wrap_as_player(Sampled(behaviour_folder.load_behaviour_policy(behaviour, tier), seed))
    episodes: list[Episode] = []
    while (steps is None or sum(map(len, episodes)) < steps) and (count is None or len(episodes) < count):
        episodes += play_seeded_episodes(environment, player, WAVE, seed + len(episodes)).episodes
    return limit_episodes(episodes, steps, count)


def _build_episode_table(episodes: Sequence[Episode]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "episode": range(len(episodes)),
            "total": [episode.rewards.sum(dtype=np.float64) for episode in episodes],
            "length": [len(episode) for episode in episodes],
            "terminated": [bool(episode.terminations[-1]) for episode in episodes],
        }
    )


def _compute_metrics(table: pd.DataFrame, reference: ScoreReference) -> Metrics:
    limit = table["length"].where(~table["terminated"], 0).max()
    cut_early = ~table["terminated"] & (table["length"] < limit)
    total = table["total"][~cut_early]
    returns = {"mean": total.mean(), "best": total.max(), "worst": total.min()}
    return {
        "episodes": len(table),
        "steps": int(table["length"].sum()),
        "terminated": float(table["terminated"].mean()),
        "cut_early": int(cut_early.sum()),
        "return": {name: float(value) for name, value in returns.items()},
        "score": {name: reference.score(value) for name, value in returns.items()},
    }


if __name__ == "__main__":
    main(run)
