"""Variants of the policies that the default run does not train: `python -m benchmarks.variants [SEED | SEED=DATA ...]
[--only "NAME;.."]`.

Each seed's upstream (problems to reward model) is made once in a fresh clone, or copied from DATA, the data folder of
an earlier run; the policies that this run trained and evaluated at the defaults are read from there. Every other
variant is trained and evaluated by the stages' own commands with params.yaml changed. Results are added to
benchmarks/results/variants.json, of which benchmarks/variants.md is made (benchmarks/claims.py).
"""

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dvc.repo import Repo

from benchmarks import result_files, tables
from flows.params import checking, editing
from tasks.common import estimates

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/variants.json"
UPSTREAM = ("raw", "problems", "mixture", "sft", "preferences", "reward_model")
VARIANTS: dict[str, tuple[str, list[str]]] = {  # name -> the stage that trains it, and its changes to the defaults
    "DPO": ("dpo", []),
    "IPO": ("dpo", ["dpo.loss=ipo", "dpo.length_normalised=true", "dpo.beta=1.0"]),
    "SimPO": (
        "dpo",
        [
            "dpo.loss=simpo",
            "dpo.length_normalised=true",
            "dpo.beta=2.0",
            "dpo.gamma=1.0",
            "dpo.learning_rate=0.000005",  # the best of four settings on validation problems (LOG.md)
        ],
    ),
    "GRPO": ("grpo", []),
    "GRPO, one update": ("grpo", ["grpo.updates=1"]),
    "Dr. GRPO": ("grpo", ["grpo.advantage=centered", "grpo.aggregation=dr_grpo"]),
    "REINFORCE": ("reinforce", []),
    "REINFORCE, paid at the end": ("reinforce", ["reinforce.paid=at_end"]),
    "PPO": ("ppo", []),
    "PPO, KL not steered": ("ppo", ["ppo.kl_target=null"]),
}
# The columns of an evaluation's measures.parquet that are read, and their names in the table.
GREEDY = "strict_greedy"
SAMPLED = {"strict_mean_at_8_t0.5": "mean@8 at 0.5", "strict_mean_at_8_t1.0": "mean@8 at 1"}
OTHERS = {"rubric_greedy": "rubric, greedy", "kl_sampled_t1.0": "KL to SFT at 1"}
RESAMPLES = 2000


def get_stage_command(folder: Path, stage: str) -> list[str]:
    """The stage's command as DVC resolves it."""
    with Repo(str(folder)) as repo:
        [found] = [known for known in repo.index.stages if known.name == stage]
    return [sys.executable, *shlex.split(found.cmd)[1:]]


