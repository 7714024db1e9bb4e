"""Reward models compared: `python -m benchmarks.reward_models SEED=DATA [..] [--only "NAME;.."] [--scratch FOLDER]`.

DATA is the data folder of a run of the default pipeline with that seed in every section, up to `evaluate@sft`. Each
case trains one reward model by the stage's own command with params.yaml changed, and scores the 8 answers of SFT to
each test problem that `evaluate@sft` sampled at two temperatures. These are the same in all cases of a seed, so that
differences are paired by problem. Results are added to benchmarks/results/reward_models.json, of which
benchmarks/reward_models.md is made (benchmarks/claims.py).
"""

import argparse
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import result_files, simulated_people
from benchmarks.variants import run_stage_command
from flows.params import checking, editing
from tasks.algorithms.language import accumulation, reward_model, step_rewards
from tasks.algorithms.language.completions import make_completions
from tasks.common import estimates, models, tables
from tasks.language.data import chat, prompts
from tasks.language.reporting import measures
from tasks.language.rewards import reward_model_files
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/reward_models.json"
UPSTREAM = ("raw", "problems", "sft", "responses", "preferences", "evaluate")
ANSWERS = Path("data/evaluate/sft")
BEST = {
    "lenient_best_of_8_t0.5": "best of 8 at 0.5",
    "lenient_best_of_8_t1.0": "best of 8 at 1",
    "strict_best_of_8_t1.0": "strict, best of 8 at 1",
}
CONTROLS = {
    "lenient_mean_at_8_t0.5": "mean@8 at 0.5",
    "lenient_majority_at_8_t0.5": "majority@8 at 0.5",
    "lenient_pass_at_8_t0.5": "pass@8 at 0.5",
    "lenient_mean_at_8_t1.0": "mean@8 at 1",
    "lenient_majority_at_8_t1.0": "majority@8 at 1",
    "lenient_pass_at_8_t1.0": "pass@8 at 1",
}
RANKED = {
    "ranking_sampled_t1.0": "orders as the rubric",
    "ranking_with_steps_sampled_t1.0": "the same, both show steps",
}
BASE = "pairs"  # what the other cases are compared with, problem by problem
TEMPERATURES = (0.5, 1.0)
RESAMPLES = 2000


@dataclass(frozen=True)
class Case:
    """One reward model: changes to the defaults, the stages to run before it, and what changes the data."""

    settings: Sequence[str] = ()
    stages: Sequence[str] = ()
    change: Callable[[Path], None] | None = None
    trains: bool = True  # otherwise SFT itself is the reward model, by its own log-probabilities


def make_eighth_pairs_writer(shuffled: bool) -> Callable[[Path], None]:
    """The training pairs of every eighth prompt; `shuffled`: each pair is a group of its own, so that a prompt's pairs
    come in many steps.
    """

    def write(folder: Path) -> None:
        source = folder / "data/preferences"
        target = folder / "data/eighth"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        table = pd.read_parquet(source / "train.parquet")
        table = table[table["prompt_id"].isin(sorted(table["prompt_id"].unique())[::8])]
        table = table.assign(prompt_id=table["comparison_id"]) if shuffled else table
        table.to_parquet(target / "train.parquet")

    return write


