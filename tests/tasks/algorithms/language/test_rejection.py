import pytest
import torch

from tasks.algorithms.language.experience import select_best_per_prompt

REWARDS = torch.tensor([0.2, 0.9, 0.5, 0.1, 0.3, 0.3, 0.8, 0.8, -1.0, 0.4])
OWNER = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 0])


def test_the_best_of_each_prompt_by_hand():
    """The first of several that are equally good; a prompt's responses need not be adjacent."""
    found = select_best_per_prompt(REWARDS, OWNER, -2.0)
    assert found.tolist() == [1, 2, 4, 6, 8]
    assert found.dtype == torch.long


@pytest.mark.parametrize(
    ("minimum", "kept"), [(0.3, [1, 2, 4, 6]), (0.5, [1, 2, 6]), (0.9, [1]), (0.91, []), (float("inf"), [])]
)
def test_prompts_whose_best_is_too_bad_are_left_out(minimum, kept):
    """A reward equal to `minimum` is good enough. 0.3 and 0.9 are not exact in binary, so they are given in single
    precision.
    """
    minimum = torch.tensor(minimum).item()
    assert select_best_per_prompt(REWARDS, OWNER, minimum).tolist() == kept
    assert select_best_per_prompt(REWARDS, OWNER, minimum).dtype == torch.long


def test_a_reward_that_is_no_number_is_never_the_best():
    rewards = torch.tensor([float("nan"), 0.1, 0.4, float("nan"), float("nan")])
    assert select_best_per_prompt(rewards, torch.tensor([0, 0, 1, 1, 2]), 0.0).tolist() == [1, 2]


def test_it_is_the_maximum_and_not_the_last_or_the_sum():
    generator = torch.Generator().manual_seed(0)
    rewards, owner = torch.rand(200, generator=generator), torch.randint(20, (200,), generator=generator)
    rows = select_best_per_prompt(rewards, owner, 0.0)
    assert owner[rows].unique().tolist() == list(range(20))
    assert rows.tolist() == sorted(rows.tolist())
    for row in rows.tolist():
        assert rewards[row] == rewards[owner == owner[row]].max()
