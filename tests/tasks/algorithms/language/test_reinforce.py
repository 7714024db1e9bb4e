import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language import reinforce
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.reinforce import ReinforceSettings, RunningMean, policy_gradient_loss
from tests.tasks.bandits import (
    PAD,
    PROMPTS,
    Still,
    Table,
    all_responses,
    collector,
    expected_reward,
    graded,
    probabilities,
    rewards,
)
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import gpt2, llama

BASELINES = ["none", "running_mean", "critic"]


def asked(**changes):
    plain = {
        "baseline": "none",
        "gamma": 1.0,
        "kl_coefficient": 0.0,
        "mean_rate": 0.1,
        "critic_updates": 1,
        "variance_every": 0,
        "variance_parts": 3,
    }
    return ReinforceSettings(**{**plain, "temperature": 1.0, "importance_cap": None, "micro_batch": 64, **changes})


def mean_of(*rewards, rate=0.25):
    mean = RunningMean(rate)
    for reward in rewards:
        mean.update(reward)
    return mean


def fit(policy, collect, *, critic=None, optimizers=None, mean=None, start=0, steps=1, **changes):
    given = {name: changes.pop(name, None) for name in ("reference", "look")}
    optimizers = optimizers or (Still(), Still() if critic else None)
    mean = mean or RunningMean(0.25)
    return reinforce.fit(policy, critic, collect, optimizers, asked(**changes), mean, start=start, steps=steps, **given)


