"""GRPO that is paid by steps too, against GRPO that is paid by right answers alone: `python -m
benchmarks.process_supervision SEED=DATA [..] --scratch FOLDER`.

DATA is the data folder of a run of the default pipeline with that seed in every section, up to `evaluate@sft`. The
process reward model is that of presets/reward-models.yaml, and so is GRPO by steps; the other GRPO is the default one.
Results are added to benchmarks/results/process_supervision.json, of which benchmarks/process_supervision.md is made
(benchmarks/claims.py).
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks import result_files, variants
from flows.params import checking, editing

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/process_supervision.json"
PRESET = "reward-models"
CONTROL = "right answers"
BY_STEPS = "right answers and steps"
ONE_CANDIDATE = "evaluate.candidates=[0.0]"  # the best temperature is not read here
COLUMNS = {
    variants.GREEDY: "greedy",
    **variants.SAMPLED,
    "rubric_greedy": "rubric, greedy",
    "kl_sampled_t1.0": "KL to SFT at 1",
}
WITH_INTERVAL = (variants.GREEDY, *variants.SAMPLED)


def run_stages_with_settings(folder: Path, params: str, settings: list[str], stages: tuple[str, ...]) -> float:
    """Run stages with params.yaml changed by `settings`; the CPU seconds of the last."""
    (folder / "params.yaml").write_text(params)
    editing.edit_params(
        folder, checking.load_config_classes(folder), [editing.parse_setting(text) for text in settings]
    )
    return [variants.run_stage_command(folder, stage) for stage in stages][-1]


def list_preset_settings(*sections: str) -> list[str]:
    """What the preset sets in these sections, in the form of `--set`."""
    given = yaml.safe_load((ROOT / f"presets/{PRESET}.yaml").read_text())
    return [f"{section}.{key}={json.dumps(value)}" for section in sections for key, value in given[section].items()]


def run_seed(seed: int, folder: Path, given: Path) -> None:
    """Both policies of one seed."""
    variants.prepare_variants_clone(seed, folder, str(given))
    shutil.copytree(given / "responses", folder / "data/responses")  # which the process reward model learns from
    params = (folder / "params.yaml").read_text()
    run_stages_with_settings(
        folder, params, list_preset_settings("solutions", "reward_model"), ("solutions", "reward_model")
    )
    found = {}
    for name, settings in ((CONTROL, []), (BY_STEPS, list_preset_settings("grpo"))):
        seconds = run_stages_with_settings(folder, params, [*settings, ONE_CANDIDATE], ("grpo",))
        variants.run_stage_command(folder, "evaluate@grpo")
        found[name] = variants.load_policy_measures(folder / "data", "grpo"), seconds
    save_seed_results(seed, found, variants.load_policy_measures(given, "sft"))


def save_seed_results(seed: int, found: Mapping[str, tuple[pd.DataFrame, float]], sft: pd.DataFrame) -> None:
    """Add a seed's results, from the measures of both policies with their CPU seconds."""
    results = result_files.load_result(RESULTS, {})
    results.setdefault("SFT", {})[str(seed)] = {name: float(sft[name].mean()) for name in COLUMNS}
    for name, (values, seconds) in found.items():
        row: dict[str, Any] = {**variants.compare_to_sft(values, sft), "cpu_seconds": seconds}
        if name == BY_STEPS:
            control = variants.compare_to_sft(values, found[CONTROL][0])
            row |= {f"{metric}_over_control": control[f"{metric}_over_sft"] for metric in WITH_INTERVAL}
        results.setdefault(name, {})[str(seed)] = row
    single = {f"{name} / {seed}": values.to_dict("list") for name, (values, _) in found.items()}
    single[f"SFT / {seed}"] = sft.to_dict("list")
    result_files.write_result(RESULTS, results, single, adds=True)


def render(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: each policy by seed, and the differences."""
    over = [f"{COLUMNS[name]} over {what}" for what in ("SFT", "right answers alone") for name in WITH_INTERVAL]
    lines = [
        "# GRPO by steps",
        "",
        "Made by `python -m benchmarks.process_supervision`: the default task, 500 test problems, strict accuracy. "
        "GRPO paid for right answers (the default), and paid for "
        "steps too, by the process reward model of presets/reward-models.yaml. The differences are problem by "
        "problem, with their 95 % intervals. CPU: seconds of one core for the training of the policy.",
        "",
        f"| paid for | seed | {' | '.join([*COLUMNS.values(), *over, 'CPU'])} |",
        "|---|---|" + "---|" * (len(COLUMNS) + len(over) + 1),
    ]
    for name in ("SFT", CONTROL, BY_STEPS):
        for seed, row in sorted(results.get(name, {}).items()):
            shares = [f"{100 * row[metric]:.1f} %" for metric in WITH_INTERVAL]
            others = [f"{round(row[metric], 2) + 0.0:.2f}" for metric in [*COLUMNS][len(WITH_INTERVAL) :]]
            differences = [
                _format_difference(row.get(f"{metric}_over_{what}"))
                for what in ("sft", "control")
                for metric in WITH_INTERVAL
            ]
            seconds = f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else ""
            shown = "nothing (SFT)" if name == "SFT" else name
            lines.append(f"| {shown} | {seed} | {' | '.join([*shares, *others, *differences, seconds])} |")
    return "\n".join(lines) + "\n"


def _format_difference(found: list[float] | None) -> str:
    if found is None:
        return ""
    mean, low, high = (100 * value for value in found)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def main() -> None:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.process_supervision", description=__doc__)
    parser.add_argument("seeds", nargs="+", metavar="SEED=DATA")
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for the clones, which are kept")
    given = parser.parse_args()
    for word in given.seeds:
        seed, _, data = word.partition("=")
        run_seed(int(seed), given.scratch / f"seed-{seed}", Path(data))


if __name__ == "__main__":
    main()
