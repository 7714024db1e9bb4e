"""Tabular Q-learning from a data set of few distinct observations."""

from pathlib import Path

import pandas as pd

from tasks.algorithms.offline import tabular_q
from tasks.common.errors import DataError
from tasks.common.tracking import run_and_record_training
from tasks.offline.configs.tabular_q import TabularQConfig
from tasks.offline.datasets.dataset_files import read_offline_dataset
from tasks.offline.environments.rollouts import EVALUATION_SEED, play_seeded_episodes, wrap_as_player
from tasks.offline.policies import files
from tasks.offline.training import learners
from tasks.stage import Metrics, main

CURVES = {**tabular_q.METRICS, **learners.METRICS}
METRICS = {
    **{f"VARIANT/{name}": text for name, text in CURVES.items()},
    "VARIANT/step": "The number of sweeps until the values converged.",
    "VARIANT/states": "The number of states in the table.",
}


def run(config: TabularQConfig, transitions: Path, out: Path) -> Metrics:
    """Sweep to convergence; the table, its curve and the mean return of some episodes go to `out`."""
    dataset = read_offline_dataset(transitions)
    if not dataset.spaces.discrete:
        raise DataError(f"data set {dataset.name}: actions are continuous; a table needs a finite set")
    try:
        policy, states, next_states = tabular_q.build_q_table(
            dataset.transitions, dataset.spaces, config.gamma, config.states
        )
    except tabular_q.TooManyStates as error:
        raise DataError(f"data set {dataset.name}: {error} (tabular_q.states); dqn has no such limit") from None
    sweeps = list(tabular_q.fit(policy, dataset.transitions, states, next_states, config.tolerance))
    rows = [{"step": number, **row} for number, row in enumerate(run_and_record_training(sweeps, len(sweeps)), 1)]
    files.save_policy(policy, out / config.variant / "seed-0")
    played = play_seeded_episodes(
        dataset.environment, wrap_as_player(policy), config.evaluate_episodes, EVALUATION_SEED
    )
    tag = {"variant": config.variant, "seed": 0}
    pd.DataFrame([{**tag, **row} for row in rows]).to_csv(out / "curves.csv", index=False)
    ended = {**tag, "step": len(rows), "return": played.returns.mean()}
    pd.DataFrame([ended]).to_csv(out / "returns.csv", index=False)
    return {config.variant: {**rows[-1], "return": played.returns.mean(), "states": len(policy.states)}}


if __name__ == "__main__":
    main(run)
