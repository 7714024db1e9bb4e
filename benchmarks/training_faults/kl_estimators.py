"""k1, k2 and k3: what each is as an estimate of the KL divergence, and what each does as a loss."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row
from tasks.algorithms.language import rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.algorithms.language.kl import ESTIMATORS
from tasks.common import models, plots, tables
from tasks.language.data import chat, prompts
from tasks.language.tables.problems import Problems

STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the change that GRPO made to the weights
PROBLEMS = 64
SAMPLES = 4
LENGTH = 64
MEASURED = "the default run's GRPO"


def load_estimates_or_curve(folder: Path) -> Row:
    """The estimators on the samples of the default run's GRPO, or the curve of one that has a KL in its loss."""
    with (folder / "data/curves/grpo.csv").open() as file:
        logged = "kl" in file.readline().strip().split(",")
    return (
        {"curve": workspace.load_curve_columns(folder, "grpo", "kl", "reward")}
        if logged
        else {"estimates": measure_estimators_by_distance(folder)}
    )


@torch.no_grad()
def measure_estimators_by_distance(folder: Path) -> list[dict[str, Any]]:
    """Of policies at several distances from SFT, token by token: the exact KL over the vocabulary, and each estimator's
    bias and spread.

    A policy's weights are SFT's and a multiple of what GRPO added to them; it samples answers of its own.
    """
    reference, policy = (models.load_model(folder / f"data/{name}") for name in ("sft", "grpo"))
    tokenizer = models.load_tokenizer(folder / "data/sft")
    asked = tables.list_records(tables.read_table(Problems, folder / "data/problems/test.parquet").head(PROBLEMS))
    encoded = prompts.encode_prompt_rows(tokenizer, asked)
    start = dict(reference.named_parameters())
    change = {}
    for name, weight in policy.named_parameters():
        change[name] = weight.detach() - start[name]
    found = []
    for step in STEPS:
        for name, weight in policy.named_parameters():
            weight.copy_(start[name] + step * change[name])
        found.append({"multiple": step, **measure_kl_estimators(policy, reference, encoded, tokenizer)})
    return found


def measure_kl_estimators(
    policy: PretrainedCausalLM, reference: PretrainedCausalLM, asked: list[list[int]], tokenizer: Any
) -> dict[str, Any]:
    """The exact KL a token, and of each estimator the mean error and the standard deviation, on the policy's
    samples.
    """
    [drawn] = rollouts.sample_rollouts(
        policy, asked, samples=SAMPLES, max_new_tokens=LENGTH, temperature=1.0,
        end_tokens=chat.end_tokens(policy, tokenizer), seed=0, batch_size=len(asked),
    )  # fmt: skip
    exact = []
    chosen = []
    for row, response in enumerate(drawn.responses()):
        whole = torch.tensor([asked[row // SAMPLES] + response])
        own, other = (
            model(input_ids=whole).logits[0, -len(response) - 1 : -1].double().log_softmax(-1)
            for model in (policy, reference)
        )
        exact.append((own.exp() * (own - other)).sum(-1))
        taken = torch.tensor(response).unsqueeze(1)
        chosen.append(torch.cat([own.gather(1, taken), other.gather(1, taken)], dim=1))
    known = torch.cat(exact)
    (logps, reference_logps) = torch.cat(chosen).unbind(1)
    row_of: dict[str, Any] = {"exact": known.mean().item(), "tokens": len(known)}
    for name, estimator in ESTIMATORS.items():
        errors = estimator(logps, reference_logps) - known
        row_of[name] = {
            "bias": errors.mean().item(),
            "error": (errors.std() / len(errors) ** 0.5).item(),
            "spread": errors.std().item(),
        }
    return row_of


def draw_bias_and_spread(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """Bias and spread by distance, then the KL over the steps, for the arms that were run."""
    trained = {name: seeds for name, seeds in rows.items() if name != MEASURED}
    axes = figure.subplots(1, 3 if trained else 2)
    bias, spread = axes[:2]
    points = rows[MEASURED][0]["estimates"]
    exact = [point["exact"] for point in points]
    for colour, name in zip(plots.cycle_colours(len(ESTIMATORS)), ESTIMATORS, strict=True):
        values = [[point[name][kind] / point["exact"] for point in points] for kind in ("bias", "error", "spread")]
        bias.errorbar(exact, values[0], [1.96 * error for error in values[1]], marker=".", color=colour, label=name)
        spread.plot(exact, values[2], marker=".", color=colour, label=name)
    for axis, title in ((bias, "bias over the KL"), (spread, "standard deviation over the KL")):
        axis.set(title=title, xscale="log", xlabel="exact KL, nats a token")
    spread.set_yscale("log")
    if trained:
        pictures.plot_curves(axes[2], trained, "kl", "kl, by what is the loss", smooth=5)
    pictures.add_shared_legend(figure, bias)


FAULT = Fault(
    "kl-estimators",
    {
        MEASURED: Arm([], preset=False),
        "k1": Arm(["grpo"]),
        "k2": Arm(["grpo"], ["grpo.kl=k2"]),
        "k3": Arm(["grpo"], ["grpo.kl=k3"]),
    },
    load_estimates_or_curve,
    draw_bias_and_spread,
)
