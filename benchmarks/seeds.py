"""What the default pipeline learns, over seeds: `python -m benchmarks.seeds [SEED ...]` writes benchmarks/results/seeds.json.

benchmarks/seeds.md and the tables of other pages are made of that file (benchmarks/claims.py).

Each seed is set in every section of params.yaml and run in a fresh clone, so with an empty cache. A seed that is named twice
is run twice, and the table says whether all outs have the same hashes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks import result_files, tables
from tasks.common.estimates import over_seeds
from tasks.language.reporting.scoreboard import at

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/seeds.json"
POLICIES = ("pretrained", "sft", "rejection_sft", "dpo", "reinforce", "ppo", "grpo")
BASELINES = ("total_return", "none", "running_mean", "critic")
JUDGED = ("all", "both_show_steps")
FACTS = [
    "reward model, held-out labels",
    *(
        f"{name}, against the rubric, {pairs.replace('_', ' ')}"
        for name in ("trained", "untrained")
        for pairs in JUDGED
    ),
    *(f"variance of REINFORCE's gradient, {name}" for name in BASELINES),
    "wall time, s",
]
CHANGE = "change "
GREEDY, BEST, HOT = "strict_greedy", "strict_mean_at_8_tbest", "strict_mean_at_8_t1.0"
PROBLEMS = (GREEDY, "strict_mean_at_8_t0.5", HOT, "rubric_greedy")  # metrics whose values are kept, problem by problem
COLUMNS = {  # metrics of the evaluation; with the prefix CHANGE the report's differences to sft
    GREEDY: "greedy",
    f"{CHANGE}{GREEDY}": "change",
    BEST: "at its best temperature",
    f"{CHANGE}{BEST}": "change",
    HOT: "mean@8 at 1.0",
    f"{CHANGE}{HOT}": "change",
    "strict_majority_at_8_t1.0": "majority@8 at 1.0",
    "strict_best_of_8_t1.0": "best of 8 at 1.0",
    "strict_pass_at_8_t1.0": "pass@8 at 1.0",
    "rubric_greedy": "rubric (of 10), greedy",
    "reward_sampled_t1.0": "reward at 1.0",
    "kl_sampled_t1.0": "KL to SFT at 1.0",
}
GAINS = {  # differences to sft that are averaged over the seeds: name, factor to the unit shown, decimals
    GREEDY: ("greedy, points", 100, 1),
    "strict_mean_at_8_t0.5": ("mean@8 at 0.5, points", 100, 1),
    HOT: ("mean@8 at 1.0, points", 100, 1),
    "rubric_greedy": ("rubric, greedy", 1, 2),
    "rubric_sampled_t0.5": ("rubric at 0.5", 1, 2),
}


def run_seed(seed: int, folder: Path) -> dict[str, Any]:
    """Run the pipeline with `seed`; its metrics, and the wall time in seconds."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    params = folder / "params.yaml"
    params.write_text(re.sub(r"^  seed: \d+", f"  seed: {seed}", params.read_text(), flags=re.MULTILINE))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "flows.cli", "run", "language"], cwd=folder, env=environment, check=True)
    seconds = time.monotonic() - started
    metrics = {path.stem: json.loads(path.read_text()) for path in (folder / "data/metrics").glob("*.json")}
    lock = YAML(typ="safe").load(folder / "dvc.lock")["stages"]
    outs = {out["path"]: out["md5"] for stage in lock.values() for out in stage["outs"]}
    return {"seed": seed, "seconds": seconds, "outs": outs, **metrics}


def kept(run: dict[str, Any]) -> dict[str, Any]:
    """What the result file keeps of a run: evaluations and changes, the numbers of the second table, hashes of the outs."""
    variance = {key: value for key, value in run["reinforce"].items() if key.startswith("grad_variance/")}
    evaluated = {name: scores for name, scores in sorted(run.items()) if name.startswith("evaluate@")}
    return {
        "seed": run["seed"],
        "seconds": run["seconds"],
        "reward_model": run["reward_model"],
        "reinforce": variance,
        "report": run["report"],
        **evaluated,
        "outs": run["outs"],
    }