HEAD = (  # rate and epochs, here and below, by solutions to other training prompts of seed 0 (LOG.md)
    "reward_model.data=data/solutions",
    "reward_model.kind=head",
    "reward_model.likelihood=0.0",
    "reward_model.learning_rate=0.001",
    "reward_model.epochs=2",
)
OUTCOME = (
    "reward_model.objective=outcome",
    "reward_model.data=data/solutions",
    "reward_model.likelihood=0.0",
    "reward_model.beta=10.0",
    "reward_model.threshold=0.4",
    "reward_model.epochs=2",
)
PROCESS = (
    "reward_model.objective=process",
    "reward_model.data=data/solutions",
    "reward_model.beta=10.0",
    "reward_model.threshold=0.3",
    "reward_model.learning_rate=0.0001",
    "reward_model.epochs=2",
)
EIGHTH = ("reward_model.epochs=8", "reward_model.data=data/eighth")
PEOPLE = (
    "preferences.source=people",
    "preferences.path=data/raw/preferences",
    "preferences.judgements=data/raw/judgements/simulated.jsonl",
    "preferences.minimum=1",
    "preferences.disagreement=majority",
    "reward_model.epochs=3",
)
CASES: dict[str, Case] = {
    BASE: Case(),
    "untrained": Case(trains=False),
    "pairs, margins": Case(
        ["reward_model.margins={negligibly: 0.0, slightly: 0.25, better: 0.5, significantly: 1.0}"],
    ),
    "ranking": Case(["reward_model.objective=ranking"]),
    "outcome": Case(OUTCOME, ["solutions"]),
    "process": Case(PROCESS, ["solutions"]),
    "outcome, a head": Case([*HEAD, "reward_model.objective=outcome"], ["solutions"]),
    "process, a head": Case([*HEAD, "reward_model.objective=process"], ["solutions"]),
    "an eighth of the pairs by ranking, 8 epochs": Case(
        [*EIGHTH, "reward_model.prompts_per_batch=16"], (), make_eighth_pairs_writer(False)
    ),
    "the same pairs shuffled, 8 epochs": Case(
        [*EIGHTH, "reward_model.prompts_per_batch=160"], (), make_eighth_pairs_writer(True)
    ),
    **{
        name: Case(PEOPLE, ["preferences"], simulated_people.make_judgements_writer(accuracies, judgements, overlap))
        for name, (accuracies, judgements, overlap) in {
            "400 judgements by one person of 0.95": ((0.95,), 400, 1),
            "400 judgements by three people of 0.8, one each": ((0.8, 0.8, 0.8), 400, 1),
            "400 judgements by three people of 0.8, three each": ((0.8, 0.8, 0.8), 400, 3),
            "1,200 judgements by three people of 0.8, three each": ((0.8, 0.8, 0.8), 1200, 3),
        }.items()
    },
}


