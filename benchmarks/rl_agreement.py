"""Both sides of benchmarks/rl.py on one batch: losses and gradients must be equal before anything is measured.

The trainers and the comparison are those of tests/oracles, which hold every variant of the losses against TRL; here the
model, lengths and settings are the benchmark's own.
"""

from pathlib import Path
from typing import Any

import torch

from benchmarks.rl_cases import Case, Size
from benchmarks.rl_sides import (
    CLIP_HIGH,
    CLIP_LOW,
    DPO_BETA,
    DPO_OBJECTIVE,
    PAD,
    build_dpo_pairs,
    build_grpo_settings,
    build_random_model,
    compute_even_token_shares,
    draw_prompts,
    draw_responses,
)
from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.language import dpo, grpo
from tasks.algorithms.language.advantages import group_advantages
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.experience import Experience


def check_losses_and_gradients(size: Size, prompt: int, threads: int, folder: Path) -> None:
    """AssertionError where a loss, or the gradient of any weight, differs; always on the processor in fp32."""
    _check_grpo(Case("grpo", prompt, True, size, "cpu", threads, 1), folder)
    _check_dpo(Case("dpo", prompt, True, size, "cpu", threads, 1), folder)


def _make_frozen_optimizer() -> Any:
    """An optimizer that changes neither weights nor gradients."""
    from tests.oracles.frozen import Still

    return Still()


def _check_grpo(case: Case, folder: Path) -> None:
    from tests.oracles import judge
    from tests.oracles.frozen import gradients

    model = replace_linear_layers(build_random_model(case)).eval()
    count = case.size.prompts * case.size.samples
    given = draw_responses(case, count, case.size.shape["vocab_size"] - 1)
    batch = make_completions(draw_prompts(case), [row // case.size.samples for row in range(count)], given, PAD)
    with torch.no_grad():
        old = compute_token_logps(model, batch)
    rewards = torch.tensor(compute_even_token_shares(given))
    experience = Experience(batch, old, rewards, torch.ones(count, dtype=torch.bool))
    settings = build_grpo_settings(case)
    row = next(
        grpo.fit(model, lambda _: experience, _make_frozen_optimizer(), settings, start=0, steps=1, reference=None)
    )
    trainer = judge.grpo(
        build_random_model(case),
        folder,
        loss_type=settings.aggregation,
        beta=0.0,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        max_completion_length=case.size.response,
    )
    advantages = group_advantages(rewards, batch.owner, settings.advantage)
    theirs = trainer(judge.sampled_batch(batch, advantages, old, old, int(batch.mask.sum())))
    judge.same((row["loss"], gradients(model)), theirs)


def _check_dpo(case: Case, folder: Path) -> None:
    from tests.oracles import judge
    from tests.oracles.frozen import gradients

    model = replace_linear_layers(build_random_model(case)).eval()
    pairs, given = build_dpo_pairs(case)
    known = dpo.compute_reference_logps(model, [pairs.responses])
    row = next(dpo.fit(model, [pairs], _make_frozen_optimizer(), reference=known, objective=DPO_OBJECTIVE))
    trainer = judge.dpo(build_random_model(case), build_random_model(case), folder, beta=DPO_BETA)
    theirs = trainer(judge.preference_batch(draw_prompts(case), given[::2], given[1::2]))
    judge.same((row["loss"], gradients(model)), theirs)