def render(result: dict[str, Any]) -> str:
    """benchmarks/seeds.md; `conditions` says under which conditions it was measured."""
    return table(result["runs"]) + "".join(f"\n{line}\n" for line in result.get("conditions", ()))


def headline(result: dict[str, Any]) -> str:
    """A table of the first run, with measures that a mere change of temperature cannot improve."""
    shown = (GREEDY, f"{CHANGE}{GREEDY}", "gained, lost", BEST, f"{CHANGE}{BEST}", HOT)
    lines = [f"| | {' | '.join(COLUMNS.get(name, name) for name in shown)} |", "|---|" + "---|" * len(shown)]
    run = result["runs"][0]
    for policy in POLICIES[1:]:
        of, changes = run[f"evaluate@{policy}"], run["report"].get(policy, {}).get("change", {})
        greedy, best = changes.get(GREEDY), changes.get(BEST)
        cells = [percent(of[GREEDY]["mean"]), points(greedy), f"{greedy['gained']}, {greedy['lost']}" if greedy else ""]
        cells += [f"{percent(of[BEST]['mean'])} {at(of['best_temperature'])}", points(best), percent(of[HOT]["mean"])]
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def percent(share: float) -> str:
    """A share as pages write it."""
    return f"{100 * share:.1f} %"


def points(change: dict[str, float] | None) -> str:
    """A change in points with its interval; empty for the baseline itself."""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * change[k] for k in ("mean", "low", "high"))) if change else ""


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: one row for each policy and seed, then the reward models."""
    lines = [
        "# The default pipeline over seeds",
        "",
        "Made by `python -m benchmarks.seeds`: default params, 500 test problems, each seed in a fresh clone. Strict accuracy; brackets: 95 % intervals over problems. "
        "Changes are differences to sft on the same problems, with paired intervals and, of greedy answers, the problems gained and lost. "
        "Each policy's best temperature, behind the @, was chosen on validation problems; 0 is greedy.",
        "",
        f"| policy | seed | {' | '.join(COLUMNS.values())} |",
        "|---|---|" + "---|" * len(COLUMNS),
    ]
    first = {run["seed"]: run for run in reversed(runs)}
    for policy in POLICIES:
        for run in (first[seed] for seed in sorted(first)):
            lines.append(f"| {policy} | {run['seed']} | {' | '.join(cell(run, policy, name) for name in COLUMNS)} |")
    distinct = {"runs": [first[seed] for seed in sorted(first)]}
    lines += ["", facts({"runs": runs})]
    if len(first) > 1:
        lines += [
            f"Differences to sft over {len(first)} seeds: the mean, the least and the greatest; gained and lost: all seeds' problems.",
            "",
            gains(distinct).removesuffix("\n"),
        ]
    return "\n".join([*lines, *repeated(runs)]) + "\n"


def facts(result: Mapping[str, Any], *names: str) -> str:
    """A row for each run: its reward model, the gradient's variance, the time; all of FACTS, or these."""
    rows = [["seed", *FACTS]]
    for run in result["runs"]:
        model, variance = run["reward_model"], [run["reinforce"][f"grad_variance/{name}"] for name in BASELINES]
        ordered = [scores["against_rubric"][pairs] for scores in (model, model["untrained"]) for pairs in JUDGED]
        cells = [f"{share:.3f}" for share in (model["accuracy"], *ordered)]
        rows.append([str(run["seed"]), *cells, *(f"{value:.1f}" for value in variance), f"{run['seconds']:.0f}"])
    return tables.rows(tables.select(rows, names or FACTS))


