"""Preference optimisation on episodes: the policy's tokens alone, DPO's own loss, and what it teaches."""

import torch
from torch.nn.functional import logsigmoid

from tasks.algorithms.agents import preference
from tasks.algorithms.agents.preference import EpisodePair
from tasks.algorithms.agents.transcripts import Transcript, compute_action_logps, make_transcripts
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tests.tasks.tiny import llama

PLAIN = OptimizerSettings("adamw", "constant", 0.0, 1.0, [0.9, 0.95], 0.0)


def episode(*tokens):
    """Observation, action, observation, action."""
    one = Transcript()
    one.observe([5, 6], 0)
    one.act(tokens[:2], 0, [0.0, 0.0])
    one.observe([7], 1)
    one.act(tokens[2:], 1, [0.0] * len(tokens[2:]))
    return one


PAIRS = [EpisodePair(episode(1, 2, 3), episode(4, 8, 9)), EpisodePair(episode(10, 11, 2), episode(3, 12, 13, 1))]


def test_the_reference_counts_the_policy_s_tokens_alone():
    model = llama()
    found = preference.compute_episode_reference_logps(model, PAIRS, 0, batch_size=1)
    assert found.shape == (2, 2)
    for pair, row in zip(PAIRS, found, strict=True):
        for one, value in zip((pair.better, pair.worse), row, strict=True):
            alone = make_transcripts([one], 0)
            with torch.no_grad():
                logits = model(input_ids=alone.tokens).logits.log_softmax(-1)
            said = [at for at, acts in enumerate(one.acts) if acts]
            expected = sum(logits[0, at - 1, one.tokens[at]] for at in said)
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(compute_action_logps(model, alone).sum(), expected, rtol=1e-5, atol=1e-5)


def test_a_step_is_dpo_s():
    model = llama()
    reference = torch.tensor([[-3.0, -5.0], [-4.0, -4.5]])
    with torch.no_grad():
        now = preference.compute_episode_reference_logps(model, PAIRS, 0, batch_size=2)
    margin = (now - reference)[:, 0] - (now - reference)[:, 1]
    [row] = preference.fit(model, iter([(PAIRS, reference)]), 0, 0.3, Optimizer(model, 1e-3, 1, 1.0, PLAIN))
    torch.testing.assert_close(torch.tensor(row["loss"]), -logsigmoid(0.3 * margin).mean())
    torch.testing.assert_close(torch.tensor(row["rewards/margins"]), 0.3 * margin.mean())
    assert row["rewards/accuracies"] == (margin > 0).float().mean().item()


def test_the_better_episode_becomes_likelier_than_the_worse_one():
    model = llama()
    reference = preference.compute_episode_reference_logps(model, PAIRS, 0, batch_size=2)
    optimizer = Optimizer(model, 1e-2, 20, 1.0, PLAIN)
    rows = [*preference.fit(model, iter([(PAIRS, reference)] * 20), 0, 0.1, optimizer)]
    assert rows[0]["rewards/margins"] == 0
    assert rows[-1]["rewards/accuracies"] == 1
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