def prepare_reward_model_clone(seed: int, folder: Path, given: Path) -> None:
    """A clone with this seed in every section, and the outs of an earlier run."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^  seed: \d+", f"  seed: {seed}", params.read_text(), flags=re.MULTILINE))
    for name in UPSTREAM:
        shutil.copytree(given / name, folder / "data" / name, dirs_exist_ok=True)
    run_stage_command(folder, "preferences")  # by today's code


def run_case(folder: Path, params: str, case: Case) -> dict[str, Any]:
    """Train the case's reward model and score SFT's answers with it; what was measured."""
    (folder / "params.yaml").write_text(params)
    if case.change is not None:
        case.change(folder)
    editing.edit_params(
        folder, checking.load_config_classes(folder), [editing.parse_setting(text) for text in case.settings]
    )
    kept = folder / "kept"
    if "preferences" in case.stages:
        shutil.copytree(folder / "data/preferences", kept)
    try:
        cost = sum(
            run_stage_command(folder, stage) for stage in (*case.stages, *(["reward_model"] if case.trains else []))
        )
    finally:
        if kept.exists():
            shutil.rmtree(folder / "data/preferences", ignore_errors=True)
            kept.rename(folder / "data/preferences")
    if not case.trains:
        write_untrained_reward_model(folder)
    values, ranked = score_test_answers(folder)
    values.to_parquet(folder / "values.parquet")
    metrics = json.loads((folder / "data/metrics/reward_model.json").read_text())
    return {
        "cpu_seconds": cost,
        "reward_model": metrics if case.trains else metrics["untrained"],
        "trained": pd.read_csv(folder / "data/curves/reward_model.csv").tail(20).mean().to_dict()
        if case.trains
        else {},
        "evaluated": {**{name: float(values[name].mean()) for name in values}, **ranked},
    }


def write_untrained_reward_model(folder: Path) -> None:
    """SFT as a reward model of log-probabilities; its metrics are those that the default one had before its
    training.
    """
    target = folder / "data/reward_model"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder / "data/sft", target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, step_rewards.BETA: 1.0}))


@torch.no_grad()
def score_test_answers(folder: Path) -> tuple[pd.DataFrame, dict[str, float]]:
    """Of each test problem, by temperature, whether the answer with the highest reward is right; and how the reward
    orders answers.
    """
    model, tokenizer = (
        load(folder / "data/reward_model") for load in (reward_model_files.load_reward_model, models.load_tokenizer)
    )
    drawn = tables.read_table(Generations, folder / ANSWERS / "generations.parquet")
    drawn = drawn[drawn["temperature"].isin([0.0, *TEMPERATURES])].reset_index(drop=True)
    asked = tables.read_table(Problems, folder / ANSWERS / "asked.parquet")
    places = {name: place for place, name in enumerate(asked["problem_id"])}
    whole = make_completions(
        prompts.encode_prompt_rows(tokenizer, tables.list_records(asked)),
        [places[name] for name in drawn["problem_id"]],
        [
            chat.encode_response(tokenizer, text, ended)
            for text, ended in zip(drawn["response"], drawn["ended"], strict=True)
        ],
        tokenizer.pad_token_id,
    )
    rewards = torch.zeros(len(whole))
    for rows in accumulation.cut_into_micro_batches(whole, torch.arange(len(whole)), 128):
        rewards[rows] = reward_model.score_responses(model, whole.rows(rows))
    drawn["reward"] = rewards.numpy()
    named = {measures.format_temperature_suffix(temperature): temperature for temperature in TEMPERATURES}
    references = dict(zip(asked["problem_id"], asked["answer"], strict=True))
    values = measures.compute_problem_measures(drawn, references, named, [8])
    ranked = measures.compute_ranking_accuracies(drawn, named, 0, 100)
    return values[[*BEST, *CONTROLS]], {name: ranked[name].mean for name in RANKED}


def compare_best_of_8(values: pd.DataFrame, base: pd.DataFrame) -> dict[str, list[float]]:
    """Each best-of-8's paired difference to that by `base`, with a 95 % interval over problems."""
    assert values.index.equals(base.index), "the same problems"
    differences = {name: estimates.bootstrap_mean(values[name] - base[name], 0, RESAMPLES) for name in BEST}
    return {name: [found.mean, found.low, found.high] for name, found in differences.items()}


def run_seed(seed: int, folder: Path, given: Path, names: Sequence[str]) -> None:
    """Run the cases of one seed; each result is written at once."""
    if not folder.exists():
        prepare_reward_model_clone(seed, folder, given)
        shutil.copyfile(folder / "params.yaml", folder / "params.before")
    params = (folder / "params.before").read_text()
    table = folder / "base.parquet"
    for name in names if table.exists() else dict.fromkeys([BASE, *names]):
        found = run_case(folder, params, CASES[name])
        values = pd.read_parquet(folder / "values.parquet")
        if name == BASE:
            values.to_parquet(table)
        save_case_result(seed, name, {**found, "over_pairs": compare_best_of_8(values, pd.read_parquet(table))}, values)


def save_case_result(seed: int, name: str, row: dict[str, Any], values: pd.DataFrame) -> None:
    """Add a result, with the values of its problems."""
    results = result_files.load_result(RESULTS, {})
    results.setdefault(name, {})[str(seed)] = row
    result_files.write_result(RESULTS, results, {f"{name} / {seed}": values.to_dict("list")}, adds=True)


