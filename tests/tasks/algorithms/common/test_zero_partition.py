from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from tasks.algorithms.common import distributed
from tasks.algorithms.common.precision import TrainedWeights, convert_weights_to_precision
from tasks.algorithms.common.zero_partition import compute_weight_owners
from tests.tasks.optimizers import make_optimizer
from tests.tasks.ranks import in_ranks
from tests.tasks.tiny import llama


@given(st.lists(st.integers(0, 1000)), st.integers(1, 9))
def test_each_weight_has_an_owner_and_none_has_much_more_than_another(sizes, ranks):
    """The largest weight that a rank got last is the most that it can have beyond the rank that has least."""
    weights = [torch.empty(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "get_world_size", lambda: ranks)
        found = compute_weight_owners(weights)
    held = [sum(size for size, owner in zip(sizes, found, strict=True) if owner == rank) for rank in range(ranks)]
    assert sum(held) == sum(sizes)
    assert max(held) - min(held) <= max(sizes, default=0)


def train_in(ranks, precision="fp32", optimizer="adamw", make=llama):
    """What each rank makes of its own copy of one model; copies are made here, since torch's generator is one for all
    threads.
    """
    model = make()
    models = [deepcopy(model) for _ in range(ranks)]
    return in_ranks(ranks, lambda rank: train(models[rank], rank, precision, optimizer))


def train(model, rank, precision, optimizer):
    """Four steps with gradients of this rank's own; then two more after loading what was there after the second."""
    convert_weights_to_precision(model, precision)
    weights = TrainedWeights(model)
    found = make_optimizer(model, learning_rate=0.01, steps=4, clip=1.0, kind=optimizer)
    numbers = torch.Generator().manual_seed(rank)
    gradients = [[torch.randn(p.shape, generator=numbers).to(p.dtype) for p in found.parameters] for _ in range(4)]
    kept = {}
    for step in [0, 1, 2, 3, 2, 3]:
        if step == 2 and kept:
            weights.load_state_dict(kept["weights"])
            found.load_state_dict(kept["optimizer"])
        elif step == 2:
            state = distributed_to_all(found.state_dict())
            kept = {"weights": {k: t.clone() for k, t in weights.state_dict().items()}, "optimizer": state}
        for p, gradient in zip(found.parameters, gradients[step], strict=True):
            p.grad = gradient.clone()
        norm = found.step()
    held = sum(t.numel() for part in found.parts for state in part.state.values() for t in state.values())
    return norm, weights.state_dict(), kept["optimizer"], held


def distributed_to_all(state):
    """What rank 0 has, on all ranks, as they would read it from its checkpoint; clones, so that it stays as it is."""
    own = list(save(state)) if distributed.is_main_rank() else []
    whole = distributed.gather_rows(torch.tensor(own, dtype=torch.uint8))
    return load(bytes(whole.tolist()))


@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [("adamw", "fp32"), ("muon", "fp32"), ("muon", "bf16"), ("adamw", "pure_bf16")],
)
def test_ranks_that_divide_the_optimizer_have_the_bits_of_ranks_that_do_not(monkeypatch, precision, optimizer):
    """Weights, moments in a checkpoint and gradients' norms; and each rank holds its part of the moments alone."""
    monkeypatch.delenv(distributed.SHARD, raising=False)
    norm, weights, state, held = train_in(3, precision, optimizer)[0]
    monkeypatch.setenv(distributed.SHARD, "optimizer")
    divided = train_in(3, precision, optimizer)
    assert sum(part[3] for part in divided) == held
    assert max(part[3] for part in divided) < 0.5 * held
    for other_norm, other_weights, other_state, _ in divided:
        assert other_norm == norm
        assert other_state.keys() == state.keys()
        assert all(torch.equal(other_state[name], tensor) for name, tensor in state.items())
        assert all(torch.equal(other_weights[name], tensor) for name, tensor in weights.items())


class Layer(torch.nn.Linear):
    """A model of two weights."""

    def get_output_embeddings(self):
        return None


def test_more_ranks_than_weights_and_one_process_alone(monkeypatch):
    """Some ranks own nothing; where there is one process the variable changes nothing."""
    monkeypatch.setenv(distributed.SHARD, "optimizer")
    found = train_in(4, make=lambda: Layer(2, 3))
    assert [part[3] for part in found].count(0) == 2
    assert not make_optimizer(llama(1), learning_rate=0.01, steps=4, clip=1.0).owners


def test_a_rank_that_keeps_its_moments_to_itself_would_be_noticed(monkeypatch):
    monkeypatch.delenv(distributed.SHARD, raising=False)
    weights = train_in(2)[0][1]
    monkeypatch.setenv(distributed.SHARD, "optimizer")
    monkeypatch.setattr(distributed, "broadcast_owned_weights", lambda weights, owners: None)
    other = train_in(2)[0][1]
    assert not all(torch.equal(other[name], tensor) for name, tensor in weights.items())


def test_rank_0_decides_and_collects():
    def work(rank):
        own = {} if rank == 1 else {f"{rank}.a": torch.full((2, 2), float(rank)), f"{rank}.b": torch.tensor(rank)}
        return (
            distributed.broadcast_decision(rank == 0),
            distributed.broadcast_decision(rank != 0),
            distributed.collect_tensors_on_main(own, torch.device("cpu")),
        )

    first, *others = in_ranks(3, work)
    assert first[:2] == (True, False)
    assert {name: t.tolist() for name, t in first[2].items()} == {
        "0.a": [[0, 0], [0, 0]], "0.b": 0, "2.a": [[2, 2], [2, 2]], "2.b": 2,
    }  # fmt: skip
    assert others == [(True, False, {})] * 2