def gains(result: Mapping[str, Any], *policies: str) -> str:
    """A row for each policy after sft, or for these: the mean of its changes over seeds with the least and the greatest, and all problems gained and lost."""
    rows = [["policy", *(name for name, _, _ in GAINS.values()), "gained, lost"]]
    for policy in policies or POLICIES[2:]:
        changes = [run["report"][policy]["change"] for run in result["runs"]]
        cells = []
        for metric, (_, factor, decimals) in GAINS.items():
            values = [factor * change[metric]["mean"] for change in changes]
            shown = [f"{value:+.{decimals}f}" for value in (sum(values) / len(values), min(values), max(values))]
            cells.append("{} [{} to {}]".format(*shown))
        counts = [str(sum(change[GREEDY][name] for change in changes)) for name in ("gained", "lost")]
        rows.append([policy, *cells, ", ".join(counts)])
    return tables.rows(rows)


def gain(result: Mapping[str, Any], policy: str) -> str:
    """A sentence: what a policy changes in greedy accuracy over SFT, with Student's interval over the seeds, and whether that is beyond chance."""
    runs = result["runs"]
    before = sum(run["evaluate@sft"][GREEDY]["mean"] for run in runs) / len(runs)
    change = over_seeds([run["report"][policy]["change"][GREEDY]["mean"] for run in runs])
    beyond = change.low > 0 or change.high < 0
    return (
        f"Over {len(runs)} seeds SFT is right in {percent(before)} of the test problems, and {policy} changes that by {100 * change.mean:+.1f} points, "
        f"{'beyond' if beyond else 'not beyond'} chance by Student's 95 % interval over the seeds ({100 * change.low:+.1f} to {100 * change.high:+.1f}).\n"
    )


def solved(result: Mapping[str, Any], policy: str) -> str:
    """A row for each seed: the problems that a policy solves, greedily and in the mean of its samples."""
    rows = [["seed", "greedy", "mean@8 at 0.5", "mean@8 at 1.0"]]
    for run in result["runs"]:
        scores = run[f"evaluate@{policy}"]
        rows.append(
            [str(run["seed"]), *(percent(scores[name]["mean"]) for name in (GREEDY, "strict_mean_at_8_t0.5", HOT))]
        )
    return tables.rows(rows)


def cell(run: dict[str, Any], policy: str, column: str) -> str:
    """A number with its interval, from a policy's evaluation, or from the report if it is a change to sft."""
    changes = run["report"].get(policy, {}).get("change", {})
    found = changes.get(column.removeprefix(CHANGE)) if column.startswith(CHANGE) else run[f"evaluate@{policy}"][column]
    if found is None:
        return ""
    sign = "+" if column.startswith(CHANGE) else ""
    shown = f"{found['mean']:{sign}.3g} [{found['low']:{sign}.3g}, {found['high']:{sign}.3g}]"
    if column == BEST:
        shown += f" @ {run[f'evaluate@{policy}']['best_temperature']:g}"
    return f"{shown}; {found['gained']}, {found['lost']}" if column == f"{CHANGE}{GREEDY}" else shown


def repeated(runs: list[dict[str, Any]]) -> Iterator[str]:
    """For each seed that was run twice: the number of outs with the same hash in both runs."""
    first: dict[int, dict[str, str]] = {}
    for run in runs:
        before = first.setdefault(run["seed"], run["outs"])
        if before is not run["outs"]:
            same = sum(run["outs"].get(path) == md5 for path, md5 in before.items())
            yield f"\nSeed {run['seed']} again, from an empty cache: {same} of {len(before)} outs have the same hash."


def main() -> None:
    """Run the seeds named on the command line, or 0, 1, 2."""
    runs: list[dict[str, Any]] = []
    single: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in [int(word) for word in sys.argv[1:]] or [0, 1, 2]:
            folder = Path(scratch) / f"seed-{seed}-{len(runs)}"
            runs.append(kept(run_seed(seed, folder)))
            for policy in POLICIES:
                evaluation = folder / "data/evaluate" / policy
                single[f"{policy} / {seed}"] = result_files.problem_values(evaluation, *PROBLEMS)
            result_files.write(RESULT, {"runs": runs}, single)  # a stop keeps the earlier seeds


if __name__ == "__main__":
    main()
