import contextlib
import hashlib
from itertools import islice

import pandas as pd
import pytest
import torch

from tasks.algorithms.offline import bc as algorithm
from tasks.common import checkpoints
from tasks.offline import bc
from tasks.offline.environments.rollouts import EVALUATION_SEED, play_seeded_episodes, wrap_as_player
from tasks.offline.policies import kinds
from tasks.offline.training import learners
from tests.tasks.offline.worlds import record

CONFIG = bc.BcConfig.model_validate(
    {
        "datasets": [],
        "seeds": [0, 7],
        "shares": {"BC": 1.0, "30%BC": 0.3},
        "relabel": "none",
        "hidden": [16],
        "steps": 25,
        "batch_size": 8,
        "learning_rate": 0.01,
        "log_every": 10,
        "evaluate_every": 2,
        "evaluate_episodes": 4,
        "bfloat16": False,
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return record(tmp_path_factory.mktemp("data") / "graph-12", "graph", 12)


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def made(data, out, config=CONFIG):
    """The folder with what the stage writes, and its metrics."""
    out.mkdir(parents=True)
    return out, bc.run(config, data, out)


def hashes(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """What a training leaves that nothing has stopped: the folder, and the stage's metrics."""
    home = tmp_path_factory.mktemp("trained")
    with contextlib.chdir(home):
        return made(data, home / "out")


@pytest.fixture(scope="module")
def whole(trained):
    """The bytes of that training."""
    return hashes(trained[0])


def test_every_variant_and_seed_has_a_policy_a_curve_and_returns(trained):
    out, metrics = trained
    curves, returns = pd.read_csv(out / "curves.csv"), pd.read_csv(out / "returns.csv")
    whose = [(variant, seed) for variant in ("BC", "30%BC") for seed in (0, 7)]
    assert list(curves.groupby(["variant", "seed"], sort=False).groups) == whose
    for _, curve in curves.groupby(["variant", "seed"]):
        assert curve["step"].tolist() == [10, 20, 25]
    for _, curve in returns.groupby(["variant", "seed"]):
        assert curve["step"].tolist() == [20, 25], "every second row, and the last"
    assert curves.notna().all(axis=None)
    last = curves[curves["step"] == 25].groupby("variant")["loss"].mean()
    assert {name: of["loss"] for name, of in metrics.items()} == pytest.approx(last.to_dict())


def test_the_policy_kept_is_the_one_that_was_evaluated_last(trained):
    out, _ = trained
    returns = pd.read_csv(out / "returns.csv").groupby(["variant", "seed"])["return"].last()
    for (variant, seed), expected in returns.items():
        policy = kinds.load_policy_of_any_kind(out / variant / f"seed-{seed}")
        played = play_seeded_episodes("graph", wrap_as_player(policy), 4, EVALUATION_SEED)
        assert played.returns.mean() == pytest.approx(expected)


def test_the_same_seeds_give_the_same_bytes_and_others_others(data, whole, tmp_path):
    assert hashes(made(data, tmp_path / "other")[0]) == whole
    assert whole["BC/seed-0/model.safetensors"] != whole["BC/seed-7/model.safetensors"]


def test_a_seed_learns_the_same_whichever_others_are_asked_for(data, whole, tmp_path):
    alone = hashes(made(data, tmp_path / "alone", CONFIG.model_copy(update={"seeds": [7]}))[0])
    assert alone["30%BC/seed-7/model.safetensors"] == whole["30%BC/seed-7/model.safetensors"]


class Killed(Exception):
    pass


def until_killed(step, taken):
    """The algorithm's fit, killed once at the given step, counted over all trainings."""
    fit = algorithm.fit

    def watched(*arguments, **options):
        for metrics in fit(*arguments, **options):
            taken.append(metrics)
            if len(taken) == step:
                raise Killed
            yield metrics

    return watched


@pytest.mark.parametrize("step", [24, 60, 99])
def test_killed_at_any_step_it_ends_with_the_same_bytes(data, whole, tmp_path, monkeypatch, step):
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    with monkeypatch.context() as patched:
        patched.setattr(algorithm, "fit", until_killed(step, []))
        with pytest.raises(Killed):
            made(data, tmp_path / "killed")
    resumed = bc.run(CONFIG, data, tmp_path / "killed")
    assert resumed
    assert hashes(tmp_path / "killed") == whole


def test_a_resumed_training_does_not_start_again(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    run = checkpoints.ResumableTraining.run

    def stopped(self, fit, state, total, **_):
        run(self, lambda start: islice(fit(start), 2), state, total)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.ResumableTraining, "run", stopped)
        with pytest.raises(Killed):
            made(data, tmp_path / "out")
    bc.run(CONFIG, data, tmp_path / "out")
    assert "resumed after step 2" in capsys.readouterr().err


def test_what_was_trained_before_the_kill_is_not_trained_again(data, whole, tmp_path, monkeypatch):
    """Checkpoints within a training are too rare here: only finished trainings have one."""
    taken = []
    with monkeypatch.context() as patched:
        patched.setattr(algorithm, "fit", until_killed(60, taken))  # of 25 for each of two seeds and two shares
        with pytest.raises(Killed):
            made(data, tmp_path / "killed")
        assert len(list(checkpoints.FOLDER.glob("*.safetensors"))) == 2
        bc.run(CONFIG, data, tmp_path / "killed")
    assert len(taken) == 60 + 2 * 25
    assert hashes(tmp_path / "killed") == whole
    assert not list(checkpoints.FOLDER.glob("*.safetensors"))


def test_batches_are_drawn_from_the_generator_that_the_checkpoint_keeps(data, tmp_path):
    """Not from torch's global generator, whose state other trainings use as well."""
    drawn = []
    draw = torch.randint

    def watched(*arguments, **options):
        drawn.append(options.get("generator"))
        return draw(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch, "randint", watched)
        made(data, tmp_path / "out")
    assert drawn
    assert all(drawn)


def test_a_fault_after_the_last_training_trains_nothing_again(data, tmp_path, monkeypatch):
    steps = []
    with monkeypatch.context() as patched:
        patched.setattr(algorithm, "fit", until_killed(-1, steps))
        with monkeypatch.context() as faulty:
            faulty.setattr(learners.tables, "compute_mean_row", lambda rows: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                made(data, tmp_path / "out")
        assert len(steps) == 4 * 25
        assert bc.run(CONFIG, data, tmp_path / "out")
    assert len(steps) == 4 * 25
    assert not list(checkpoints.FOLDER.glob("*.safetensors"))
