import pytest
import torch

from tasks.algorithms.language.degenerate import KINDS, add_corrupted_pairs, corrupt_answers, select_best_answers
from tasks.algorithms.language.pairs import NO_LEVEL, Pairs
from tests.tasks.tiny import completions

# Two answers to one prompt, three to another; token 2 ends an answer.
PROMPTS = [[3, 4], [3, 4], [5], [5], [5]]
RESPONSES = [[7, 8, 2], [9, 2], [6, 2], [10, 11, 12, 13, 2], [14, 2]]
PAIRS = [(0, 1), (3, 2), (3, 4), (2, 4)]  # chosen, rejected


def pairs(found=PAIRS):
    chosen, rejected = map(torch.tensor, zip(*found, strict=True))
    batch = completions(PROMPTS, RESPONSES, pad=0)
    weight = torch.tensor([1.0, 1 / 3, 1 / 3, 1 / 3])[: len(found)]
    return Pairs(batch, torch.arange(5), chosen, rejected, weight, torch.full((len(found),), 2))


def texts(batch):
    return [row[kept].tolist() for row, kept in zip(batch.tokens, batch.mask, strict=True)]


def made(kind, seed=0):
    batch = completions(PROMPTS, RESPONSES, pad=0)
    return corrupt_answers(batch, [0, 3], [kind] * 2, 16, torch.Generator().manual_seed(seed))


def test_cut_off_and_unending_by_hand():
    assert texts(made("cut_off")) == [[7, 8], [10, 11, 12]]
    assert texts(made("unending")) == [[7, 8, 7, 8, 7], [10, 11, 12, 13, 10]], "as long as the longest answer"


def test_shuffled_keeps_the_tokens_and_the_end():
    seen = set()
    for seed in range(20):
        short, long = texts(made("shuffled", seed))
        assert sorted(short) == [2, 7, 8]
        assert sorted(long) == [2, 10, 11, 12, 13]
        assert short[-1] == long[-1] == 2
        seen.add(tuple(long))
    assert len(seen) > 5


def test_random_tokens_are_of_the_vocabulary_and_differ():
    drawn = [token for seed in range(40) for row in texts(made("random_tokens", seed)) for token in row]
    assert set(drawn) == set(range(16))
    assert len(drawn) == 40 * 2 * 5


@pytest.mark.parametrize("kind", KINDS)
def test_each_belongs_to_the_prompt_of_its_answer(kind):
    batch = made(kind)
    assert batch.owner.tolist() == [0, 1]
    assert batch.prompts.tolist() == [[3, 4], [0, 5]]
    assert all(texts(batch))


def test_best_answers_are_rejected_by_none():
    assert select_best_answers(pairs()) == [0, 3]
    assert select_best_answers(pairs([(2, 4), (3, 4), (3, 2)])) == [3], "and not the first that is chosen"


def test_one_more_pair_a_prompt_whose_worse_side_is_the_corruption():
    before, after = pairs(), add_corrupted_pairs(pairs(), 0.25, 16, torch.Generator().manual_seed(0))
    for name in ("chosen", "rejected", "weight", "level", "index"):
        was, now = getattr(before, name), getattr(after, name)
        assert torch.equal(now[: len(was)], was), name
    assert texts(after.responses)[:5] == RESPONSES
    assert len(after.responses) == 7
    assert after.chosen[4:].tolist() == [0, 3]
    assert after.rejected[4:].tolist() == [5, 6]
    assert after.weight[4:].tolist() == [0.25, 0.25]
    assert after.responses.owner[5:].tolist() == [0, 1]
    assert after.level[4:].tolist() == [NO_LEVEL] * 2, "no margin is asked of it"
    assert not {tuple(text) for text in texts(after.responses)[5:]} & {tuple(text) for text in RESPONSES}


def test_every_kind_is_drawn():
    found = set()
    for seed in range(30):
        after = add_corrupted_pairs(pairs(), 1.0, 16, torch.Generator().manual_seed(seed))
        found.add(tuple(texts(after.responses)[6]))
    assert {(10, 11, 12), (10, 11, 12, 13, 10)} <= found
    assert any(sorted(text) == [2, 10, 11, 12, 13] for text in found)
    assert any(len(text) == 5 and not set(text) <= {2, 10, 11, 12, 13} for text in found)
