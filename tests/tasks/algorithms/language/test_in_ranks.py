"""Several ranks, as threads, have the gradient and the metrics of one process: shares of unequal lengths, and ranks
with nothing.

Tolerance: a sum of n numbers in fp32 is exact to about n * 2**-24 of its largest partial sum. Here n is some hundred,
so that 1e-5 is enough; a mean of ranks' means, or a sum that lacks a rank, differs in the first digits.
"""

import pytest
import torch

from tasks.algorithms.common import distributed
from tasks.algorithms.language import (
    dpo,
    grpo,
    labelled_reward_model,
    ppo,
    reinforce,
    reward_model,
    reward_model_checks,
    rollouts,
    sft,
)
from tasks.algorithms.language.accumulation import select_rank_responses
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.kl import AdaptiveKl
from tests.tasks.algorithms.language.test_accumulate import (
    ANSWERS,
    DEMONSTRATIONS,
    NOT_BAD,
    OBJECTIVE,
    PAIRS,
    RESPONSES,
    STEPS,
)
from tests.tasks.algorithms.language.test_grpo import AGGREGATIONS, BATCH
from tests.tasks.algorithms.language.test_grpo import asked as grpo_settings
from tests.tasks.algorithms.language.test_ppo import asked as ppo_settings
from tests.tasks.ranks import in_ranks
from tests.tasks.tiny import llama, llama_scorer

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
OLD = -torch.rand(BATCH.mask.shape, generator=torch.Generator().manual_seed(5)) * 3 * BATCH.mask
ENDED = torch.tensor([True, True, False, True, True, True])
EXPERIENCE = Experience(BATCH, OLD, torch.tensor([1.0, 0.0, 0.7, 0.7, 0.0, 2.0]), ENDED)


class Noting:
    """An optimizer that sums the gradient over ranks as every optimizer does, notes it and leaves the weights."""

    learning_rate = 0.0

    def __init__(self, model):
        self.weights, self.gradients = [*model.parameters()], []

    def step(self):
        distributed.sum_gradients(self.weights)
        self.gradients.append(torch.cat([p.grad.flatten() for p in self.weights if p.grad is not None]))
        for p in self.weights:
            p.grad = None
        return self.gradients[-1].norm().item()


def of_sft(models, accumulate=2):
    optimizer = Noting(models[0])
    rows = list(sft.fit(models[0], [DEMONSTRATIONS], optimizer, accumulate))
    held_out = [DEMONSTRATIONS.rows(torch.tensor(some), 12) for some in ([0, 1], [2], [3, 4])]
    return [*rows, sft.measure_held_out_loss_and_accuracy(models[0], held_out)], optimizer.gradients


def of_dpo(models, accumulate=1):
    parts = [RESPONSES.rows(rows) for rows in torch.arange(9).split(4)]
    known = dpo.compute_reference_logps(models[1], parts)
    optimizer = Noting(models[0])
    fit = dpo.fit(models[0], [PAIRS], optimizer, reference=known, objective=OBJECTIVE, accumulate=accumulate)
    return [*fit], [known, *optimizer.gradients]


def of_reward_model(models, accumulate=1):
    optimizer = Noting(models[0])
    models[0].config.reward_beta = 2.0
    fit = reward_model.fit(
        models[0],
        [PAIRS],
        optimizer,
        margins=(0.1, 0.2, 0.5, 0.9),
        centering=0.1,
        likelihood=1.0,
        accumulate=accumulate,
    )
    rows = [
        *fit,
        reward_model_checks.measure_wins_over_corruptions(
            models[0], [PAIRS, PAIRS], 16, torch.Generator().manual_seed(0)
        ),
    ]
    return rows, [reward_model.score_batches(models[0], [RESPONSES, RESPONSES]), *optimizer.gradients]


def of_labels(model, batch, accumulate=1, likelihood=0.0):
    optimizer = Noting(model)
    rows = [*labelled_reward_model.fit(model, [batch], optimizer, accumulate, likelihood)]
    return rows, [labelled_reward_model.predict_label_logits(model, [batch, batch]), *optimizer.gradients]


def of_log_probabilities(model):
    model.config.reward_beta, model.config.reward_threshold = 0.5, 2.0
    return of_labels(model, NOT_BAD, 2, likelihood=0.7)


def of_grpo(models, aggregation="dapo", **changes):
    optimizer, settings = Noting(models[0]), grpo_settings(aggregation=aggregation, micro_batch=4, **changes)
    fit = grpo.fit(models[0], lambda _: EXPERIENCE, optimizer, settings, start=0, steps=2, reference=models[1])
    return [*fit], optimizer.gradients


CORRECTED = {"old_from_sampler": False, "importance_cap": 1.2}  # for a sampler that is not the trainer


def critic_of(model):
    critic = Critic(model)
    torch.nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    return critic


def of_reinforce(models):
    critic = critic_of(models[1])
    optimizers = Noting(models[0]), Noting(critic)
    settings = reinforce.ReinforceSettings(
        baseline="critic", gamma=0.9, kl_coefficient=0.1, mean_rate=0.1, critic_updates=2, variance_every=1, variance_parts=3,  # noqa: E501
        temperature=0.8, importance_cap=1.2, micro_batch=4,
    )  # fmt: skip
    fit = reinforce.fit(
        models[0], critic, lambda _: EXPERIENCE, optimizers, settings, reinforce.RunningMean(0.1), start=0, steps=2
    )
    return [*fit], optimizers[0].gradients + optimizers[1].gradients


