"""Monte-Carlo estimates of steps, with a sampler whose completions are known."""

import pytest
import torch

from tasks.algorithms.language.rollouts import Rollouts
from tasks.common import models
from tasks.language.data import chat
from tasks.language.rewards.verifier import Verifier
from tasks.language.steps import rollout_estimates
from tasks.language.steps.cutting import locate_step_ends
from tasks.language.steps.rollout_estimates import (
    RolloutSettings,
    collect_unfinished_prefixes,
    compute_hard_estimates,
    compute_soft_estimates,
)

GOLDS = {"p": "12", "q": "12"}
# From the first step on three of four completions are right, from the other first step one, from anywhere else none.
MORE = {
    "3 + 4 = 7\n": ["#### 12", "#### 12", "7 + 5 = 12\n#### 12", "#### 7"],
    "3 * 4 = 9\n": ["#### 12"] + 3 * ["#### 9"],
}


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "pretrained")


def solution(words, prompt_id, text, right, ended=True):
    tokens = chat.encode_response(words, text, ended)
    return {
        "prompt_id": prompt_id,
        "tokens": tokens,
        "ends": locate_step_ends(words, [tokens])[0],
        "right": right,
        "ended": ended,
    }


@pytest.fixture
def solutions(words):
    return [
        solution(words, "p", "3 + 4 = 7\n7 + 5 = 12\n#### 12", True),
        solution(words, "p", "3 + 4 = 7\n#### 7", False),
        solution(words, "q", "3 * 4 = 9\n9 + 5", False, ended=False),
    ]


@pytest.fixture
def sampler(words, monkeypatch):
    """Answers by MORE; the prompts are noted."""
    asked = []

    def sample(_model, prompts, *, samples, batch_size, **_):
        for start in range(0, len(prompts), batch_size):
            batch = prompts[start : start + batch_size]
            asked.append(batch)
            texts = [text for one in batch for text in MORE.get(words.decode(one[1:]), samples * ["#### 1"])]
            rows = [chat.encode_response(words, text) for text in texts]
            tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
            mask = torch.arange(tokens.shape[1]) < torch.tensor([*map(len, rows)]).unsqueeze(1)
            yield Rollouts(tokens, mask, mask.float(), torch.ones(len(rows), dtype=torch.bool))

    monkeypatch.setattr(rollout_estimates.rollouts, "sample_rollouts", sample)
    return asked


def estimates(words, solutions, batch_size):
    settings = RolloutSettings(seed=0, samples=4, temperature=1.0, max_new_tokens=9, batch_size=batch_size)
    with Verifier() as verifier:
        return compute_soft_estimates(None, words, [], solutions, {"p": [5], "q": [6]}, GOLDS, settings, verifier)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_shares_by_hand(words, solutions, sampler, batch_size):
    """A solution that closed itself is right or wrong at its end; one that was cut off goes on from there."""
    assert estimates(words, solutions, batch_size) == [[0.75, 0.0, 1.0], [0.75, 0.0], [0.25, 0.0]]
    assert compute_hard_estimates([0.75, 0.0, 1.0]) == [1, -1, 1]
    asked = [one for batch in sampler for one in batch]
    assert len(asked) == 4, "a beginning that two solutions share is finished once"
    assert [*map(len, asked)] == sorted(map(len, asked)), "those of like length stand together"


def test_each_beginning_is_of_its_own_prompt(words, solutions):
    both = [solutions[1], {**solutions[1], "prompt_id": "q"}]
    assert [prompt_id for prompt_id, _ in collect_unfinished_prefixes(both)] == ["p", "q"]