def render(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: the cases with their seeds, and the means over seeds."""
    columns = ["seed", *BEST.values(), *(f"{shown} over pairs" for shown in BEST.values()), *RANKED.values()]
    columns += ["held-out accuracy", "held-out loss", "training accuracy", "CPU"]
    lines = [
        "# Reward models",
        "",
        "Made by `python -m benchmarks.reward_models`: the default task, 500 test problems a seed, 8 answers of "
        "SFT to each at two temperatures, the same "
        "for all reward models of a seed. Best of 8: the share of the problems where the answer with the highest "
        "reward is right, whatever its form (strict: by a line `#### N` at its end). Over pairs: the "
        "difference, problem by problem, to the default reward model, with its 95 % interval. Orders as the "
        "rubric: of the pairs of a problem's answers "
        "at temperature 1, the share that the reward orders as the rubric's points do; before the comma over all, "
        "then where both show steps. "
        "Held-out accuracy and loss are of each objective's own data: comparisons, solutions or steps; training "
        "accuracy is that of the last 20 steps. Untrained: SFT's own log-probability a token. CPU: "
        "seconds of one core.",
        "",
        f"| case | {' | '.join(columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    for name in [name for name in CASES if name in results]:
        lines += [
            f"| {name} | {seed} | {' | '.join(format_case_cells(row))} |" for seed, row in sorted(results[name].items())
        ]
        if len(results[name]) > 1:
            lines.append(f"| {name} | mean | {' | '.join(format_mean_cells([*results[name].values()]))} |")
    lines += ["", "## The same answers without a reward model", "", f"| seed | {' | '.join(CONTROLS.values())} |"]
    lines.append("|---|" + "---|" * len(CONTROLS))
    for seed, row in sorted(results.get(BASE, {}).items()):
        lines.append(f"| {seed} | {' | '.join(format_percent(row['evaluated'][name]) for name in CONTROLS)} |")
    return "\n".join(lines) + "\n"


def format_case_cells(row: Mapping[str, Any]) -> list[str]:
    """A row's cells behind its seed."""
    over = ["{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * value for value in row["over_pairs"][name])) for name in BEST]
    model = row["reward_model"]
    fitted = row["trained"].get("accuracy", float("nan"))
    shown = (
        [format_percent(row["evaluated"][name]) for name in BEST],
        [format_percent(row["evaluated"][name]) for name in RANKED],
    )
    return [
        *shown[0],
        *over,
        *shown[1],
        format_percent(model["accuracy"]),
        f"{model['loss']:.3f}",
        format_percent(fitted),
        f"{row['cpu_seconds']:.0f}",
    ]


def format_mean_cells(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The means over seeds; a difference is set in bold where all seeds' intervals lie on one side of 0."""
    over = []
    for name in BEST:
        parts = np.array([row["over_pairs"][name] for row in rows])
        apart = (parts[:, 1] > 0).all() or (parts[:, 2] < 0).all()
        text = f"{100 * parts[:, 0].mean():+.1f}"
        over.append(f"**{text}**" if apart else text)

    def mean(read: Callable[[Mapping[str, Any]], float]) -> float:
        return float(np.mean([read(row) for row in rows]))

    def evaluated(names: Mapping[str, str]) -> list[str]:
        return [format_percent(mean(lambda row, name=name: row["evaluated"][name])) for name in names]

    numbers = [
        format_percent(mean(lambda row: row["reward_model"]["accuracy"])),
        f"{mean(lambda row: row['reward_model']['loss']):.3f}",
    ]
    numbers += [
        format_percent(mean(lambda row: row["trained"].get("accuracy", np.nan))),
        f"{mean(lambda row: row['cpu_seconds']):.0f}",
    ]
    return [*evaluated(BEST), *over, *evaluated(RANKED), *numbers]


def format_percent(share: float) -> str:
    """A share as the page writes it; nothing for one that there is not."""
    return "" if np.isnan(share) else f"{100 * share:.1f} %"


def main() -> None:
    """Run the seeds of the command line with all cases, or with those after --only."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reward_models", description=__doc__)
    parser.add_argument("seeds", nargs="+", metavar="SEED=DATA")
    parser.add_argument("--only", default=";".join(CASES))
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for the clones, which are kept")
    given = parser.parse_args()
    for word in given.seeds:
        seed, _, data = word.partition("=")
        run_seed(int(seed), given.scratch / f"seed-{seed}", Path(data), given.only.split(";"))


if __name__ == "__main__":
    main()
