"""GRPO on a frozen batch against TRL's GRPOTrainer: four aggregations, clipping at work, KL, one micro-batch and
several.
"""

from dataclasses import replace

import pytest
import torch

from tasks.algorithms.language import grpo
from tasks.algorithms.language.advantages import group_advantages
from tasks.algorithms.language.completions import compute_token_logps
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.grpo import GrpoSettings, grpo_loss
from tasks.algorithms.language.policy_gradient import Totals
from tests.oracles.frozen import COMPLETIONS, OWNER, PROMPTS, RESPONSES, Still, gradients
from tests.tasks.tiny import llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # TRL needs it
]
AGGREGATIONS = ["grpo", "bnpo", "dr_grpo", "dapo"]
LOW, HIGH, MAX_LENGTH, TOKENS = 0.2, 0.28, 8, int(COMPLETIONS.mask.sum())
ADVANTAGES = torch.tensor([1.0, -1.0, 0.5, -0.5, -0.8, 0.8])
REWARDS = torch.tensor([1.0, 3.0, 0.5, 0.5, 2.0, -1.0])  # the second group has no spread
TOTALS = Totals(len(COMPLETIONS), TOKENS, MAX_LENGTH)


@pytest.fixture(scope="module")
def logps():
    """Old and reference log-probabilities; the old ones differ so much that many ratios leave the clip range."""
    with torch.no_grad():
        noise = torch.randn(COMPLETIONS.mask.shape, generator=torch.Generator().manual_seed(0))
        old = (compute_token_logps(llama(1), COMPLETIONS) + 0.4 * noise) * COMPLETIONS.mask
        return old, compute_token_logps(llama(2), COMPLETIONS)


def ours(logps, aggregation, beta, parts):
    """Loss, gradient and the logged sums, over micro-batches of these rows."""
    model, (old, reference) = llama(1), logps
    total, logged = 0.0, {}
    for rows in parts:
        here = COMPLETIONS.rows(rows)
        width = here.mask.shape[1]
        loss, sums = grpo_loss(
            compute_token_logps(model, here),
            old[rows, :width],
            ADVANTAGES[rows].unsqueeze(1),
            here.mask,
            clip_low=LOW,
            clip_high=HIGH,
            aggregation=aggregation,
            totals=TOTALS,
            reference_logps=reference[rows, :width] if beta else None,
            beta=beta,
        )
        loss.backward()
        total += loss.item()
        logged = {name: logged.get(name, 0.0) + value.item() for name, value in sums.items()}
    return total, gradients(model), logged


def theirs(judge, folder, logps, aggregation, beta, parts):
    """The trainer, and its loss and gradient over the same micro-batches."""
    trainer = judge.grpo(
        llama(1),
        folder,
        micro_batches=len(parts),
        loss_type=aggregation,
        beta=beta,
        epsilon=LOW,
        epsilon_high=HIGH,
        max_completion_length=MAX_LENGTH,
    )
    old, reference = logps
    batches = []
    for rows in parts:
        here = COMPLETIONS.rows(rows)
        width = here.mask.shape[1]
        batches.append(judge.sampled_batch(here, ADVANTAGES[rows], old[rows, :width], reference[rows, :width], TOKENS))
    return trainer, trainer(*batches)


WHOLE = [torch.arange(6)]
# TRL's micro-batches are of equal size; a group may lie in two of them.
CUT = [torch.tensor([0, 3]), torch.tensor([1, 5]), torch.tensor([2, 4])]


@pytest.mark.parametrize("parts", [WHOLE, CUT], ids=["whole", "three micro-batches"])
@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_loss_and_gradient(judge, tmp_path, logps, aggregation, beta, parts):
    trainer, expected = theirs(judge, tmp_path, logps, aggregation, beta, parts)
    loss, gradient, sums = ours(logps, aggregation, beta, parts)
    judge.same((loss, gradient), expected)
    if parts is WHOLE:
        logged = trainer.logged()
        assert logged["clip_ratio/region_mean"] > 0.1, "clipping acts"
        assert sums["clip_ratio"] / TOKENS == pytest.approx(logged["clip_ratio/region_mean"], rel=1e-5)
        assert not beta or sums["kl"] / TOKENS == pytest.approx(logged["kl"], rel=1e-4)


