"""Bandits over tokens whose optimum is known, and a policy that is a table: a row of logits after each token."""

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace

import torch

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.completions import compute_response_logps, make_completions
from tasks.algorithms.language.experience import Experience
from tests.tasks.tiny import NoCache

VOCABULARY = 7  # answers 0, 1 and 2; the end; the prompts 4, 5 and 6
END = PAD = 3  # padding is the end token, so that code that finds padding by its id fails
PROMPTS = [[4], [5], [6]]
RIGHT = {4: 1, 5: 2, 6: 0}


def one_token(prompt, response):
    """1 for the right answer, of one token."""
    return float(response == [RIGHT[prompt[0]]])


def with_end(prompt, response):
    """1 for the right answer with the end token after it."""
    return float(response == [RIGHT[prompt[0]], END])


def graded(prompt, response):
    """A reward for every answer of one token; the prompts' means are far apart."""
    return GRADES[prompt[0] - 4][response[0]]


GRADES = (
    torch.rand(3, VOCABULARY, generator=torch.Generator().manual_seed(3)) + torch.tensor([[0], [2], [5]])
).tolist()


class LastToken(torch.nn.Module):
    """A body that sees only the last token, as a one-hot vector; it has no weights to learn."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding.from_pretrained(torch.eye(VOCABULARY))

    def forward(self, input_ids, **_):
        return SimpleNamespace(last_hidden_state=self.embedding(input_ids), past_key_values=NoCache())


class Table(torch.nn.Module):
    """A policy whose weights are the logits themselves: of token i after token j at (i, j).

    Uniform without `spread`.
    """

    def __init__(self, seed=0, spread=0.0):
        super().__init__()
        self.base_model = LastToken()
        self.head = torch.nn.Linear(VOCABULARY, VOCABULARY, bias=False)
        generator = torch.Generator().manual_seed(seed)
        torch.nn.init.normal_(self.head.weight, std=spread, generator=generator)
        self.config = SimpleNamespace(hidden_size=VOCABULARY)

    def forward(self, input_ids, **_):
        states = self.base_model(input_ids).last_hidden_state
        return SimpleNamespace(logits=self.head(states), past_key_values=NoCache())

    def get_output_embeddings(self):
        return self.head


def collector(policy, reward: Callable, *, prompts=PROMPTS, samples=16, length=1, temperature=1.0, top_p=1.0):
    """`Collect`: sampled and judged responses of up to `length` tokens."""

    def collect(step):
        [drawn] = rollouts.sample_rollouts(
            policy,
            prompts,
            samples=samples,
            max_new_tokens=length,
            temperature=temperature,
            top_p=top_p,
            end_tokens=[END],
            seed=step,
            batch_size=len(prompts),
        )
        asked = [prompt for prompt in prompts for _ in range(samples)]
        earned = [reward(prompt, response) for prompt, response in zip(asked, drawn.responses(), strict=True)]
        return Experience(drawn.completions(prompts, PAD), drawn.logps, torch.tensor(earned), drawn.ended)

    return collect


def all_responses(length):
    """Every response that can be sampled: at most `length` tokens, none after an end token."""
    return [
        list(tokens)
        for size in range(1, length + 1)
        for tokens in product(range(VOCABULARY), repeat=size)
        if END not in tokens[:-1] and (size == length or tokens[-1] == END)
    ]


def probabilities(policy, length=1):
    """The exact probability of each of `all_responses` to each prompt: (B, responses)."""
    responses = all_responses(length)
    owner = [place for place in range(len(PROMPTS)) for _ in responses]
    batch = make_completions(PROMPTS, owner, responses * len(PROMPTS), PAD)
    return compute_response_logps(policy, batch).exp().view(len(PROMPTS), -1)


def rewards(reward, length=1):
    """The reward of each of `all_responses` to each prompt: (B, responses)."""
    return torch.tensor([[reward(prompt, response) for response in all_responses(length)] for prompt in PROMPTS])


def expected_reward(policy, reward, length=1):
    """The policy's exact expected reward, averaged over all prompts; a tensor with a gradient."""
    return (probabilities(policy, length) * rewards(reward, length)).sum(1).mean()


class Still:
    """An optimizer that changes neither weights nor gradients."""

    learning_rate = 0.0

    def step(self):
        return 0.0


def check_resumes(make):
    """Six steps at once give the same rows and weights, bit for bit, as three steps and three more after a restart.

    `make` returns, freshly made, all that a step changes, and `fit`. Where the state of any part is not carried over,
    rows or weights differ.
    """
    state, fit = make()
    whole = list(fit(start=0, steps=6))
    first, fit = make()
    rows = list(fit(start=0, steps=3))
    kept = {name: {key: value.clone() for key, value in part.state_dict().items()} for name, part in first.items()}
    for forgotten in (None, *kept):
        second, fit = make()
        for name, part in second.items():
            if name != forgotten:
                part.load_state_dict({key: value.clone() for key, value in kept[name].items()})
        both = rows + list(fit(start=3, steps=6))
        weights = zip(state["policy"].parameters(), second["policy"].parameters(), strict=True)
        same = both == whole and all(torch.equal(one, other) for one, other in weights)
        assert same == (forgotten is None), forgotten
