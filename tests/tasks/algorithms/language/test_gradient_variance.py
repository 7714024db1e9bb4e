import pytest
import torch

from tasks.algorithms.language import reinforce
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.policy_gradient import estimate_gradient_variance
from tasks.algorithms.language.reinforce import ReinforceSettings, RunningMean
from tests.tasks.bandits import PROMPTS, Still, Table, collector, graded
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import llama

BASELINES = ["none", "running_mean", "critic"]


def asked(parts, every):
    return ReinforceSettings(
        baseline="none",
        gamma=1.0,
        kl_coefficient=0.0,
        mean_rate=0.1,
        critic_updates=1,
        variance_every=every,
        variance_parts=parts,
        temperature=1.0,
        importance_cap=None,
        micro_batch=64,
    )


def brute_force(policy, batch, advantages, parts):
    """Each part's gradient as one vector, their covariance matrix, its trace, over the number of parts."""
    gradients = []
    for rows in parts:
        policy.zero_grad()
        logps = compute_token_logps(policy, batch)[rows]
        (-(advantages[rows] * logps).sum() / len(rows)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in policy.parameters()]).double())
    policy.zero_grad()
    stacked = torch.stack(gradients)
    return (stacked - stacked.mean(0)).square().sum(1).sum().item() / (len(parts) - 1) / len(parts)


# Five prompts of which one has three responses and one has a single one.
MANY = make_completions(
    [[3], [4, 5], [6], [7], [8, 9]],
    [0, 0, 1, 1, 1, 2, 3, 3, 4, 4],
    [[1], [2, 2], [5, 6, 7], [2], [8, 2], [9, 9, 2], [4, 2], [3], [1, 1, 2], [6, 2]],
    pad=2,
)


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (5, [[0, 1], [2, 3, 4], [5], [6, 7], [8, 9]]),
        (2, [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]),
        (9, [[0, 1], [2, 3, 4], [5], [6, 7], [8, 9]]),  # no more parts than prompts
    ],
)
def test_the_variance_of_the_gradient_by_brute_force(count, parts):
    policy, generator = llama(1), torch.Generator().manual_seed(0)
    advantages = {name: torch.randn(10, 3, generator=generator) for name in ("one", "other")}
    found = estimate_gradient_variance(policy, MANY, advantages, count, 1.0)
    assert all(p.grad is None for p in policy.parameters()), "the update's gradient is left alone"
    for name, values in advantages.items():
        expected = brute_force(policy, MANY, values * MANY.mask, parts)
        assert found[name] == pytest.approx(expected, rel=1e-3)
    assert found["one"] != pytest.approx(found["other"], rel=0.05)


def test_parts_that_agree_have_no_variance():
    policy = llama(1)
    twice = make_completions([[3], [3]], [0, 1], [[1, 2], [1, 2]], pad=2)
    found = estimate_gradient_variance(policy, twice, {"none": torch.ones(2, 2)}, 2, 1.0)
    size = sum(
        g.square().sum() for g in torch.autograd.grad(compute_token_logps(policy, twice).sum(), policy.parameters())
    )
    assert found["none"] == pytest.approx(0, abs=1e-5 * size.item())


def fit(policy, critic, collect, optimizers, settings, start, steps):
    return reinforce.fit(policy, critic, collect, optimizers, settings, RunningMean(0.1), start=start, steps=steps)


def test_the_estimate_is_the_variance_of_the_batch_s_gradient():
    """The mean over 25 batches, compared with the spread of the gradients of 100."""
    policy, found, gradients = Table(1, spread=0.5), [], []
    collect = collector(policy, graded, prompts=PROMPTS[:1] * 8, samples=2)
    for step in range(100):
        policy.zero_grad()
        settings = asked(8, every=1 if step < 25 else 0)
        row = next(fit(policy, None, collect, (Still(), None), settings, step, step + 1))
        found += [row["grad_variance/none"]] if settings.variance_every else []
        gradients.append(policy.head.weight.grad.flatten().double())
    spread = torch.stack(gradients).var(dim=0).sum().item()
    assert sum(found) / len(found) == pytest.approx(spread, rel=0.2)


class Cleared(Still):
    """An optimizer that does not change the weights of a model."""

    def __init__(self, model):
        self.model = model

    def step(self):
        self.model.zero_grad()
        return 0.0


def paid_on_the_way(policy):
    """Two tokens, each with a reward of its own; the first one's reward varies much, and the second did not cause
    it.
    """

    def collect(step):
        drawn = collector(policy, graded, prompts=PROMPTS[:1] * 32, samples=2, length=2)(step)
        batch = drawn.completions
        way = (
            torch.where(batch.tokens % 2 == 0, 4.0, -4.0) * torch.tensor([1.0, 0.1])[: batch.mask.shape[1]] * batch.mask
        )
        return Experience(batch, drawn.logps, way.sum(1), drawn.ended, paid=way)

    return collect


def test_reward_to_go_lowers_the_variance_where_rewards_are_paid_on_the_way():
    """By a third and more here; if everything is paid at the end, the variances are equal."""
    policy = Table(1, spread=0.5)
    [row] = fit(policy, None, paid_on_the_way(policy), (Cleared(policy), None), asked(32, every=1), 0, 1)
    assert row["grad_variance/none"] < 0.67 * row["grad_variance/total_return"]
    at_end = collector(policy, graded, prompts=PROMPTS[:1] * 32, samples=2, length=2)
    [row] = fit(policy, None, at_end, (Cleared(policy), None), asked(32, every=1), 0, 1)
    assert row["grad_variance/none"] == row["grad_variance/total_return"]


def test_a_baseline_lowers_the_variance_and_a_critic_lowers_it_most():
    """On prompts that earn about 0.5, 2.5 and 5.5, with a trained critic; the running mean is 2.8 for all."""
    policy = Table(1, spread=0.5)
    critic = Critic(policy)
    collect = collector(policy, graded, prompts=PROMPTS * 8, samples=2)
    optimizers = Cleared(policy), make_optimizer(critic, 0.3, 30, clip=10.0)
    rows = list(fit(policy, critic, collect, optimizers, asked(12, every=30), 0, 30))
    none, mean, fitted = (rows[-1][f"grad_variance/{name}"] for name in BASELINES)
    assert none > 1.5 * mean > 1.5 * 5 * fitted
    assert rows[-1]["val/explained_variance"] > 0.9
    first = {name: rows[0][f"grad_variance/{name}"] for name in BASELINES}
    assert first["none"] == first["running_mean"] == first["critic"], "at first neither knows anything"