@pytest.mark.parametrize("change", [{"clip_low": 0.28}, {"clip_high": 0.2}, {"old": True}, {"max_length": 5}])
def test_a_wrong_setting_would_be_noticed(judge, tmp_path, logps, change, monkeypatch):
    """On the frozen batch a fault in either side of the clip, in the old policy or in dr_grpo's constant shows."""
    _, expected = theirs(judge, tmp_path, logps, "dr_grpo", 0.0, WHOLE)
    with torch.no_grad():
        old = compute_token_logps(llama(1), COMPLETIONS) if change.get("old") else logps[0]
    totals = Totals(TOTALS.sequences, TOTALS.tokens, change.get("max_length", MAX_LENGTH))
    model = llama(1)
    loss, _ = grpo_loss(
        compute_token_logps(model, COMPLETIONS),
        old,
        ADVANTAGES.unsqueeze(1),
        COMPLETIONS.mask,
        clip_low=change.get("clip_low", LOW),
        clip_high=change.get("clip_high", HIGH),
        aggregation="dr_grpo",
        totals=totals,
    )
    loss.backward()
    with pytest.raises(AssertionError):
        judge.same((loss.item(), gradients(model)), expected)


def far(one, other):
    """The largest difference between two gradients, relative to the largest entry."""
    scale = max(value.abs().max() for value in one.values())
    return max((one[name] - other[name]).abs().max() for name in one).item() / scale.item()


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_only_bnpo_depends_on_how_the_batch_is_cut(logps, aggregation, beta):
    cuts = [WHOLE, CUT, list(torch.arange(6).split(1)), list(torch.arange(6).split(4))]
    whole, *cut = [ours(logps, aggregation, beta, parts)[:2] for parts in cuts]
    for loss, gradient in cut:
        if aggregation == "bnpo":
            assert far(whole[1], gradient) > 0.01
        else:
            assert loss == pytest.approx(whole[0], rel=1e-4, abs=1e-6)
            assert far(whole[1], gradient) < 1e-4


def settings(aggregation, **changes):
    plain = {
        "supervision": "outcome",
        "advantage": "standardized",
        "updates": 1,
        "clip_low": LOW,
        "clip_high": HIGH,
        "beta": 0.0,
    }
    plain |= {"kl": "k3", "old_from_sampler": True, "importance_cap": None}
    plain |= {"temperature": 1.0, "max_new_tokens": MAX_LENGTH, "mask_truncated": False, "micro_batch": 6}
    return GrpoSettings(aggregation=aggregation, **{**plain, **changes})


@pytest.mark.parametrize(
    "changes",
    [{}, {"temperature": 0.7}, {"advantage": "centered", "beta": 0.04}, {"mask_truncated": True}],
    ids=str,
)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_step_of_fit(judge, tmp_path, logps, aggregation, changes):
    """One group has no spread, so `fit` does not pass it through the model; the gradient must be the same as with it.

    TRL leaves truncated responses out of the loss by an empty mask.
    """
    asked = settings(aggregation, **changes)
    model, reference = llama(1), llama(2)
    ended = torch.tensor([True, False, True, True, True, True])
    experience = Experience(COMPLETIONS, logps[0], REWARDS, ended)
    row = next(grpo.fit(model, lambda _: experience, Still(), asked, start=0, steps=1, reference=reference))
    trainer = judge.grpo(
        llama(1),
        tmp_path,
        loss_type=aggregation,
        beta=asked.beta,
        epsilon=LOW,
        epsilon_high=HIGH,
        max_completion_length=MAX_LENGTH,
        temperature=asked.temperature,
    )
    advantages = group_advantages(REWARDS, COMPLETIONS.owner, asked.advantage)
    with torch.no_grad():
        known = compute_token_logps(reference, COMPLETIONS, asked.temperature)
    counted = COMPLETIONS.mask & ended.unsqueeze(1) if asked.mask_truncated else COMPLETIONS.mask
    batch = judge.sampled_batch(replace(COMPLETIONS, mask=counted), advantages, logps[0], known, int(counted.sum()))
    expected = trainer(batch)
    judge.same((row["loss"], gradients(model)), expected)
    logged = trainer.logged()
    assert row["clip_ratio"] == pytest.approx(logged["clip_ratio/region_mean"], rel=1e-5)
    assert not asked.beta or row["kl"] == pytest.approx(logged["kl"], rel=1e-4)


@pytest.mark.parametrize("aggregation", ["grpo", "dr_grpo", "dapo"])
def test_a_step_of_fit_does_not_depend_on_the_micro_batch(logps, aggregation):
    """`fit` sorts by length and leaves out responses without a gradient, so its parts have unequal sizes."""
    experience = Experience(COMPLETIONS, logps[0], REWARDS, torch.ones(6, dtype=torch.bool))
    found = []
    for size in (6, 3, 1):
        asked, model = settings(aggregation, micro_batch=size), llama(1)
        row = next(grpo.fit(model, lambda _: experience, Still(), asked, start=0, steps=1, reference=None))
        found.append((row["loss"], gradients(model)))
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-4, abs=1e-6)
        assert far(found[0][1], gradient) < 1e-4


