from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.algorithms.common import distributed
from tests.tasks.ranks import in_ranks

COUNTS = [0, 1, 2, 5, 7, 8]


@given(st.integers(0, 200), st.integers(1, 40))
def test_ranks_share_all_rows_evenly_and_in_order(count, ranks):
    rows = list(range(count))
    shares = [rows[distributed.get_rank_slice(count, rank, ranks)] for rank in range(ranks)]
    assert list(chain.from_iterable(shares)) == rows
    sizes = [len(part) for part in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_alone_nothing_is_sent_and_all_stays_as_it_is():
    rows, p = torch.arange(3.0), torch.nn.Parameter(torch.ones(2))
    p.grad = gradient = torch.ones(2)
    distributed.sum_gradients([p])
    distributed.broadcast_tensors([p])
    assert p.grad is gradient
    assert distributed.gather_rows(rows) is distributed.all_reduce_sum(rows) is rows
    assert distributed.sum_values_over_ranks({"a": 0.1}) == {"a": 0.1}
    assert distributed.gather_names(["b", "a"]) == ["b", "a"]
    assert (distributed.get_rank(), distributed.get_world_size(), distributed.is_main_rank()) == (0, 1, True)
    assert distributed.get_local_slice(5) == slice(0, 5)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.long])
def test_rows_of_all_ranks_in_order(ranks, dtype):
    whole = (torch.arange(10).view(5, 2) % 3).to(dtype)
    for found in in_ranks(ranks, lambda _: distributed.gather_rows(whole[distributed.get_local_slice(5)])):
        assert found.dtype == dtype
        assert torch.equal(found, whole)


@pytest.mark.parametrize("count", COUNTS)
def test_columns_sums_and_names_where_a_rank_has_nothing(count):
    whole = {"a": torch.arange(float(count)), "b": torch.full((count,), torch.nan)}

    def work(rank):
        own = {name: column[distributed.get_local_slice(count)] for name, column in whole.items()}
        names = distributed.gather_names(["x\n", "ü"] if rank == 1 else [])
        return distributed.gather_columns(own), distributed.sum_values_over_ranks({"s": sum(own["a"].tolist())}), names

    for columns, sums, names in in_ranks(3, work):
        assert torch.equal(columns["a"], whole["a"])
        assert columns["b"].isnan().sum() == len(columns["b"]) == count
        assert sums == {"s": sum(range(count))}
        assert names == ["x\n", "ü"]


@pytest.mark.parametrize("bucket", [1, 4, 2**25])
def test_gradients_are_summed_and_none_stays_none(monkeypatch, bucket):
    monkeypatch.setattr(distributed, "BUCKET", bucket)

    def work(rank):
        shapes = [(2, 2), (3,), (), (1,)]
        weights = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
        weights.append(torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)))
        weights[0].grad = torch.full((2, 2), 1.0 + rank)
        if rank == 1:
            weights[2].grad = torch.tensor(5.0)
        weights[4].grad = torch.tensor([256.0, 0.5], dtype=torch.bfloat16) * (1 if rank == 0 else 2**-8)
        distributed.sum_gradients(weights)
        return [p.grad for p in weights]

    for first, second, third, fourth, rounded in in_ranks(2, work):
        assert torch.equal(first, torch.full((2, 2), 3.0))
        assert second is fourth is None
        assert third == 5
        assert rounded.dtype == torch.bfloat16
        assert torch.equal(rounded, torch.tensor([257.0, 0.5 + 2**-9]).bfloat16())


def test_all_ranks_get_the_first_s_weights():
    for weights in in_ranks(
        3, lambda rank: (found := torch.full((2, 3), float(rank)).t(), distributed.broadcast_tensors([found]))[0]
    ):
        assert torch.equal(weights, torch.zeros(3, 2))
