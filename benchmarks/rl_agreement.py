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
    build,
    dpo_pairs,
    grpo_settings,
    prompts,
    responses,
    reward,
)
from tasks.algorithms.common.linear import with_fast_products
from tasks.algorithms.language import dpo, grpo
from tasks.algorithms.language.advantages import group_advantages
from tasks.algorithms.language.completions import make_completions, token_logps
from tasks.algorithms.language.experience import Experience


def check(size: Size, prompt: int, threads: int, folder: Path) -> None:
    """AssertionError where a loss, or the gradient of any weight, differs; always on the processor in fp32."""
    _check_grpo(Case("grpo", prompt, True, size, "cpu", threads, 1), folder)
    _check_dpo(Case("dpo", prompt, True, size, "cpu", threads, 1), folder)


def _still() -> Any:
    """An optimizer that changes neither weights nor gradients."""
    from tests.oracles.frozen import Still

    return Still()


def _check_grpo(case: Case, folder: Path) -> None:
    from tests.oracles import judge
    from tests.oracles.frozen import gradients

    model, count = with_fast_products(build(case)).eval(), case.size.prompts * case.size.samples
    given = responses(case, count, case.size.shape["vocab_size"] - 1)
    batch = make_completions(prompts(case), [row // case.size.samples for row in range(count)], given, PAD)
    with torch.no_grad():
        old = token_logps(model, batch)
    rewards = torch.tensor(reward(given))
    experience = Experience(batch, old, rewards, torch.ones(count, dtype=torch.bool))
    settings = grpo_settings(case)
    row = next(grpo.fit(model, lambda _: experience, _still(), settings, start=0, steps=1, reference=None))
    trainer = judge.grpo(
        build(case),
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

    model = with_fast_products(build(case)).eval()
    pairs, given = dpo_pairs(case)
    known = dpo.reference_logps(model, [pairs.responses])
    row = next(dpo.fit(model, [pairs], _still(), reference=known, objective=DPO_OBJECTIVE))
    trainer = judge.dpo(build(case), build(case), folder, beta=DPO_BETA)
    theirs = trainer(judge.preference_batch(prompts(case), given[::2], given[1::2]))
    judge.same((row["loss"], gradients(model)), theirs)