LOGPS = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -0.5, -9.0]])
ADVANTAGES = torch.tensor([[2.0, -1.0, 0.5], [1.0, 3.0, 77.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_the_loss_by_hand():
    """The sum over tokens, over all responses of the batch: 4 here, of which two are in this part."""
    expected = -((-2 + 2 - 0.25) + (-3 - 1.5)) / 4
    assert policy_gradient_loss(LOGPS, ADVANTAGES, MASK, 4).item() == pytest.approx(expected)
    wrong = [
        -policy_gradient_loss(LOGPS, ADVANTAGES, MASK, 4),
        policy_gradient_loss(LOGPS, ADVANTAGES, torch.ones_like(MASK), 4),  # padding in the sum
        policy_gradient_loss(LOGPS, ADVANTAGES, MASK, 2),  # the part's size for the batch's
        policy_gradient_loss(LOGPS, ADVANTAGES, MASK, 5),  # a mean over tokens
        policy_gradient_loss(LOGPS, ADVANTAGES[:, :1], MASK, 4),  # the first advantage for all tokens
        -(LOGPS * MASK).sum(1).exp().mean() * ADVANTAGES.mean(),
    ]
    assert all(abs(mistake.item() - expected) > 0.1 for mistake in wrong)


def test_its_gradient_is_the_advantage():
    logps = LOGPS.clone().requires_grad_()
    policy_gradient_loss(logps, ADVANTAGES, MASK, 4).backward()
    torch.testing.assert_close(logps.grad, -ADVANTAGES * MASK / 4)


def test_the_running_mean_by_hand():
    mean = RunningMean(0.25)
    assert mean.value == 0.0
    mean.update(4.0)
    assert mean.value == 4.0, "it starts from the first batch and not from 0"
    mean.update(8.0)
    assert mean.value == 5.0
    other = RunningMean(0.25)
    other.load_state_dict(mean.state_dict())
    for each in (mean, other):
        each.update(1.0)
    assert mean.value == other.value == 4.0
    started = mean_of(0.0)
    started.update(1.0)
    assert started.value == 0.25, "a first mean of 0 is a mean too"


# Responses of two prompts, the lengths 3, 1, 2 and 2; padding is the end token.
BATCH = make_completions([[4], [5, 1]], [0, 0, 1, 1], [[1, 2, 3], [3], [2, 2], [0, 3]], pad=3)


def sampled(policy, earned=(1.0, -0.5, 2.0, 0.25), temperature=1.0):
    with torch.no_grad():
        logps = compute_token_logps(policy, BATCH, temperature)
    return Experience(BATCH, logps, torch.tensor(earned), torch.tensor([True, True, False, True]))


def critic_of(policy):
    """A critic with random values."""
    critic = Critic(policy)
    torch.nn.init.normal_(critic.head.weight, std=0.5, generator=torch.Generator().manual_seed(4))
    torch.nn.init.constant_(critic.head.bias, 0.5)
    return critic


@pytest.mark.parametrize("updates", [1, 3])
def test_the_critic_takes_so_many_steps_towards_a_batch(updates):
    torch.manual_seed(0)
    policy = llama()
    critic, own = (critic_of(policy) for _ in range(2))
    optimizer, by_hand = (make_optimizer(model, 0.01, 10, clip=1.0) for model in (critic, own))
    drawn = sampled(policy)
    optimizers = (Still(), optimizer)
    [row] = fit(
        policy, lambda _: drawn, critic=critic, optimizers=optimizers, baseline="critic", critic_updates=updates
    )
    losses = []
    for _ in range(updates):
        errors = (own(BATCH) - drawn.rewards.unsqueeze(1)) * BATCH.mask
        losses.append(errors.square().sum() / BATCH.mask.sum() / 2)
        losses[-1].backward()
        by_hand.step()
    assert row["loss/value"] == pytest.approx(losses[0].item(), rel=1e-5)
    for mine, expected in zip(critic.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_step_by_hand(baseline):
    """Loss and gradients compared with sums over single tokens; the reward is discounted backwards from the last real
    token.

    Responses are sampled at temperature 0.7, where log-probabilities have other gradients.
    """
    policy, critic = llama(1), critic_of(llama(2))
    what, mean = sampled(policy, temperature=0.7), mean_of(0.75)
    changes = {"baseline": baseline, "gamma": 0.5, "temperature": 0.7}
    row = next(fit(policy, lambda _: what, critic=critic, mean=mean, **changes))
    found = [[p.grad.clone() for p in model.parameters()] for model in (policy, critic)]
    policy.zero_grad(), critic.zero_grad()
    logps, values = compute_token_logps(policy, BATCH, 0.7), critic(BATCH)
    loss, value_loss = torch.zeros(()), torch.zeros(())
    for n, length in enumerate([3, 1, 2, 2]):
        for t in range(length):
            to_go = 0.5 ** (length - 1 - t) * what.rewards[n]
            known = {"none": 0.0, "running_mean": 0.75, "critic": values[n, t].item()}[baseline]
            loss = loss - (to_go - known) * logps[n, t] / 4
            value_loss = value_loss + (values[n, t] - to_go) ** 2 / 2 / 8
    loss.backward(), value_loss.backward()
    for gradients, model in zip(found, (policy, critic), strict=True):
        for gradient, p in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-3, atol=1e-5)
    assert row["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert row["loss/value"] == pytest.approx(value_loss.item(), rel=1e-4)
    assert row["baseline"] == 0.75


def enumerated(policy, length, reward, paid=None, prompts=PROMPTS, **changes):
    """E[gradient estimate] with one response in a batch: the sum over all responses of pi(response) times its estimate.

    `paid` gives the reward token by token. The `prompts` are the first of PROMPTS.
    """
    total = torch.zeros_like(policy.head.weight)
    with torch.no_grad():
        chances = probabilities(policy, length)[: len(prompts)] / len(prompts)
    for prompt, row in zip(prompts, chances.tolist(), strict=True):
        for response, chance in zip(all_responses(length), row, strict=True):
            batch = make_completions([prompt], [0], [response], PAD)
            with torch.no_grad():
                logps = compute_token_logps(policy, batch)
            earned = torch.tensor([reward(prompt, response)])
            way = None if paid is None else torch.tensor([paid(prompt, response)])
            one = Experience(batch, logps, earned, torch.tensor([True]), paid=way)
            policy.zero_grad()
            next(fit(policy, lambda _, one=one: one, **{name: value() for name, value in changes.items()}))
            total += chance * policy.head.weight.grad
    policy.zero_grad()
    return total


def exact_gradient(policy, reward, length, prompts=PROMPTS):
    """The gradient of the expected reward over the first of PROMPTS, by autograd."""
    earned = probabilities(policy, length) * rewards(reward, length)
    earned[: len(prompts)].sum(1).mean().backward()
    return policy.head.weight.grad.clone()


FIRST = PROMPTS[:1]  # enough where each has 43 responses


def two_tokens(prompt, response):
    """A reward that depends on every token and on the length."""
    return 0.3 * sum((3 * prompt[0] + 5 * token) % 7 for token in response) - len(response)


@pytest.mark.parametrize(
    ("baseline", "reward", "length", "prompts"),
    [
        *((baseline, graded, 1, PROMPTS) for baseline in BASELINES),
        *((baseline, two_tokens, 2, FIRST) for baseline in ("running_mean", "critic")),
    ],
)
def test_no_baseline_biases_the_gradient(baseline, reward, length, prompts):
    """The exact expectation of the estimate is minus the gradient of the expected reward, which autograd knows."""
    policy = Table(1, spread=1.0)
    exact = exact_gradient(policy, reward, length, prompts)
    found = enumerated(
        policy,
        length,
        reward,
        prompts=prompts,
        baseline=lambda: baseline,
        mean=lambda: mean_of(3.0),
        critic=lambda: critic_of(policy),
    )
    torch.testing.assert_close(-found, exact, rtol=1e-4, atol=1e-5)
    assert exact.abs().max() > 0.02


def token_by_token(prompt, response):
    """The reward of `two_tokens`, split over the tokens that earn it."""
    return [0.3 * ((3 * prompt[0] + 5 * token) % 7) - 1 for token in response]


@pytest.mark.parametrize("baseline", ["none", "critic"])
def test_rewards_on_the_way_leave_the_expected_gradient_as_it_is(baseline):
    """Rewards that a token did not cause are left out of its gradient, which changes nothing in expectation."""
    policy = Table(1, spread=1.0)
    exact = exact_gradient(policy, two_tokens, 2, FIRST)
    way = {"baseline": lambda: baseline, "critic": lambda: critic_of(policy), "mean": lambda: mean_of(3.0)}
    found = enumerated(policy, 2, two_tokens, token_by_token, FIRST, **way)
    torch.testing.assert_close(-found, exact, rtol=1e-4, atol=1e-5)
    if baseline == "none":
        wrong = enumerated(policy, 2, two_tokens, lambda *asked: token_by_token(*asked)[::-1], FIRST, **way)
        assert (-wrong - exact).abs().max() > 0.01, "paid at the wrong tokens it is another gradient"


def test_a_step_by_hand_with_rewards_on_the_way():
    """The first response is paid 2 at its first token and -1 at its last, the third 0.5 and 1.5; each sum is the
    reward.
    """
    policy = llama(1)
    way = torch.tensor([[2.0, 0.0, -1.0], [-0.5, 0.0, 0.0], [0.5, 1.5, 0.0], [0.25, 0.0, 0.0]])
    what = sampled(policy)
    what = Experience(BATCH, what.logps, what.rewards, what.ended, paid=way)
    [row] = fit(policy, lambda _: what, variance_every=1)
    logps = compute_token_logps(policy, BATCH).detach()
    credit = torch.tensor([[1.0, -1.0, -1.0], [-0.5, 0.0, 0.0], [2.0, 1.5, 0.0], [0.25, 0.0, 0.0]])
    assert row["loss"] == pytest.approx(-(credit * logps).sum().item() / 4, rel=1e-5)
    assert row["return_to_go"] == pytest.approx(credit.sum().item() / 8)
    assert row["reward"] == pytest.approx(what.rewards.mean().item())
    total = -(what.rewards.unsqueeze(1) * logps * BATCH.mask).sum().item() / 4
    assert abs(total - row["loss"]) > 0.1, "the total in place of what is to come would be another loss"


class TooEarly(RunningMean):
    """A mean that already includes the batch from which it is subtracted."""

    def __init__(self, reward):
        super().__init__(0.25)
        self.update(3.0)
        self.update(reward)


def test_a_mean_updated_before_it_is_used_would_bias_it():
    """With one response in a batch it removes a quarter of the gradient."""
    policy = Table(1, spread=1.0)
    expected_reward(policy, graded).backward()
    exact = policy.head.weight.grad.clone()
    total = torch.zeros_like(exact)
    chances = (probabilities(policy).detach() / 3).tolist()
    for prompt, row in zip(PROMPTS, chances, strict=True):
        for response, chance in zip(all_responses(1), row, strict=True):
            earned = graded(prompt, response)
            policy.zero_grad()
            logps = compute_token_logps(policy, batch := make_completions([prompt], [0], [response], PAD))
            one = Experience(batch, logps.detach(), torch.tensor([earned]), torch.tensor([True]))
            next(fit(policy, lambda _, one=one: one, mean=TooEarly(earned), baseline="running_mean"))
            total += chance * policy.head.weight.grad
    torch.testing.assert_close(-total, 0.75 * exact, rtol=1e-4, atol=1e-5)


def test_the_running_mean_is_of_the_steps_before():
    earned = iter([1.0, 5.0, 2.0])
    policy = Table()

    def collect(step):
        reward = next(earned)
        return collector(policy, lambda *_: reward)(step)

    rows = list(fit(policy, collect, steps=3, baseline="running_mean"))
    assert [row["baseline"] for row in rows] == [0.0, 1.0, 2.0]
    assert [row["reward"] for row in rows] == [1.0, 5.0, 2.0]


class Noting(Still):
    """Changes no weights, and keeps the gradients. (Adam divides a gradient by its size, which enlarges rounding
    errors.)
    """

    def __init__(self, model):
        self.model, self.seen = model, []

    def step(self):
        self.seen.append(torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None]))
        self.model.zero_grad()
        return super().step()


@pytest.mark.parametrize("baseline", BASELINES)
def test_micro_batches_change_nothing_in_the_gradients(baseline):
    found = []
    for size in (64, 3):
        policy, critic = llama(1), critic_of(llama(2))
        noting, what = (Noting(policy), Noting(critic)), sampled(policy)
        list(
            fit(
                policy, lambda _, what=what: what, critic=critic, optimizers=noting, baseline=baseline, micro_batch=size
            )
        )
        found.append(torch.cat([gradient for part in noting for gradient in part.seen]))
    assert found[0].abs().max() > 0.01
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_dropout_is_off():
    """In the policy and in the critic, whatever their mode was before: a step that changes nothing repeats exactly."""
    dropped = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}
    policy, critic = gpt2(1, **dropped).train(), critic_of(gpt2(2, **dropped)).train()
    what = sampled(gpt2(1))
    first, second = fit(policy, lambda _: what, critic=critic, steps=2, baseline="critic")
    assert first["loss"] == second["loss"]
    assert first["loss/value"] == second["loss/value"]


def test_rewards_and_losses_that_are_no_numbers_stop_the_training():
    policy = llama(1)
    steps = iter([sampled(policy), sampled(policy, (1.0, 2.0, float("inf"), 0.0))])
    running = fit(policy, lambda _: next(steps), steps=2)
    next(running)
    with pytest.raises(TrainingError, match="the reward of response 2 is inf"):
        next(running)
    with pytest.raises(TrainingError, match=r"the loss is -?inf"):
        next(fit(policy, lambda _: sampled(policy, (3e38, 3e38, 3e38, 0.0)), start=3, steps=4))
    good, optimizers = sampled(policy), (make_optimizer(policy, 0.001, 9, clip=1.0), None)
    policy.lm_head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(TrainingError, match=r"the gradient's norm is (inf|nan)"):
        next(fit(policy, lambda _: good, optimizers=optimizers))


def test_a_sampler_that_is_not_the_trainer_shows_before_the_update():
    """Samples at temperature 2 that are taken for samples at temperature 1."""
    policy, seen, name = llama(1), [], "sampling/logp_difference"
    hot = sampled(policy, temperature=2.0)
    assert next(fit(policy, lambda _: sampled(policy)))[name] == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        wanted = (compute_token_logps(policy, BATCH) - hot.logps)[BATCH.mask].abs().mean().item()
    row = next(fit(policy, lambda _: hot, look=lambda *of: seen.append(of)))
    assert row[name] == pytest.approx(wanted, rel=1e-4) != 0
    assert (*seen[0][:2], seen[0][2][:, 0].tolist()) == (1, hot, [1.0, -0.5, 2.0, 0.25])  # the running mean is still 0