def run_stage_command(folder: Path, stage: str) -> float:
    """Run a stage in the folder as DVC would, after deleting its outs; the CPU seconds that it took."""
    for place in (stage, stage.replace("evaluate@", "evaluate/")):
        shutil.rmtree(folder / "data" / place, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(folder), "DVC_STAGE": stage}
    subprocess.run(get_stage_command(folder, stage), cwd=folder, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prepare_variants_clone(seed: int, folder: Path, given: str) -> None:
    """A clone with this seed in every section, and the upstream's outs: copied from `given`, or made."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^  seed: \d+", f"  seed: {seed}", params.read_text(), flags=re.MULTILINE))
    if given:
        for name in UPSTREAM:
            shutil.copytree(Path(given) / name, folder / "data" / name, dirs_exist_ok=True)
        return
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    made = [sys.executable, "-m", "flows.cli", "run", "mixture", "reward_model"]
    subprocess.run(made, cwd=folder, env=environment, check=True)


def load_policy_measures(data: Path, policy: str) -> pd.DataFrame:
    """A policy's evaluation: a row for each problem, by its id, and a column for each metric."""
    long = pd.read_parquet(data / "evaluate" / policy / "measures.parquet")
    return long.pivot(index="problem_id", columns="metric", values="value")[[GREEDY, *SAMPLED, *OTHERS]]


def compare_to_sft(values: pd.DataFrame, sft: pd.DataFrame) -> dict[str, Any]:
    """The means of a policy's metrics, and for accuracies the paired difference to SFT with a 95 % interval over
    problems.
    """
    assert values.index.equals(sft.index), "the same problems"
    row: dict[str, Any] = {name: values[name].mean() for name in values}
    for name in (GREEDY, *SAMPLED):
        found = estimates.bootstrap_mean(values[name] - sft[name], 0, RESAMPLES)
        row[f"{name}_over_sft"] = [found.mean, found.low, found.high]
    change = np.sign(values[GREEDY] - sft[GREEDY])
    return {**row, "gained": int((change > 0).sum()), "lost": int((change < 0).sum())}


def run_seed(seed: int, folder: Path, given: str, names: list[str]) -> None:
    """Train and evaluate the variants; each result is written at once."""
    prepare_variants_clone(seed, folder, given)
    params = (folder / "params.yaml").read_text()
    made = folder / "data"
    there = {path.parent.name: Path(given) for path in Path(given).glob("evaluate/*/measures.parquet")} if given else {}
    if "sft" not in there:
        run_stage_command(folder, "evaluate@sft")
    sft = load_policy_measures(there.get("sft", made), "sft")
    save_variant_result(seed, "SFT", compare_to_sft(sft, sft), sft)
    for name in names:
        stage, settings = VARIANTS[name]
        data = there.get(stage, made)
        cost = {}
        if settings or stage not in there:
            data = made
            (folder / "params.yaml").write_text(params)
            # one candidate only: the best temperature is not read here
            editing.edit_params(
                folder,
                checking.load_config_classes(folder),
                [editing.parse_setting(text) for text in (*settings, "evaluate.candidates=[0.0]")],
            )
            cost = {"cpu_seconds": run_stage_command(folder, stage)}
            run_stage_command(folder, f"evaluate@{stage}")
        trained = json.loads((data / f"metrics/{stage}.json").read_text())
        values = load_policy_measures(data, stage)
        save_variant_result(seed, name, {**compare_to_sft(values, sft), **cost, "trained": trained}, values)


def save_variant_result(seed: int, name: str, row: dict[str, Any], values: pd.DataFrame) -> None:
    """Add a result, with the values of its problems."""
    results = result_files.load_result(RESULTS, {})
    results.setdefault(name, {})[str(seed)] = row
    single = {f"{name} / {seed}": values.to_dict("list")}
    result_files.write_result(RESULTS, results, single, adds=True)


def render(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Markdown: a row for each variant and seed."""
    columns = ["greedy", *SAMPLED.values(), *OTHERS.values(), "greedy over SFT", "gained, lost"]
    columns += [f"{shown} over SFT" for shown in SAMPLED.values()]
    lines = [
        "# Variants of the policies",
        "",
        "Made by `python -m benchmarks.variants`: default params but for what a variant changes, strict accuracy "
        "on the test problems. "
        "Over SFT: the difference problem by problem to the same seed's SFT model, with its 95 % "
        "interval; gained and lost: "
        "problems that the greedy answer solves and SFT's did not, and the other way round. CPU: seconds of one "
        "core for the training, "
        "where it was not part of a run of the whole flow.",
        "",
        f"| variant | seed | {' | '.join(columns)} | CPU |",
        "|---|---|" + "---|" * (len(columns) + 1),
    ]
    for name in ("SFT", *VARIANTS):
        for seed, row in sorted(results.get(name, {}).items()):
            seconds = f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else ""
            lines.append(f"| {name} | {seed} | {' | '.join(format_variant_cells(row))} | {seconds} |")
    missing = [name for name in VARIANTS if name not in results]
    return "\n".join([*lines, *([f"\nNot measured yet: {'; '.join(missing)}."] if missing else [])]) + "\n"


def greedy(results: Mapping[str, Mapping[str, Any]], *names: str) -> str:
    """A row for each of these variants: greedy accuracy over SFT's in points by seed, and in brackets the KL to SFT at
    temperature 1.
    """
    seeds = sorted(results["SFT"])
    rows = [["", *(f"seed {seed}" for seed in seeds)]]
    for name in names:
        shown = []
        for row in (results[name][seed] for seed in seeds):
            shown.append(f"{100 * row[f'{GREEDY}_over_sft'][0]:+.1f} ({row['kl_sampled_t1.0']:.2f})")
        rows.append([name, *shown])
    return tables.render_markdown_table(rows)


def format_variant_cells(row: dict[str, Any]) -> list[str]:
    """A row's cells between its seed and its time."""

    def over(name: str) -> str:
        mean, low, high = (100 * value for value in row[f"{name}_over_sft"])
        return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"

    shares = [f"{100 * row[name]:.1f} %" for name in (GREEDY, *SAMPLED)]
    numbers = [f"{row[name]:.2f}" for name in OTHERS]
    return [*shares, *numbers, over(GREEDY), f"{row['gained']}, {row['lost']}", *map(over, SAMPLED)]


def main() -> None:
    """Run the seeds of the command line, or 0, 1 and 2, with all variants or those after --only."""
    words = sys.argv[1:]
    names = list(VARIANTS)
    if "--only" in words:
        at = words.index("--only")
        names = words[at + 1].split(";")
        del words[at : at + 2]
    with tempfile.TemporaryDirectory() as scratch:
        for word in words or ["0", "1", "2"]:
            seed, _, given = word.partition("=")
            run_seed(int(seed), Path(scratch) / f"seed-{seed}", given, names)


if __name__ == "__main__":
    main()
