import torch

from tasks.algorithms.language.sequences import batches_per_run, make_batch, shuffled


def test_masks_come_from_lengths():
    """Prompt 0 1, response 1 end; prompt 1, response 0 0, cut off. Padding is the end token, 2."""
    batch = make_batch([[0, 1], [1]], [[1, 2], [0, 0]], pad=2)
    assert batch.tokens.tolist() == [[0, 1, 1, 2], [1, 0, 0, 2]]
    assert batch.attention.tolist() == [[True, True, True, True], [True, True, True, False]]
    assert batch.response.tolist() == [[False, False, True, True], [False, True, True, False]]


def test_shuffled_gives_every_index_once_an_epoch():
    batches = list(shuffled(10, 4, 3, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    assert len(batches) == batches_per_run(10, 4, 3)
    epochs = [[index for batch in batches[at : at + 3] for index in batch] for at in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3, "a new order each epoch"
    assert batches == list(shuffled(10, 4, 3, torch.Generator().manual_seed(0)))
    assert batches != list(shuffled(10, 4, 3, torch.Generator().manual_seed(1)))
