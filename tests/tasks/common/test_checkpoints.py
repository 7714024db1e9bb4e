import contextlib
import functools
import json
import random
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.algorithms.common.errors import TrainingError
from tasks.common import checkpoints
from tasks.common.checkpoints import Best, ResumableTraining, open_resumable_training
from tasks.common.config import Config
from tasks.common.errors import WaitingError
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import llama

STEPS = 9
FILE = Path("mlruns/checkpoints/toy.safetensors")


class ToyConfig(Config):
    rate: float


@pytest.fixture(autouse=True)
def a_checkpoint_after_every_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))


class Killed(Exception):
    pass


class Toy:
    """A training with every kind of state: tied weights, both optimizers, both kinds of generator."""

    def __init__(self, kind="muon"):
        self.model = llama(tie_word_embeddings=True)
        self.optimizer = make_optimizer(self.model, 0.01, STEPS, clip=1.0, kind=kind)
        self.generator, self.best = torch.Generator().manual_seed(3), Best()
        self.state = {
            "model": self.model,
            "optimizer": self.optimizer,
            "draws": self.generator,
            "best": self.best,
        }
        self.starts = []

    def fit(self, start, killed_after=None):
        self.starts.append(start)
        for number in range(start, STEPS):
            if number == killed_after:
                raise Killed
            tokens = torch.randint(16, (2, 5), generator=self.generator)
            loss = self.model(input_ids=tokens, labels=tokens).loss * (1 + torch.rand(()))
            loss.backward()
            self.optimizer.step()
            self.best.update_if_better(-loss.item(), self.model)
            yield {"loss": loss.item(), "best": self.best.score}

    def train(self, killed_after=None, key="a key"):
        checkpoint = ResumableTraining("toy", key)
        rows = checkpoint.run(lambda start: self.fit(start, killed_after), self.state, STEPS)
        checkpoint.remove()
        return rows

    def tensors(self):
        return {**checkpoints._collect_state_tensors(self.state), "torch": torch.get_rng_state()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The end of an uninterrupted training."""
    ends = {}
    with contextlib.chdir(tmp_path_factory.mktemp("whole")):
        for kind in ("adamw", "muon"):
            toy = Toy(kind)
            ends[kind] = (toy.train(), toy.tensors())
    return ends


@pytest.mark.parametrize(("kind", "kills"), [("adamw", (1,)), ("adamw", (3, 4, 8)), ("muon", (8,)), ("muon", (2, 5))])
def test_everything_is_as_without_the_kills(whole, kind, kills):
    for kill in kills:
        with pytest.raises(Killed):
            Toy(kind).train(killed_after=kill)
        torch.manual_seed(99)
    toy = Toy(kind)
    rows = toy.train()
    assert toy.starts == [kills[-1]], "it went on where it stood"
    expected_rows, expected = whole[kind]
    assert rows == expected_rows
    found = toy.tensors()
    assert found.keys() == expected.keys()
    assert any(".momentum_buffer" in name for name in found) == (kind == "muon")
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def test_a_training_that_pauses_ends_as_if_it_had_not(whole, monkeypatch):
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 1000.0)
    rows, expected = whole["muon"]
    for share, steps, start in (("1/4", 2, 0), ("1/4", 2, 2), ("1/2", 4, 2), ("1/9", 1, 4)):
        asked = {"share": share, "metric": "loss", "file": "rung.json"}
        monkeypatch.setenv("POSTTRAIN_PAUSE", json.dumps(asked))
        toy = Toy()
        with pytest.raises(WaitingError, match=f"paused after step {steps} of {STEPS}"):
            toy.train()
        assert json.loads(Path("rung.json").read_text()) == {
            "step": steps,
            "metric": "loss",
            "total": STEPS,
            "value": rows[steps - 1]["loss"],
        }
        assert toy.starts == ([] if start >= steps else [start])
    monkeypatch.setenv("POSTTRAIN_PAUSE", json.dumps(asked | {"metric": "accuracy"}))
    with pytest.raises(TrainingError, match="--early accuracy: the curve has no such number; it has loss, best"):
        Toy().train()
    monkeypatch.delenv("POSTTRAIN_PAUSE")
    toy = Toy()
    assert toy.train() == rows
    assert toy.starts == [4]
    found = toy.tensors()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def test_a_state_that_was_forgotten_is_noticed(whole):
    """The test above can fail: a training whose checkpoint lacks the generator ends differently."""
    with pytest.raises(Killed):
        Toy().train(killed_after=4)
    toy = Toy()
    toy.state.pop("draws")
    assert toy.train() != whole["muon"][0]


def test_killed_when_the_last_step_was_done(whole):
    toy = Toy()
    ResumableTraining("toy", "a key").run(toy.fit, toy.state, STEPS)
    assert FILE.exists(), "only the end of the stage removes it"
    after = Toy()
    assert after.train() == whole["muon"][0]
    assert after.starts == [STEPS]
    assert not FILE.exists()


@functools.cache
def four_steps():
    """The checkpoint of a training that was killed after four steps."""
    with pytest.raises(Killed):
        Toy().train(killed_after=4)
    return FILE.read_bytes()


def half_way():
    """Leave that checkpoint here."""
    content = four_steps()
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_bytes(content)
    return content


def test_another_training_starts_afresh_and_spares_the_checkpoint(monkeypatch, capsys, whole):
    left = half_way()
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 60.0)
    toy = Toy()
    assert toy.train(key="another key") == whole["muon"][0]
    assert toy.starts == [0]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"checkpoint {FILE} is of another training")
    assert FILE.read_bytes() == left, "whoever goes back to it resumes it"
    assert Toy().train() == whole["muon"][0]
    assert capsys.readouterr().err == f"checkpoint {FILE} resumed after step 4\n"


def test_a_longer_training_replaces_the_checkpoint_of_another():
    half_way()
    with pytest.raises(Killed):
        Toy().train(killed_after=2, key="another key")
    toy = Toy()
    toy.train(key="another key")
    assert toy.starts == [2]
    assert not FILE.exists()


def foreign(path):
    save_file({"rows": torch.zeros(3)}, path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-7]),
        lambda file: file.write_bytes(file.read_bytes()[:100]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(random.Random(0).randbytes(5000)),
        foreign,
    ],
    ids=["an end missing", "a torn header", "empty", "noise", "foreign"],
)
def test_a_torn_or_foreign_file_is_one_line_and_no_error(spoil, capsys, whole):
    half_way()
    spoil(FILE)
    toy = Toy()
    assert toy.train() == whole["muon"][0]
    assert toy.starts == [0]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"checkpoint {FILE} ")
    assert "afresh" in line


def test_no_disk_space_is_told_once_and_training_goes_on(capsys, whole):
    FILE.parent.parent.mkdir()
    FILE.parent.write_text("no directory")
    assert Toy().train() == whole["muon"][0]
    [line] = capsys.readouterr().err.splitlines()
    assert "cannot be written" in line


def test_a_full_disk_leaves_the_old_checkpoint(capsys):
    left = half_way()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(left) // 2, limits[1]))
    try:
        with pytest.raises(Killed):
            Toy().train(killed_after=8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert FILE.read_bytes() == left
    resumed, failed = capsys.readouterr().err.splitlines()
    assert "resumed after step 4" in resumed
    assert "cannot be written" in failed, "once"
    assert list(FILE.parent.iterdir()) == [FILE], "no half of a checkpoint takes up what space there is"


def test_checkpoints_take_a_small_share_of_the_time(monkeypatch):
    """A step takes 1 s and a checkpoint 2 s: at most every 30 s, and never more than a twentieth of the time."""
    clock, written = [0.0], []

    def write(*_):
        clock[0] += 2.0
        written.append(clock[0])

    def steps(_):
        for _ in range(200):
            clock[0] += 1.0
            yield {"loss": 0.0}

    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 30.0)
    monkeypatch.setattr(checkpoints, "SHARE", 0.05)
    monkeypatch.setattr(ResumableTraining, "_write", write)
    ResumableTraining("toy", "a key").run(steps, {}, 200)
    assert written == [32.0, 74.0, 116.0, 158.0, 200.0]


def test_the_checkpoint_stays_until_the_outs_are_written(tmp_path):
    def stage(error=None):
        with open_resumable_training("toy", ToyConfig(rate=0.1)) as checkpoint:
            toy = Toy()
            checkpoint.run(toy.fit, toy.state, STEPS)
            assert FILE.exists()
            if error:
                raise error
        return toy.starts

    with pytest.raises(OSError, match="No space"):
        stage(OSError("No space left on device"))
    assert stage() == [STEPS], "nothing of the training was lost"
    assert not FILE.exists()
    assert stage() == [0]


def test_the_best_weights_are_a_copy_and_survive_a_checkpoint():
    model, best = llama(), Best()
    weight = model.model.norm.weight

    def offer(score, value):
        weight.data.fill_(value)
        best.update_if_better(score, model)

    offer(float("nan"), 1.0)
    best.restore(model)
    assert weight[0] == 1.0, "nothing was offered that counts"
    for score, value in ((-2.0, 2.0), (0.5, 3.0), (0.5, 4.0), (0.1, 5.0), (float("nan"), 6.0)):
        offer(score, value)
    again = Best()
    again.load_state_dict(best.state_dict())
    assert again.score == 0.5
    offer(0.7, 7.0)
    again.restore(model)
    assert (weight == 3.0).all(), "the first of the highest"
    best.restore(model)
    assert (weight == 7.0).all()


def test_a_checkpoint_holds_tensors_and_rows_only():
    half_way()
    tensors = load_file(FILE)
    assert [row.keys() for row in json.loads(bytes(tensors["rows"].tolist()))] == [{"loss", "best"}] * 4
    tied = ("model/model.embed_tokens.weight", "model/lm_head.weight")
    assert torch.equal(*(tensors[name] for name in tied))
    assert {name.split("/")[0] for name in tensors} == {"rows", "model", "optimizer", "draws", "best", "torch"}


NAN, INF = float("nan"), float("inf")


def spoiled(toy, at, spoil):
    """The toy's steps; `spoil` changes the row of the `at`-th step."""

    def fit(start):
        for number, row in enumerate(toy.fit(start), start + 1):
            if number == at:
                spoil(toy, row)
            yield row

    return fit


def bad_weight(toy, _):
    toy.model.model.norm.weight.data[2] = INF


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda _, row: row.update(loss=NAN), "the loss is nan: training has diverged"),
        (lambda _, row: row.update(best=-INF), "the best is -inf: training has diverged"),
        (bad_weight, "model's weight model.norm.weight is not finite: training has diverged"),
    ],
    ids=["a loss", "another metric", "a weight"],
)
@pytest.mark.parametrize("at", [1, 4, STEPS])
def test_what_is_no_number_stops_the_training_before_it_is_kept(spoil, told, at):
    toy = Toy()
    with pytest.raises(TrainingError) as stopped:
        ResumableTraining("toy", "a key").run(spoiled(toy, at, spoil), toy.state, STEPS, ended=True)
    assert str(stopped.value) == f"toy: step {at}: {told}"
    assert FILE.exists() == (at > 1)
    if FILE.exists():
        kept = load_file(FILE)
        assert len(json.loads(bytes(kept.pop("rows").tolist()))) == at - 1, "the last good step's"
        assert [name for name, tensor in kept.items() if not tensor.isfinite().all()] == []


@pytest.mark.parametrize("every_second", [0.0, 1000.0])
def test_the_last_weights_are_looked_at_though_no_checkpoint_is_due(monkeypatch, every_second):
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", every_second)
    toy = Toy()
    with pytest.raises(TrainingError, match=f"^toy: step {10 * STEPS}: model's weight"):
        ResumableTraining("toy", "a key").run(spoiled(toy, STEPS, bad_weight), toy.state, STEPS, steps_a_row=10)
