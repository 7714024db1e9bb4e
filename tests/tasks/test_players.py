import json

import pytest
import torch

from tasks import players, saved
from tasks.algorithms.offline.networks import MeanAction, Preferences, QValues, Spaces
from tasks.algorithms.offline.stochastic import Categorical, Gaussian, SquashedGaussian

DISCRETE, CONTINUOUS = Spaces(4, 3, discrete=True), Spaces(4, 2, discrete=False)
POLICIES = {
    "Preferences": lambda: Preferences(DISCRETE, [8, 8]),
    "QValues": lambda: QValues(DISCRETE, [8], gamma=0.97),
    "MeanAction": lambda: MeanAction(CONTINUOUS, [5]),
    "Categorical": lambda: Categorical(DISCRETE, [8]),
    "Gaussian": lambda: Gaussian(CONTINUOUS, [8]),
    "SquashedGaussian": lambda: SquashedGaussian(CONTINUOUS, [8]),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_a_saved_policy_acts_as_before(kind, tmp_path):
    torch.manual_seed(0)
    policy = POLICIES[kind]()
    policy.normaliser.fit(3 + 2 * torch.randn(50, 4))
    saved.save(policy, tmp_path / "policy")
    assert len({file.stat().st_mode for file in (tmp_path / "policy").iterdir()}) == 1, "as the umask says"
    loaded = players.load(tmp_path / "policy")
    observations = torch.randn(40, 4)
    assert type(loaded) is type(policy)
    assert not loaded.training
    assert loaded.sizes == policy.sizes
    assert loaded.spaces == policy.spaces
    assert torch.equal(loaded(observations), policy(observations))
    assert torch.equal(loaded.act(observations), policy.act(observations))


def test_same_policy_same_bytes(tmp_path):
    for name in ("one", "two"):
        torch.manual_seed(3)
        saved.save(Preferences(DISCRETE, [8]), tmp_path / name)
    for file in (saved.CONFIG, saved.WEIGHTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_values_are_the_highest_of_q_and_know_their_discount(tmp_path):
    policy = QValues(DISCRETE, [8], gamma=0.97)
    observations = torch.randn(5, 4)
    assert torch.equal(policy.values(observations), policy(observations).max(dim=1).values)
    saved.save(policy, tmp_path)
    assert players.load(tmp_path).gamma == 0.97


def test_a_policy_is_known_by_its_weights(tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        torch.manual_seed(seed)
        saved.save(Preferences(DISCRETE, [8]), tmp_path / name)
    one, same, other = (saved.digest(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same != other


def test_one_clear_line_where_there_is_no_policy(tmp_path):
    with pytest.raises(SystemExit, match=r"no policy here \(config.json is missing\)"):
        players.load(tmp_path)
    (tmp_path / saved.CONFIG).write_text(json.dumps({"kind": "Oracle"}))
    with pytest.raises(SystemExit, match=r"config.json: no policy of a known kind \(Preferences, "):
        players.load(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / saved.WEIGHTS).unlink(), r"no policy here \(model.safetensors is missing\)$"),
        (
            lambda folder: (folder / saved.WEIGHTS).write_bytes(b"torn"),
            "model.safetensors: not what config.json says: ",
        ),
        (lambda folder: saved.save(Preferences(DISCRETE, [9]), folder.parent / "other"), None),
        (lambda folder: (folder / saved.CONFIG).write_text("{"), "config.json: no policy of a known kind"),
    ],
    ids=["gone", "torn", "of other sizes", "no JSON"],
)
def test_one_clear_line_where_a_policy_is_spoilt(tmp_path, spoil, told):
    folder = tmp_path / "policy"
    saved.save(Preferences(DISCRETE, [8]), folder)
    spoil(folder)
    if told is None:
        (tmp_path / "other" / saved.WEIGHTS).replace(folder / saved.WEIGHTS)
        told = "model.safetensors: not what config.json says: .*size mismatch"
    with pytest.raises(SystemExit, match=told) as error:
        players.load(folder)
    assert "\n" not in str(error.value)
