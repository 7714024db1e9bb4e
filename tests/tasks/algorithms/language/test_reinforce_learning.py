"""REINFORCE on tiny problems: it learns, and after a stop it resumes and ends with the same bits."""

import pytest

from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.reinforce import RunningMean
from tests.tasks.algorithms.language.test_reinforce import BASELINES, fit
from tests.tasks.bandits import Table, check_resumes, collector, expected_reward, graded, one_token, with_end
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import llama


def learn(policy, reward, *, steps, learning_rate, baseline, samples=16, length=1):
    critic = Critic(policy) if baseline == "critic" else None
    optimizers = (
        make_optimizer(policy, learning_rate, steps, clip=1.0, warmup=0.0),
        make_optimizer(critic, 0.1, steps, clip=1.0, warmup=0.0) if critic else None,
    )
    collect = collector(policy, reward, samples=samples, length=length)
    return list(fit(policy, collect, critic=critic, optimizers=optimizers, steps=steps, baseline=baseline))


@pytest.mark.parametrize("baseline", BASELINES)
def test_it_learns_answers_and_to_end(baseline):
    """From the uniform policy, which earns 1 in 49, to nearly the maximum."""
    policy = Table()
    assert expected_reward(policy, with_end, 2).item() == pytest.approx(1 / 49)
    rows = learn(policy, with_end, steps=24, learning_rate=0.5, samples=32, length=2, baseline=baseline)
    assert expected_reward(policy, with_end, 2).item() > 0.95
    assert rows[-1]["reward"] > 0.9 > 0.3 > rows[0]["reward"]
    assert ("val/explained_variance" in rows[0]) == (baseline == "critic")


def test_a_transformer_learns_it_too():
    """With the critic, whose body is a transformer too."""
    policy = llama(1, initializer_range=0.1, vocab_size=7, num_hidden_layers=1)
    start = expected_reward(policy, one_token).item()
    learn(policy, one_token, steps=12, learning_rate=0.03, baseline="critic")
    assert expected_reward(policy, one_token).item() > 0.9 > 0.4 > start


def test_it_resumes():
    """With a measurement of the variance before the interruption and one after it."""

    def make():
        policy = Table()
        critic, mean = Critic(policy), RunningMean(0.5)
        optimizers = tuple(make_optimizer(model, 0.1, 24, clip=1.0) for model in (policy, critic))
        collect = collector(policy, graded)

        def again(start, steps):
            return fit(
                policy, collect, critic=critic, optimizers=optimizers, mean=mean, start=start, steps=steps,
                baseline="critic", variance_every=5,
            )  # fmt: skip

        parts = (policy, critic, *optimizers, mean)
        return dict(zip(("policy", "critic", "optimizer", "critic_optimizer", "mean"), parts, strict=True)), again

    check_resumes(make)