def of_ppo(models):
    critic = critic_of(models[1])
    optimizers, settings = (
        (Noting(models[0]), Noting(critic)),
        ppo_settings(whiten=True, clip_value=0.2, micro_batch=2, **CORRECTED),
    )
    fit = ppo.fit(
        models[0], critic, models[2], lambda _: EXPERIENCE, optimizers, settings, AdaptiveKl(0.1, 0.2, 0.1),
        start=0, steps=2,
    )  # fmt: skip
    return [*fit], optimizers[0].gradients + optimizers[1].gradients


class Models(dict):
    """Three language models and the scorers with one output and with three, by number; made when a case asks for them.

    Threads must not make them, since all draw from one generator.
    """

    def make(self, numbers):
        for number in numbers:
            self[number]

    def __missing__(self, number):
        self[number] = llama(number + 1) if number < 3 else llama_scorer(num_labels={3: 1, 4: 3}[number])
        return self[number]


CASES = {
    "sft": of_sft,
    "dpo": of_dpo,
    "dpo in parts": lambda models: of_dpo(models, 3),
    "reward model": of_reward_model,
    "reward model in parts": lambda models: of_reward_model(models, 3),
    "outcome": lambda models: of_labels(models[3], ANSWERS),
    "process in parts": lambda models: of_labels(models[4], STEPS, 2),
    "process by log-probabilities in parts": lambda models: of_log_probabilities(models[0]),
    **{f"grpo {how}": lambda models, how=how: of_grpo(models, how, updates=2, beta=0.1) for how in AGGREGATIONS},
    "grpo without truncated": lambda models: of_grpo(models, "bnpo", mask_truncated=True, **CORRECTED),
    "reinforce": of_reinforce,
    "ppo": of_ppo,
}


def check_same(found, expected):
    for row, wanted in zip(found[0], expected[0], strict=True):
        assert row.keys() == wanted.keys()
        for name in wanted:
            assert row[name] == pytest.approx(wanted[name], rel=1e-4 if "variance" in name else 1e-5, abs=1e-6), name
    for gradient, wanted in zip(found[1], expected[1], strict=True):
        assert (gradient - wanted).norm() < 1e-5 * wanted.norm()


QUICK = {
    ("sft", 7),
    ("dpo", 2),
    ("process in parts", 7),
    ("process by log-probabilities in parts", 2),
    ("grpo dapo", 2),
}


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        (case, ranks) if (case, ranks) in QUICK else pytest.param(case, ranks, marks=pytest.mark.slow)
        for case in CASES
        for ranks in (2, 7)
    ],
)
def test_ranks_have_the_gradient_and_the_metrics_of_one_process(case, ranks):
    models = [Models() for _ in range(ranks + 1)]
    expected = CASES[case](models[-1])
    for numbered in models[:-1]:
        numbered.make(models[-1])
    assert all(gradient.abs().max() > 0.01 for gradient in expected[1])
    for found in in_ranks(ranks, lambda rank: CASES[case](models[rank])):
        check_same(found, expected)


@pytest.mark.parametrize("case", ["sft", pytest.param("grpo dapo", marks=pytest.mark.slow)])
def test_a_mean_over_ranks_would_be_noticed(case, monkeypatch):
    real = distributed.sum_gradients

    def averaged(weights):
        real(weights)
        for p in weights:
            p.grad = None if p.grad is None else p.grad / distributed.get_world_size()

    models = [Models() for _ in range(3)]
    expected = CASES[case](models[-1])
    for numbered in models[:-1]:
        numbered.make(models[-1])
    monkeypatch.setattr(distributed, "sum_gradients", averaged)
    with pytest.raises(AssertionError):
        check_same(in_ranks(2, lambda rank: CASES[case](models[rank]))[0], expected)


PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 3, 1], [2, 2]]


@pytest.mark.parametrize(("ranks", "temperature"), [(2, 0.0), (6, 1.0)])
def test_ranks_sample_the_answers_of_one_process(ranks, temperature):
    """Rows end early and late, and a rank without prompts takes part until the last one has ended."""
    settings = {"samples": 3, "max_new_tokens": 12, "end_tokens": [0, 5, 11], "seed": 0, "batch_size": 8}
    models = [llama() for _ in range(ranks + 1)]
    [expected] = rollouts.sample_rollouts(models[-1], PROMPTS, temperature=temperature, **settings)
    assert expected.ended.any()
    assert len(expected.mask.sum(1).unique()) > 3 or not temperature

    def work(rank):
        [drawn] = rollouts.sample_rollouts(models[rank], PROMPTS, temperature=temperature, shared=True, **settings)
        assert len(drawn.ended) == 3 * len(PROMPTS[distributed.get_local_slice(4)])
        return drawn.gathered()

    for found in in_ranks(ranks, work):
        assert found.responses() == expected.responses()
        assert torch.equal(found.ended, expected.ended)
        torch.testing.assert_close(found.logps, expected.logps, **CLOSE)


def test_a_rank_s_share_is_balanced_in_tokens():
    """Long responses stand together where they are sorted, so they are dealt out; a long prompt's responses stay
    together.
    """
    by_length = make_completions([[1], [2]], [0, 1, 0, 1], [[1] * length for length in (1, 2, 30, 31)], pad=0)
    by_prompt = make_completions([[1] * 50, [2] * 50], [0, 0, 1, 1], [[1], [1], [1], [1]], pad=0)
    rows = torch.arange(4)
    assert [part.tolist() for part in in_ranks(2, lambda _: select_rank_responses(by_length, rows))] == [[0, 2], [1, 3]]
    assert [part.tolist() for part in in_ranks(2, lambda _: select_rank_responses(by_prompt, rows))] == [[0, 1], [2, 3]]
    assert select_rank_responses(by_length, rows) is rows
