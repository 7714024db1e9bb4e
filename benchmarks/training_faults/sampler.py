"""A sampler that differs from the trainer, with and without importance weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row
from flows.params import files
from tasks.algorithms.language import rollouts
from tasks.algorithms.language.accumulation import compute_token_values_in_parts
from tasks.algorithms.language.completions import compute_token_logps
from tasks.algorithms.language.kl import k3
from tasks.common import estimates, models
from tasks.language.data import chat
from tasks.language.rewards.verifier import Verifier

if TYPE_CHECKING:
    from tasks.extensions.search.configs.search import SearchConfig

COLUMNS = ("reward", "entropy", "sampling/logp_difference")
ASKED = {"problems": 200, "samples": 4, "temperature": 1.0}  # of the section search
CAP = "reinforce.importance_cap=5.0"
TOP_P = ("reinforce.temperature=1.0", "reinforce.top_p=0.7")
ROUNDED = ("reinforce.temperature=1.0", "reinforce.sampler_precision=bf16")


def measure_sampler_arm(folder: Path) -> Row:
    """REINFORCE's curve, and what the trained distribution is: answers sampled from all of it at temperature 1."""
    from tasks.extensions.search import sampling
    from tasks.extensions.search.configs.search import SearchConfig

    params = files.parse_params((folder / "params.yaml").read_text())
    config = SearchConfig.parse_section({**params["search"], **ASKED})
    assert isinstance(config, SearchConfig)
    policy = folder / "data/reinforce"
    tokenizer = models.load_tokenizer(policy)
    given = sampling.load_test_prompts(config, folder / "data/problems", tokenizer)
    with Verifier() as verifier:
        drawn = sampling.sample_answers(
            config, "policy", sampling.load_sampling_policy(policy, tokenizer), tokenizer, given, verifier
        )
    samples = drawn[~drawn["greedy"]].groupby("problem_id")
    measured = {
        "entropy": -samples["likelihood"].mean(),
        "accuracy": samples["right"].mean(),
        "greedy": drawn[drawn["greedy"]].set_index("problem_id")["right"].astype(float),
    }
    found = {name: estimates.bootstrap_mean(values, 0, 1000) for name, values in measured.items()}
    evaluated = {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in found.items()}
    row = {"curve": workspace.load_curve_columns(folder, "reinforce", *COLUMNS), "evaluated": evaluated}
    if params["reinforce"]["top_p"] == 1 == params["reinforce"]["temperature"]:  # else precision is the least of it
        row["mismatch"] = measure_sampler_mismatch(
            policy, params["reinforce"]["sampler_precision"], config, given.prompts
        )
    return row


@torch.no_grad()
def measure_sampler_mismatch(
    policy: Path, precision: str, config: "SearchConfig", prompts: Sequence[Sequence[int]]
) -> dict[str, float]:
    """How far the run's sampler is from the policy it trained, over the tokens of the sampler's own answers at
    temperature 1.

    The KL divergence from sampler to policy is estimated by k3 (kl.py), which varies least where the two are near.
    """
    trained = models.load_model(policy)
    tokenizer = models.load_tokenizer(policy)
    [drawn] = rollouts.sample_rollouts(
        models.load_model(policy, "bfloat16") if precision == "bf16" else trained,
        prompts,
        samples=config.samples,
        max_new_tokens=config.max_new_tokens,
        temperature=1.0,
        end_tokens=chat.end_tokens(trained, tokenizer),
        seed=0,
        batch_size=len(prompts),
    )
    batch = drawn.completions(prompts, tokenizer.pad_token_id)
    own = compute_token_values_in_parts(lambda part: compute_token_logps(trained, part), batch, 96)
    ratio = (own - drawn.logps)[batch.mask].double()  # log of trainer's over sampler's
    return {
        "tokens": len(ratio),
        "mean": ratio.abs().mean().item(),
        "largest": ratio.abs().max().item(),
        "kl": k3(-ratio, torch.zeros_like(ratio)).mean().item(),
        "weight_deviation": ratio.exp().std().item(),
        "answer_deviation": torch.where(batch.mask, own - drawn.logps, 0.0).sum(1).std().item(),
    }


def draw_mismatch_and_accuracy(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The mismatch over the steps; the entropy and the accuracy of what was trained, sampled at temperature 1."""
    left, middle, right = figure.subplots(1, 3, width_ratios=(2, 3, 3))
    pictures.plot_curves(left, rows, "sampling/logp_difference", "|log π - log μ|, nats", smooth=5)
    left.set_yscale("log")
    pictures.plot_bars(middle, rows, "entropy", "entropy, nats a token", 1, 2)
    pictures.plot_bars(right, rows, "accuracy", "right answers, %", 100)
    for axis in (middle, right):
        axis.set_xticks([])
        axis.margins(x=0.02)
    pictures.add_shared_legend(figure, left, 3)


FAULT = Fault(
    "sampler",
    {
        "sampled and trained at 1": Arm(["reinforce"], ["reinforce.temperature=1.0"]),
        "sampled at 0.6, trained at 1": Arm(["reinforce"]),
        "the same, weighted": Arm(["reinforce"], [CAP]),
        "top-p 0.7, trained on all": Arm(["reinforce"], [*TOP_P]),
        "top-p 0.7, weighted": Arm(["reinforce"], [*TOP_P, CAP]),
        "sampled in bfloat16": Arm(["reinforce"], [*ROUNDED]),
        "bfloat16, weighted": Arm(["reinforce"], [*ROUNDED, CAP]),
    },
    measure_sampler_arm,
    draw_mismatch_and_accuracy,
)
