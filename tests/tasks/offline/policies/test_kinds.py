import json

import pytest
import torch

from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences, QValues
from tasks.algorithms.offline.networks.stochastic import Categorical, Gaussian, SquashedGaussian
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import StageError
from tasks.offline.policies import files, kinds

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
    files.save_policy(policy, tmp_path / "policy")
    assert len({file.stat().st_mode for file in (tmp_path / "policy").iterdir()}) == 1, "as the umask says"
    loaded = kinds.load_policy_of_any_kind(tmp_path / "policy")
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
        files.save_policy(Preferences(DISCRETE, [8]), tmp_path / name)
    for file in (files.CONFIG, files.WEIGHTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_values_are_the_highest_of_q_and_know_their_discount(tmp_path):
    policy = QValues(DISCRETE, [8], gamma=0.97)
    observations = torch.randn(5, 4)
    assert torch.equal(policy.values(observations), policy(observations).max(dim=1).values)
    files.save_policy(policy, tmp_path)
    assert kinds.load_policy_of_any_kind(tmp_path).gamma == 0.97


def test_a_policy_is_known_by_its_weights(tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        torch.manual_seed(seed)
        files.save_policy(Preferences(DISCRETE, [8]), tmp_path / name)
    one, same, other = (files.hash_policy_weights(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same != other


def test_one_clear_line_where_there_is_no_policy(tmp_path):
    with pytest.raises(StageError, match=r"no policy here \(config.json is missing\)"):
        kinds.load_policy_of_any_kind(tmp_path)
    (tmp_path / files.CONFIG).write_text(json.dumps({"kind": "Oracle"}))
    with pytest.raises(StageError, match=r"config.json: no policy of a known kind \(Preferences, "):
        kinds.load_policy_of_any_kind(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / files.WEIGHTS).unlink(), r"no policy here \(model.safetensors is missing\)$"),
        (
            lambda folder: (folder / files.WEIGHTS).write_bytes(b"torn"),
            "model.safetensors: not what config.json says: ",
        ),
        (lambda folder: files.save_policy(Preferences(DISCRETE, [9]), folder.parent / "other"), None),
        (lambda folder: (folder / files.CONFIG).write_text("{"), "config.json: no policy of a known kind"),
    ],
    ids=["gone", "torn", "of other sizes", "no JSON"],
)
def test_one_clear_line_where_a_policy_is_spoilt(tmp_path, spoil, told):
    folder = tmp_path / "policy"
    files.save_policy(Preferences(DISCRETE, [8]), folder)
    spoil(folder)
    if told is None:
        (tmp_path / "other" / files.WEIGHTS).replace(folder / files.WEIGHTS)
        told = "model.safetensors: not what config.json says: .*size mismatch"
    with pytest.raises(StageError, match=told) as error:
        kinds.load_policy_of_any_kind(folder)
    assert "\n" not in str(error.value)