class Descent:
    """Plain gradient descent without clipping."""

    def __init__(self, model, learning_rate):
        self.model, self.learning_rate = model, learning_rate

    @torch.no_grad()
    def step(self):
        for p in self.model.parameters():
            p -= self.learning_rate * p.grad
            p.grad = None
        return 0.0


@pytest.mark.parametrize(
    ("aggregation", "advantage", "scale", "beta", "cap"),
    [
        ("grpo", "standardized", "group", 0.0, None),
        ("bnpo", "standardized", "group", 0.04, None),
        ("dapo", "standardized", "group", 0.04, None),
        ("dr_grpo", "centered", "none", 0.04, None),
        ("dapo", "standardized", "group", 0.04, 1.2),
    ],
)
def test_two_updates_from_rewards_to_weights(judge, tmp_path, aggregation, advantage, scale, beta, cap):
    """TRL's training from end to end on the same samples: advantages, old policy, reference, statistics and weights.

    With a cap the samples come from another distribution, and TRL corrects for it by truncated importance sampling.
    """
    samples = {tuple(prompt): [] for prompt in PROMPTS}
    for owner, response in zip(OWNER, RESPONSES, strict=True):
        samples[tuple(PROMPTS[owner])].append(tuple(response))
    rewards = {tuple(response): reward for response, reward in zip(RESPONSES, REWARDS.tolist(), strict=True)}
    rate = 0.3
    changes = {"loss_type": aggregation, "scale_rewards": scale, "epsilon": LOW, "epsilon_high": HIGH, "beta": beta}
    with torch.no_grad():
        known = drawn = compute_token_logps(llama(1), COMPLETIONS)
    if cap:
        noise = torch.randn(drawn.shape, generator=torch.Generator().manual_seed(0))
        drawn = (drawn + 0.4 * noise) * COMPLETIONS.mask
        changes |= {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": cap}
        changes["sampled"] = {
            tuple(response): row[: len(response)].tolist() for response, row in zip(RESPONSES, drawn, strict=True)
        }
    batches, logs, weights = judge.grpo_run(
        llama(1), tmp_path, samples, rewards, rate, max_completion_length=MAX_LENGTH, **changes
    )

    reached = judge.sampled_batch(COMPLETIONS, None, None, None, 0).keys() - (
        {"ref_per_token_logps"} if not beta else {}
    )
    for batch in batches:
        assert reached <= batch.keys(), "the harness feeds the keys that TRL makes"
        kept = zip(batch["completion_ids"], batch["completion_mask"].bool(), strict=True)
        place = [RESPONSES.index(row[mask].tolist()) for row, mask in kept]
        advantages = group_advantages(REWARDS, COMPLETIONS.owner, advantage)
        torch.testing.assert_close(batch["advantages"], advantages[place], rtol=1e-5, atol=1e-6)
        for name in reached & {"old_per_token_logps", "ref_per_token_logps"}:
            torch.testing.assert_close(batch[name], known[place], rtol=1e-4, atol=1e-5)
        assert batch["num_items_in_batch"] == TOKENS

    model = llama(1)
    experience = Experience(COMPLETIONS, drawn, REWARDS, torch.tensor([r[-1] == 2 for r in RESPONSES]))
    asked = settings(
        aggregation, advantage=advantage, beta=beta, updates=2, old_from_sampler=not cap, importance_cap=cap
    )
    descent = Descent(model, rate)
    row = next(grpo.fit(model, lambda _: experience, descent, asked, start=0, steps=1, reference=llama(1)))
    moved = max((p - q).abs().max() for p, q in zip(model.parameters(), llama(1).parameters(), strict=True))
    assert moved > 0.05
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), weights[name], rtol=1e-3, atol=1e-4 * moved.item())
    for name in (
        "reward",
        "reward_std",
        "frac_reward_zero_std",
        "completions/mean_length",
        "completions/clipped_ratio",
    ):
        assert row[name] == pytest.approx(logs[0][name], rel=1e-5), name
    assert row["clip_ratio"] == pytest.approx(logs[1]["clip_ratio/region_mean"], rel=1e-5)
    assert row["clip_ratio"] > 0.1, "the second update is off policy"
    assert row["loss"] == pytest.approx(logs[1]["loss"], rel=1e-3)
    if cap:
        name = "sampling/importance_sampling_ratio/mean"
        assert row[name] == pytest.approx(logs[0][name], rel=1e-5)
        assert ((known - drawn).exp()[COMPLETIONS.mask] > cap).float().mean() > 0.1, "the cap acts"
