"""The loop: its gradients against a plain computation, and that memory does not change them."""

from dataclasses import replace

import pytest
import torch

from tasks.algorithms.agents import actor_critic
from tasks.algorithms.agents.critic import TurnCritic
from tasks.algorithms.agents.experience import AgentExperience, LoopSettings
from tasks.algorithms.agents.transcripts import Transcript, make_transcripts, stack_sampled_logps
from tasks.algorithms.agents.trust_region import TrustRegion
from tasks.algorithms.common.errors import TrainingError
from tests.tasks.tiny import llama

SETTINGS = LoopSettings(
    credit="to_go",
    over="turns",
    baseline="none",
    standardized=False,
    gamma=0.9,
    lam=0.5,
    update="plain",
    clip_ratio=0.2,
    epochs=2,
    minibatches=2,
    critic_updates=2,
    temperature=0.7,
    region=TrustRegion(0.01, 5, 0.1, 5),
    micro_batch=99,
    seed=0,
)


class Kept:
    """An optimizer that keeps gradients and changes nothing."""

    learning_rate = 0.1

    def __init__(self, model):
        self.model, self.found = model, []

    def step(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None])
        self.found.append(flat.clone())
        for p in self.model.parameters():
            p.grad = None
        return flat.norm().item()


def experience(model, temperature=0.7):
    """Four episodes of one to three turns in two games, with the model's own log-probabilities."""
    generator, made = torch.Generator().manual_seed(0), []
    for turns in (2, 3, 1, 2):
        one = Transcript()
        for turn in range(turns):
            one.observe(torch.randint(1, 16, (2 + turn,), generator=generator).tolist(), turn)
            action = torch.randint(1, 16, (1 + turn,), generator=generator).tolist()
            for token in action:
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([one.tokens]), use_cache=False).logits[0, -1]
                one.act([token], turn, [(logits / temperature).log_softmax(-1)[token].item()])
        made.append(one)
    batch = make_transcripts(made, pad=0)
    rewards = torch.randn(batch.taken.shape, generator=generator) * batch.taken
    return AgentExperience(batch, stack_sampled_logps(made), rewards, torch.tensor([0, 0, 1, 1])), made


def gradients(settings, model, found, critic=None):
    optimizers = Kept(model), Kept(critic) if critic is not None else None
    rows = [*actor_critic.fit(model, critic, lambda _: found, optimizers, settings, start=0, steps=1)]
    return rows[0], *(one.found if one else [] for one in optimizers)


def test_the_gradient_is_that_of_each_token_alone():
    """By hand: minus the mean over episodes of the sum of G_k log pi(token) over the tokens of turn k."""
    model = llama(1)
    found, made = experience(model)
    _, [gradient], _ = gradients(SETTINGS, model, found)
    loss = torch.zeros(())
    for row, one in enumerate(made):
        logits = model(input_ids=torch.tensor([one.tokens]), use_cache=False).logits[0] / SETTINGS.temperature
        for at, (token, acts, turn) in enumerate(zip(one.tokens, one.acts, one.turns, strict=True)):
            if acts:
                later = found.rewards[row, turn:]
                to_go = (later * 0.9 ** torch.arange(len(later))).sum()
                loss = loss - to_go * logits[at - 1].log_softmax(-1)[token] / len(made)
    loss.backward()
    wanted = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert torch.allclose(gradient, wanted, atol=1e-5)


def test_before_any_update_the_clipped_gradient_is_the_plain_one_a_token():
    """At ratio 1 the surrogate's gradient is the policy gradient's; a mean over tokens in place of episodes."""
    model = llama(2)
    found, _ = experience(model)
    _, [plain], _ = gradients(SETTINGS, model, found)
    row, [clipped], _ = gradients(replace(SETTINGS, update="clip", epochs=1, minibatches=1), model, found)
    tokens = int(found.transcripts.acts.sum())
    assert torch.allclose(clipped * tokens / 4, plain, atol=1e-4)
    assert (row["clip_ratio"], row["kl"]) == (0.0, pytest.approx(0.0, abs=1e-9))


@pytest.mark.parametrize(("update", "size"), [("plain", 3), ("clip", 1)])
@pytest.mark.parametrize(("how", "over"), [("advantage", "turns"), ("advantage", "tokens"), ("q", "turns")])
def test_parts_of_a_batch_have_its_gradient(update, size, how, over):
    """Of four episodes, and of minibatches of two."""
    found = {}
    for micro_batch in (size, 99):
        model = llama(3)
        critic = TurnCritic(model)
        torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(1))
        settings = replace(SETTINGS, update=update, credit=how, over=over, micro_batch=micro_batch)
        row, own, critics = gradients(settings, model, experience(model)[0], critic)
        found[micro_batch] = row, torch.stack(own), torch.stack(critics)
    for name, value in found[99][0].items():
        assert found[size][0][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    for one, other in zip(found[size][1:], found[99][1:], strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_a_critic_is_fitted_to_what_credit_was_given_by():
    """Half the squared error over turns, by hand, of a critic that says 0: its targets with lambda 1 are the
    returns.
    """
    model = llama(4)
    found, _ = experience(model)
    row, _, _ = gradients(replace(SETTINGS, credit="advantage", lam=1.0), model, found, TurnCritic(model))
    taken = found.transcripts.taken
    to_go = torch.zeros(found.rewards.shape)
    for k in reversed(range(to_go.shape[1])):
        to_go[:, k] = found.rewards[:, k] + 0.9 * (to_go[:, k + 1] if k + 1 < to_go.shape[1] else 0)
    assert row["loss/value"] == pytest.approx((to_go[taken] ** 2).mean().item() / 2, rel=1e-4)
    assert row["val/explained_variance"] == pytest.approx(0.0, abs=1e-5)


def test_a_reward_that_is_no_number_ends_training_with_its_place():
    model = llama(5)
    found, _ = experience(model)
    found.rewards[1, 2] = torch.nan
    with pytest.raises(TrainingError, match="the reward of turn 3 of episode 1 is nan"):
        gradients(SETTINGS, model, found)
