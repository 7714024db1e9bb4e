"""Compares what d3rlpy and our methods learn from one data set: `python -m benchmarks.offline_agreement
data/transitions/NAME`.

Both train for the same number of steps with the same sizes, batch, rates and discount, each on batches of its own. Our
code plays the policies of both in the same episodes. Further lines change one setting at a time. Adds a section to
benchmarks/results/offline_agreement.json.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import offline_peer as peer
from benchmarks import result_files
from benchmarks.engine import describe_machine
from benchmarks.offline_ours import Ours
from tasks.common.estimates import estimate_mean_over_seeds
from tasks.offline.datasets.dataset_files import StoredDataset, read_offline_dataset
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player

RESULT = Path(__file__).parent / "results/offline_agreement.json"
SEED = 7_000_000  # of the episodes played
SETTINGS = {"hidden": [128, 128], "batch_size": 256, "learning_rate": 1e-3, "gamma": 0.99, "target_every": 100}
METHODS = {
    "BC": {"method": "bc"},
    "double DQN": {"method": "dqn"},
    "CQL, alpha 0.1": {"method": "cql", "alpha": 0.1},
    "CQL, alpha 1": {"method": "cql", "alpha": 1.0},
}


@dataclass(frozen=True)
class Run:
    """One line of the table: a method on one side or on both."""

    method: str
    change: str = ""  # what differs from the method's first line
    ours: dict[str, Any] | None = field(default_factory=dict)  # added to the method's settings; None: no run
    theirs: dict[str, Any] | None = field(default_factory=dict)


EQUAL = [Run(method) for method in METHODS]
CHANGES = [
    Run(method, *change)
    for method in ("double DQN", "CQL, alpha 0.1")
    for change in (
        ("d3rlpy keeps truncated episodes' last transitions", None, {"keep_last": True}),
        ("d3rlpy scales observations its own way (deviation + 0.001)", None, {"scaler_eps": 1e-3}),
        ("observations are not scaled", {"normalise": False}, {"normalise": False}),
        ("squared error instead of Huber's", {"huber": False}, None),
        ("target networks follow every 1,000 steps", {"target_every": 1000}, {"target_every": 1000}),
        ("d3rlpy starts from our weights and takes our batches", None, {"same": True}),
    )
]


class Lab:
    """A data set and a process with d3rlpy; trains and plays policies."""

    def __init__(self, dataset: StoredDataset, steps: int, episodes: int, theirs: peer.Peer, folder: Path) -> None:
        self.dataset = dataset
        self.steps = steps
        self.episodes = episodes
        self.theirs = theirs
        self.folder = folder
        self.data = peer.write_transitions(dataset.transitions, folder / "data.npz")

    def ours(self, settings: dict[str, Any], seed: int) -> Any:
        """Our policy."""
        side = Ours(self.dataset.transitions, self.dataset.spaces, seed, settings)
        side.fit(self.steps)
        return side.network

    def peers(self, settings: dict[str, Any], seed: int) -> Any:
        """d3rlpy's policy: our network with d3rlpy's weights."""
        data = self.dataset.transitions
        spaces = self.dataset.spaces
        side = Ours(data, spaces, seed, settings)  # an untrained network
        scaler = side.network.normaliser
        known = {name: value for name, value in settings.items() if name not in ("normalise", "same")}
        if settings.get("normalise", True):
            known |= {"mean": scaler.mean.tolist(), "deviation": scaler.deviation.tolist()}
        self.theirs.make(self.data, spaces.action, spaces.observation, seed, **{"scaler_eps": 0.0} | known)
        if settings.get("same"):
            self.theirs.ask("load", path=peer.write_weights(list(side.network.parameters()), self.folder / "first.npz"))
            rows = torch.stack(list(self._rows(seed, settings["batch_size"])))
            self.theirs.ask("update", rows=peer.write_rows(rows, self.folder / "rows.npz"))
        else:
            self.theirs.ask("fit", count=self.steps)
        self.theirs.ask("save", path=self.folder / "last.npz")
        with torch.no_grad():
            for parameter, value in zip(
                side.network.parameters(), peer.read_arrays(self.folder / "last.npz", "weight"), strict=True
            ):
                parameter.copy_(value)
            scaler.deviation += known.get("scaler_eps", 0.0)
        return side.network

    def _rows(self, seed: int, size: int) -> Iterator[torch.Tensor]:
        """The rows that our side draws with this seed (Transitions.batches)."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.steps):
            yield torch.randint(len(self.dataset.transitions), (size,), generator=generator)

    def score(self, policy: Any) -> float:
        """The policy's normalised score; all policies play the same episodes."""
        played = play_seeded_episodes(self.dataset.environment, wrap_as_player(policy.eval()), self.episodes, SEED)
        return self.dataset.reference.score(float(played.returns.mean()))


def train_and_format_row(lab: Lab, run: Run, seeds: Sequence[int]) -> str:
    """A line of the table: mean, interval and single seeds of both sides."""
    cells = []
    for train, changes in ((lab.peers, run.theirs), (lab.ours, run.ours)):
        if changes is None:
            cells.append("")
            continue
        scores = [lab.score(train(SETTINGS | METHODS[run.method] | changes, seed)) for seed in seeds]
        estimate = estimate_mean_over_seeds(scores)
        each = ", ".join(f"{score:.0f}" for score in scores)
        cells.append(f"{estimate.mean:.0f} ({estimate.low:.0f} to {estimate.high:.0f}): {each}")
    return f"| {run.method}{run.change and ': '}{run.change} | {' | '.join(cells)} |"


def main() -> None:
    """Train, play and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline_agreement", description=__doc__)
    parser.add_argument("data", type=Path, help="a data set of the stage transitions, with discrete actions")
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--runs", choices=("equal", "changes", "all"), default="all")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = {"equal": EQUAL, "changes": CHANGES, "all": [*EQUAL, *CHANGES]}[given.runs]
    dataset = read_offline_dataset(given.data)
    began = time.perf_counter()
    rows = []
    with peer.Peer() as theirs, tempfile.TemporaryDirectory() as folder:
        lab = Lab(dataset, given.steps, given.episodes, theirs, Path(folder))
        for run in runs:
            if run.method in given.methods:
                rows.append(train_and_format_row(lab, run, given.seeds))
                print(rows[-1], flush=True)
    minutes = (time.perf_counter() - began) / 60
    lines = [
        "",
        f"## {dataset.name}, {len(given.seeds)} seeds",
        "",
        f"Made by `python -m benchmarks.offline_agreement` in {minutes:.0f} minutes on {describe_machine('torch')}.",
        "",
        f"{given.steps} steps with {SETTINGS}, Adam, double selection, Huber's loss, observations scaled by mean "
        "and deviation of "
        f"the data; {len(given.seeds)} seeds, {given.episodes} episodes each, the same ones for all. "
        "Normalised score: mean, 95 % interval over seeds, and each seed's.",
        "",
        "| | d3rlpy | posttrain |",
        "|---|---|---|",
        *rows,
    ]
    before = result_files.load_result(given.out, {"page": []})["page"]
    result_files.write_result(given.out, {"page": [*before, *lines]}, adds=True)


if __name__ == "__main__":
    main()
