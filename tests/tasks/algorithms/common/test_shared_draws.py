from itertools import chain

import pytest
import torch

from tasks.algorithms.common import distributed
from tasks.algorithms.common.shared_draws import UniformDraws, _Whole, has_dropout
from tests.tasks.ranks import in_ranks
from tests.tasks.tiny import gpt2, llama

# The tokens that each of five rows has: how often it draws.
LENGTHS = torch.tensor([3, 1, 5, 2, 2])


def alone(lengths, full):
    """One process, as sampling did it before there were ranks: rows that have ended leave below `full`."""
    generator, place, going = (
        torch.Generator().manual_seed(7),
        torch.arange(len(lengths)),
        torch.ones(len(lengths)).bool(),
    )
    drawn = [[] for _ in lengths]
    for t in range(int(lengths.max())):
        for row, value in zip(
            place.tolist(), torch.rand(len(place), generator=generator, dtype=torch.float64), strict=True
        ):
            if t < lengths[row]:
                drawn[row].append(value.item())
        going = lengths[place] > t + 1
        if going.sum() < full * len(place):
            place = place[going]
    return drawn


def in_shares(rank, lengths, full, tokens):
    own = distributed.get_local_slice(len(lengths))
    uniform = UniformDraws(torch.Generator().manual_seed(7), len(lengths), own, full)
    mine, drawn = lengths[own], [[] for _ in lengths[own]]
    for t in range(int(mine.max()) if len(mine) else 0):
        rows = (mine > t).nonzero().squeeze(1)
        for row, value in zip(rows.tolist(), uniform(rows).squeeze(1).tolist(), strict=True):
            drawn[row].append(value)
        uniform.mark_continuing_rows((mine > t + 1).nonzero().squeeze(1))
    uniform.finish(tokens - (int(mine.max()) if len(mine) else 0))
    return drawn


@pytest.mark.parametrize("full", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_a_row_draws_the_numbers_that_it_draws_on_one_process(ranks, full):
    found = in_ranks(ranks, lambda rank: in_shares(rank, LENGTHS, full, 9))
    assert list(chain.from_iterable(found)) == alone(LENGTHS, full)


def test_a_rank_s_dropout_is_that_of_its_rows_in_the_whole_batch():
    """For tensors laid out in any order, and for attention's dropout, which draws inside a kernel."""
    whole = torch.randn(5, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    for laid_out in (lambda x: x, lambda x: x.transpose(1, 3).contiguous().transpose(1, 3)):
        for dropped in (
            lambda x: torch.nn.functional.dropout(x, 0.5),
            lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        ):
            torch.manual_seed(3)
            expected = dropped(laid_out(whole))
            for rows in (torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4, 1])):
                torch.manual_seed(3)
                with _Whole({len(rows): (rows, 5)}):
                    found = dropped(laid_out(whole[rows]))
                torch.testing.assert_close(found, expected[rows])
                assert (found == 0).any() or dropped is not torch.nn.functional.dropout


def test_which_models_draw():
    assert has_dropout(gpt2())
    assert not has_dropout(gpt2(resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0))
    assert not has_dropout(llama())
    assert has_dropout(llama(attention_dropout=0.1))
