import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.algorithms.language import sft
from tasks.algorithms.language.sequences import (
    OPEN,
    POOL,
    assign_documents_to_rows,
    count_batches,
    iterate_length_grouped_batches,
    iterate_shuffled_batches,
    make_sequence_batch,
    pack_documents,
)
from tests.tasks.tiny import ARCHITECTURES, llama


def test_masks_come_from_lengths():
    """Prompt 0 1, response 1 end; prompt 1, response 0 0, cut off. Padding is the end token, 2."""
    batch = make_sequence_batch([[0, 1], [1]], [[1, 2], [0, 0]], pad=2)
    assert batch.tokens.tolist() == [[0, 1, 1, 2], [1, 0, 0, 2]]
    assert batch.attention.tolist() == [[True, True, True, True], [True, True, True, False]]
    assert batch.response.tolist() == [[False, False, True, True], [False, True, True, False]]


def test_shuffled_gives_every_index_once_an_epoch():
    batches = list(iterate_shuffled_batches(10, 4, 3, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    assert len(batches) == count_batches(10, 4, 3)
    epochs = [[index for batch in batches[at : at + 3] for index in batch] for at in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3, "a new order each epoch"
    assert batches == list(iterate_shuffled_batches(10, 4, 3, torch.Generator().manual_seed(0)))
    assert batches != list(iterate_shuffled_batches(10, 4, 3, torch.Generator().manual_seed(1)))


def test_grouped_gives_every_index_once_an_epoch_and_leaves_little_padding():
    """Lengths 1 to 600 in batches of 4, so that each epoch has three pools of 200."""
    lengths = torch.randperm(600, generator=torch.Generator().manual_seed(2)).add(1).tolist()
    batches = list(iterate_length_grouped_batches(lengths, 4, 2, torch.Generator().manual_seed(0)))
    assert len(batches) == count_batches(600, 4, 2) == 300
    epochs = batches[:150], batches[150:]
    assert all(sorted(index for batch in epoch for index in batch) == list(range(600)) for epoch in epochs)
    assert epochs[0] != epochs[1], "a new order each epoch"
    spread = [max(found) - min(found) for batch in batches if (found := [lengths[index] for index in batch])]
    assert sum(spread) / len(spread) < 600 / POOL, "neighbours by length within a pool of POOL batches"
    longest = [max(lengths[index] for index in batch) for batch in epochs[0]]
    assert longest != sorted(longest), "the batches are shuffled again"
    assert batches == list(iterate_length_grouped_batches(lengths, 4, 2, torch.Generator().manual_seed(0)))


# Documents with what is learned of each: an answer, two answers, and all of a text.
FIRST = ([3, 4, 5, 6], [False, False, True, True])
SECOND = ([7, 8, 9, 10, 11], [False, True, False, True, True])
THIRD = ([12, 13, 14], [True, True, True])


def test_packed_rows_by_hand():
    """Padding is 0; the first token of the third document is predicted from nothing."""
    batch = pack_documents([[FIRST, THIRD], [SECOND]], pad=0)
    assert batch.tokens.tolist() == [[3, 4, 5, 6, 12, 13, 14], [7, 8, 9, 10, 11, 0, 0]]
    assert batch.attention.tolist() == [[True] * 7, [True] * 5 + [False] * 2]
    assert batch.response.tolist() == [
        [False, False, True, True, False, True, True],
        [False, True, False, True, True, False, False],
    ]
    inputs = batch.inputs()
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 3, 4, 0, 1]]
    seen = inputs["attention_mask"]
    assert seen.shape == (2, 1, 7, 7)
    first = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    third = [row[:3] for row in first[:3]]
    assert seen[0, 0].long().tolist() == [[*row, 0, 0, 0] for row in first] + [[0, 0, 0, 0, *row] for row in third]
    assert seen[1, 0, :5, :5].long().tolist() == torch.ones(5, 5).tril().long().tolist()
    assert seen[1, 0, 5:].long().tolist() == [[0, 0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0, 1]], "padding sees itself alone"


def test_a_document_a_row_is_an_ordinary_batch():
    batch = pack_documents([[FIRST], [THIRD]], pad=0)
    assert batch.document is None
    assert batch.inputs()["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert "position_ids" not in batch.inputs()
    plain = make_sequence_batch([[3, 4], []], [[5, 6], [12, 13, 14]], pad=0)
    assert torch.equal(plain.tokens, batch.tokens)
    assert torch.equal(plain.attention, batch.attention)
    assert torch.equal(plain.response[:, 1:], batch.response[:, 1:])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_packed_documents_teach_what_they_teach_in_rows_of_their_own(name):
    """Loss, accuracy and every gradient; also where the packed rows have padding."""
    found = []
    for rows in ([[FIRST], [SECOND], [THIRD]], [[THIRD, FIRST, SECOND]], [[SECOND, THIRD], [FIRST]]):
        model = ARCHITECTURES[name]()
        loss, accuracy = sft.cross_entropy_and_accuracy(model, pack_documents(rows, pad=0))
        loss.backward()
        found.append((loss.item(), accuracy.item(), [weight.grad.clone() for weight in model.parameters()]))
    alone, *others = found
    assert alone[1] < 1
    for loss, accuracy, gradients in others:
        assert loss == pytest.approx(alone[0], rel=1e-5)
        assert accuracy == pytest.approx(alone[1])
        for mine, wanted in zip(gradients, alone[2], strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spoilt", ["document", "position_ids"])
def test_packing_without_its_mask_or_its_positions_teaches_something_else(spoilt, monkeypatch):
    """The check above would notice."""
    model = llama()
    alone = sft.cross_entropy_and_accuracy(model, pack_documents([[FIRST], [SECOND]], pad=0))[0].item()
    batch = pack_documents([[FIRST, SECOND]], pad=0)
    inputs = {**batch.inputs()}
    if spoilt == "document":
        inputs["attention_mask"] = batch.attention.long()
    else:
        inputs["position_ids"] = torch.arange(9).unsqueeze(0) * 2  # rotary positions matter by their differences only
    monkeypatch.setattr(type(batch), "inputs", lambda _: inputs)
    assert abs(sft.cross_entropy_and_accuracy(model, batch)[0].item() - alone) > 0.001


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_document_sees_another(name):
    """Another token in the first document changes its own logits, and not a bit of the second's; nor does the second
    reach back.
    """
    model = ARCHITECTURES[name]()
    with torch.no_grad():
        one, other, third = (
            model(**pack_documents([row], pad=0).inputs(), use_cache=False).logits[0]
            for row in (
                [FIRST, SECOND],
                [([3, 15, 5, 6], FIRST[1]), SECOND],
                [FIRST, ([7, 8, 9, 10, 2], SECOND[1])],
            )
        )
    assert not torch.equal(one[1:4], other[1:4])
    assert torch.equal(one[4:], other[4:])
    assert torch.equal(one[:8], third[:8])
    assert not torch.equal(one[8], third[8])


LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=200)


@settings(max_examples=40)
@given(LENGTHS, st.integers(20, 64), st.randoms(use_true_random=False))
def test_every_document_is_packed_once_and_no_row_is_too_long(lengths, room, random):
    order = list(range(len(lengths)))
    random.shuffle(order)
    rows = assign_documents_to_rows(lengths, order, room)
    assert sorted(document for row in rows for document in row) == sorted(order)
    used = [sum(lengths[document] for document in row) for row in rows]
    assert all(0 < tokens <= room for tokens in used)
    if len(rows) <= OPEN:  # first fit: no row's first document had room in an earlier row
        assert all(used[early] + lengths[rows[late][0]] > room for late in range(len(rows)) for early in range(late))


@settings(max_examples=40)
@given(LENGTHS, st.randoms(use_true_random=False))
def test_rows_keep_the_drawn_order(lengths, random):
    """Each row's documents, and the rows' first documents, come in the order given."""
    order = list(range(len(lengths)))
    random.shuffle(order)
    place = {document: at for at, document in enumerate(order)}
    rows = [[place[document] for document in row] for row in assign_documents_to_rows(lengths, order, 20)]
    assert all(row == sorted(row) for row in rows)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_packing_by_hand():
    assert assign_documents_to_rows([5, 4, 3, 2, 6], [0, 1, 2, 3, 4], 8) == [[0, 2], [1, 3], [4]]
    assert assign_documents_to_rows([5, 4, 3, 2, 6], [4, 3, 2, 1, 0], 8) == [[4, 3], [2, 1], [0]]
    assert assign_documents_to_rows([8, 8], [1, 0], 8) == [[1], [0]]


def test_a_row_that_is_far_back_is_left_as_it_is():
    """Row 0 has room for the last document, but lies too far back."""
    lengths = [1, *[8] * OPEN, 1]
    assert assign_documents_to_rows(lengths, range(len(lengths)), 8)[-1] == [len(lengths) - 1]
    assert assign_documents_to_rows(lengths[1:], range(len(lengths) - 1), 8)[-1] == [len(lengths) - 2]
    near = [1, *[8] * (OPEN - 1), 1]
    assert assign_documents_to_rows(near, range(len(near)), 8)[0] == [0, len(near) - 1]


@settings(max_examples=12)
@given(st.lists(st.lists(st.integers(1, 15), min_size=1, max_size=6), min_size=2, max_size=5), st.data())
def test_any_packing_gives_each_document_its_own_logits(documents, data):
    model = llama()
    rows, row = [], []
    for ids in documents:
        row.append((ids, [True] * len(ids)))
        if data.draw(st.booleans()):
            rows.append(row)
            row = []
    rows += [row] if row else []
    batch = pack_documents(rows, pad=0)
    with torch.no_grad():
        together = model(**batch.inputs(), use_cache=False).logits
        for number, row in enumerate(rows):
            start = 0
            for ids, _ in row:
                alone = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
                torch.testing.assert_close(together[number, start : start + len(ids)], alone, rtol=1e-4, atol=1e-4)
                start += len(ids)
    assert together.isfinite().all()
