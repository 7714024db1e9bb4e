"""Exported policies act as the policy does, on raw observations; what cannot be exported is one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences, QValues
from tasks.algorithms.offline.networks.stochastic import Categorical, Gaussian, SquashedGaussian
from tasks.algorithms.offline.tabular_q import QTable
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import DataError
from tasks.offline.policies import export, files

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*deprecated")
DISCRETE, CONTINUOUS = Spaces(3, 4, discrete=True), Spaces(3, 2, discrete=False)
KINDS = [
    (Preferences, DISCRETE, {}),
    (QValues, DISCRETE, {"gamma": 0.9}),
    (Categorical, DISCRETE, {}),
    (MeanAction, CONTINUOUS, {}),
    (Gaussian, CONTINUOUS, {}),
    (SquashedGaussian, CONTINUOUS, {}),
]


@pytest.fixture(autouse=True)
def only_torchscript(request, monkeypatch):
    """ONNX takes five seconds for each policy: only the test of it writes that too."""
    if "onnx" not in request.node.name:
        monkeypatch.setattr(export, "find_spec", lambda name: None)


def saved(folder, kind, spaces, more):
    """A policy for observations about 1,000 with a deviation of about 50."""
    torch.manual_seed(0)
    policy = kind(spaces, [700, 8], **more)  # wide: many observations are multiplied by oneDNN, one is not
    policy.normaliser.fit(1000 + 50 * torch.randn(200, 3))
    files.save_policy(policy, folder)
    return policy


@pytest.mark.parametrize(("kind", "spaces", "more"), KINDS)
def test_torchscript_takes_raw_observations_and_acts_as_the_policy_does(kind, spaces, more, tmp_path):
    policy = saved(tmp_path / "policy", kind, spaces, more)
    (tmp_path / "out").mkdir()
    facts = export.export_offline_policy(tmp_path / "policy", tmp_path / "out")
    assert (facts["kind"], facts["architecture"], facts["discrete"]) == ("acting", kind.__name__, spaces.discrete)
    seen = 1000 + 150 * torch.randn(1000, 3, generator=torch.Generator().manual_seed(9))
    acted = torch.jit.load(str(tmp_path / "out" / export.SCRIPT))(seen)
    torch.testing.assert_close(acted, policy.act(seen), rtol=0, atol=0 if spaces.discrete else 1e-5)
    assert len(acted.unique()) > 1, "the scaling matters"
    again = files.load_policy(tmp_path / "out", {kind.__name__: kind})
    assert torch.equal(again.act(seen), policy.act(seen))


@pytest.mark.parametrize(
    ("kind", "spaces", "more"),
    [KINDS[5], *(pytest.param(*kind, marks=pytest.mark.slow) for kind in KINDS[:5])],
)
def test_onnx_takes_any_number_of_observations(kind, spaces, more, tmp_path):
    import onnxruntime

    policy = saved(tmp_path / "policy", kind, spaces, more)
    (tmp_path / "out").mkdir()
    assert export.export_offline_policy(tmp_path / "policy", tmp_path / "out")["missing"] == []
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / export.ONNX))
    for count in (1, 2, 17):
        seen = 1000 + 150 * torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        [acted] = session.run(None, {"observations": seen.numpy()})
        np.testing.assert_allclose(acted, policy.act(seen).numpy(), rtol=0, atol=0 if spaces.discrete else 1e-5)


def test_without_its_packages_it_is_left_out_and_said(tmp_path):
    saved(tmp_path / "policy", *KINDS[0])
    (tmp_path / "out").mkdir()
    assert export.export_offline_policy(tmp_path / "policy", tmp_path / "out")["missing"] == [*export.NEEDED]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
        "policy.pt",
    ]


def test_what_acts_otherwise_is_one_line(tmp_path, monkeypatch):
    saved(tmp_path / "policy", *KINDS[3])
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(export, "write_and_load_torchscript", lambda policy, file: lambda seen: policy.act(seen) + 1e-3)
    with pytest.raises(DataError, match=r"policy: TorchScript does not act as the policy does$"):
        export.export_offline_policy(tmp_path / "policy", tmp_path / "out")


def test_a_table_is_no_network(tmp_path):
    table = QTable(DISCRETE, 5, 0.9)
    files.save_policy(table, tmp_path / "policy")
    with pytest.raises(DataError, match=r"policy: a QTable is no network of the present observation"):
        export.export_offline_policy(tmp_path / "policy", tmp_path)


def test_its_numbers_are_explained_without_the_variant(tmp_path, monkeypatch, capsys):
    saved(tmp_path / "policy", *KINDS[1])
    (tmp_path / "out").mkdir()
    (tmp_path / "returns@cql-set.json").write_text(json.dumps({"CQL": {"return": 1.0, "score": 2.0}}))
    export.main([str(tmp_path / "policy"), str(tmp_path / "out"), "--explain", str(tmp_path / "returns@cql-set.json")])
    told = json.loads(capsys.readouterr().out)["meanings"]["returns@cql-set"]
    assert told["return"].startswith("The mean return of whole episodes")


def test_a_torn_policy_is_one_line(tmp_path):
    saved(tmp_path / "policy", *KINDS[0])
    (tmp_path / "policy/model.safetensors").write_bytes(b"torn")
    with pytest.raises(SystemExit, match=r"model\.safetensors: not what config\.json says"):
        export.main([str(tmp_path / "policy"), str(Path(tmp_path))])
