import pytest
import torch

from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.critic import Critic, explained_variance
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import ARCHITECTURES, gpt2, llama

PROMPTS, OWNER = [[3, 4, 5], [6]], [0, 1, 1]
RESPONSES = [[7, 8, 2], [9, 2], [4]]
BATCH = make_completions(PROMPTS, OWNER, RESPONSES, pad=2)


def critic_of(policy):
    critic = Critic(policy)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.constant_(critic.head.bias, 0.5)
    return critic


def test_it_starts_at_zero():
    assert not Critic(llama())(BATCH).any()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_value_is_read_before_its_token(architecture):
    """Compared with whole sequences one by one; one position later the value would know the token."""
    critic = critic_of(ARCHITECTURES[architecture]())
    with torch.no_grad():
        values = critic(BATCH)
        for row, (owner, response) in enumerate(zip(OWNER, RESPONSES, strict=True)):
            prompt = PROMPTS[owner]
            states = critic.body(input_ids=torch.tensor([prompt + response])).last_hidden_state[0]
            every = critic.head(states).squeeze(1)
            before = every[len(prompt) - 1 : -1]
            torch.testing.assert_close(values[row, : len(response)], before, rtol=1e-4, atol=1e-4)
            assert (values[row, : len(response)] - every[len(prompt) :]).abs().max() > 0.1
            assert not values[row, len(response) :].any(), "nothing on padding, the bias neither"


def test_the_first_value_is_of_the_prompt_alone():
    critic = critic_of(llama())
    other = make_completions(PROMPTS, OWNER, [[1, 8, 2], [5, 2], [3]], pad=2)
    with torch.no_grad():
        assert torch.equal(critic(BATCH)[:, 0], critic(other)[:, 0])
        assert not torch.equal(critic(BATCH)[0, 1], critic(other)[0, 1])


def test_it_shares_no_weight_with_its_policy():
    policy = llama()
    before = [p.clone() for p in policy.parameters()]
    critic = critic_of(policy)
    optimizer = make_optimizer(critic, 0.01, 1, clip=1.0, warmup=0.0)
    critic(BATCH).sum().backward()
    optimizer.step()
    assert all(p.grad is None and torch.equal(p, old) for p, old in zip(policy.parameters(), before, strict=True))
    moved = zip(critic.body.parameters(), policy.base_model.parameters(), strict=True)
    assert any(not torch.equal(mine, theirs) for mine, theirs in moved)


def test_dropout_is_off():
    critic = critic_of(gpt2(resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5).train())
    with torch.no_grad():
        assert torch.equal(critic(BATCH), critic(BATCH))
        assert not torch.equal(critic.train()(BATCH), critic(BATCH)), "dropout would show"


def test_it_learns_values_that_depend_on_the_tokens():
    critic, targets = (
        Critic(llama(num_hidden_layers=1)),
        torch.tensor([[1.0, 2.0, -1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]),
    )
    optimizer = make_optimizer(critic, 0.03, 20, clip=1.0, warmup=0.0)
    for _ in range(20):
        ((critic(BATCH) - targets).square() * BATCH.mask).sum().backward()
        optimizer.step()
    assert explained_variance(critic(BATCH).detach(), targets, BATCH.mask) > 0.95


RETURNS = torch.tensor([[1.0, 3.0], [5.0, 100.0]])
MASK = torch.tensor([[True, True], [True, False]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1.0, 3.0], [5.0, 0.0]], 1.0),  # right, whatever its values for padding
        ([[7.0, 9.0], [11.0, 0.0]], 1.0),  # a constant off costs nothing
        ([[3.0, 3.0], [3.0, 0.0]], 0.0),  # the mean
        ([[0.0, 0.0], [0.0, 0.0]], 0.0),
        ([[1.0, 3.0], [3.0, 0.0]], 1 - (8 / 9) / (8 / 3)),  # errors 0, 0 and 2: variance 8/9 of 8/3
        ([[5.0, 3.0], [1.0, 0.0]], -3.0),  # upside down: errors -4, 0 and 4
    ],
)
def test_explained_variance_by_hand(values, expected):
    assert explained_variance(torch.tensor(values), RETURNS, MASK) == pytest.approx(expected, abs=1e-6)


def test_returns_that_are_all_the_same_leave_nothing_to_explain():
    same = torch.full((2, 2), 0.7)
    assert explained_variance(torch.rand(2, 2), same, MASK) == 0.0
    assert explained_variance(torch.rand(2, 2), RETURNS, torch.tensor([[True, False], [False, False]])) == 0.0
