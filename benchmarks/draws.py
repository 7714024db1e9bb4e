"""What the default language flow learns, over draws: `python -m benchmarks.draws [DRAW ...]`, 0 to 9 unless named.

A draw has its number as the seed of every section of params.yaml: other data, other models, other test problems. Each
is run in a fresh clone of the last commit, with an empty cache, and kept in benchmarks/results/default_draws.json as
soon as it ends (a draw is less than an hour), so the same command goes on where it was stopped. Draws of other params
are not mixed: the file says of which params it is, by the hash of their sections without seeds, and the report shows
the spread where its own params have that hash. When the default run has ended, preset full's further methods are
trained in the same clone, and REINFORCE once more without a baseline.

Settings are chosen on draws 100 to 109 (`--result benchmarks/results/pilot_draws.json`), and only then is one of 0 to 9
run.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

from benchmarks import result_files, tables
from flows.engine.plan import plan_stages
from flows.running import get_flow_targets
from flows.web.run_head import DRAWS, hash_params_without_seeds
from tasks.common import paired_intervals
from tasks.common.estimates import Estimate
from tasks.language.reporting import reward_section

ROOT = Path(__file__).parents[1]
SEED = re.compile(r"^(  )?seed: (&seed )?\d+", re.MULTILINE)
RIGHT = "strict_greedy"
GOLD = "gold_greedy"
SINGLE = (RIGHT, GOLD)  # metrics whose values are kept, problem by problem
PARTS = ("gold_by_manner", "gold_by_correctness")
KINDS = ("longer", "larger", "words", "sums")
FURTHER = ("rejection_sft", "reinforce")  # methods that the default leaves out
UNAIDED = "reinforce without baseline"
VARIANCE = "grad_variance/"


def create_draw_clone(draw: int, folder: Path, preset: str) -> None:
    """Make a fresh clone at `folder` with `draw` as every seed."""
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(folder)], check=True)
    if preset:
        run_posttrain(folder, "preset", preset)
    params = folder / "params.yaml"
    params.write_text(SEED.sub(rf"\g<1>seed: \g<2>{draw}", params.read_text()))


def run_posttrain(folder: Path, *arguments: str) -> None:
    """Run a command of the clone at `folder`."""
    command = [sys.executable, "-m", "flows.start", *arguments]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=True)


def train_further_methods(draw: int, folder: Path, policies: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train the methods that the default leaves out: what is kept of them, and their values problem by problem."""
    methods = [name for name in FURTHER if name not in policies]
    row = {}
    single = {}
    run_posttrain(folder, "run", "language", "--set", f"report.policies=[{', '.join([*policies, *methods])}]")
    found = collect_draw_results(draw, folder)
    for name in methods:
        row[name], single[name] = found[name], load_policy_values(folder, name)
    curve = pd.read_csv(folder / "data/curves/reinforce.csv")  # a measurement stands in each row until the next
    row["variance"] = {name.removeprefix(VARIANCE): float(curve[name].mean()) for name in curve if VARIANCE in name}
    run_posttrain(folder, "run", "language", "--set", "reinforce.baseline=none")
    row[UNAIDED], single[UNAIDED] = (
        collect_draw_results(draw, folder)["reinforce"],
        load_policy_values(folder, "reinforce"),
    )
    return row, single


def load_policy_values(folder: Path, policy: str) -> dict[str, list[float]]:
    """A policy's values that are kept problem by problem."""
    return result_files.load_problem_values(folder / "data/evaluate" / policy, *SINGLE)


def collect_draw_results(draw: int, folder: Path) -> dict[str, Any]:
    """What the result file keeps of a draw: by policy the means of its greedy measures, and of gold's change by manner
    and by being right.
    """
    metrics = {path.stem: json.loads(path.read_text()) for path in (folder / "data/metrics").glob("*.json")}
    row: dict[str, Any] = {
        "draw": draw,
        "reward_model": {**metrics["reward_model"], **compute_likelihood_accuracy(folder)},
    }
    for name, scores in sorted(metrics.items()):
        if name.startswith("evaluate@"):
            policy = name.removeprefix("evaluate@")
            means = {
                key: value["mean"] for key, value in scores.items() if "_greedy" in key and isinstance(value, dict)
            }
            change = metrics["report"].get(policy, {}).get("change", {})
            row[policy] = {**means, **{part: change[part]["mean"] for part in PARTS if part in change}}
    return row


def compute_likelihood_accuracy(folder: Path) -> dict[str, float]:
    """Of the held-out pairs the share that SFT orders as labelled, by the summed log-probability or its mean a token,
    whichever is better.
    """
    section = reward_section.build_reward_section(folder / "data/reward_model", seed=0, resamples=200)
    return {"likelihood": section.gain.before} if section and section.gain else {}


def hash_folder_params(folder: Path) -> str:
    """The hash by which the report knows its own params."""
    params = YAML(typ="safe").load(folder / "params.yaml")
    sections = {stage.name.partition("@")[0] for stage in plan_stages(folder, get_flow_targets("language"))}
    return hash_params_without_seeds(params, sections - {"report"})


def render(result: Mapping[str, Any]) -> str:
    """benchmarks/draws.md: each policy over the draws, then draw by draw."""
    draws = result["draws"]
    lines = [
        "# The default language flow over draws",
        "",
        f"Made by `python -m benchmarks.draws`: {len(draws)} draws, each with other data, other models and other "
        "test problems; greedy answers. Means over draws with Student's 95 % interval; "
        "p-values are corrected for the number of methods (Holm). In each draw the better control is the one that "
        "is right more often on the test problems.",
        "",
        over_draws(result),
        "Right answers to problems of other kinds than those learned from, mean over draws:",
        "",
        render_problem_kinds_table(result),
        "Right answers, draw by draw:",
        "",
        render_accuracy_by_draw(result),
        "Held-out pairs that the reward model orders as labelled, and those that SFT does by its log-probability, "
        "of an answer or a token, whichever is better:",
        "",
        reward_model(result),
        "The variance of REINFORCE's gradient, a mean over the measurements of a training:",
        "",
        gradient_variance(result),
        with_baseline(result),
    ]
    return "\n".join(lines)


def headline(result: Mapping[str, Any]) -> str:
    """What the page of the repository says: the best method by right answers, and the best by gold ones."""
    draws = result["draws"]
    baseline = result["baseline"]
    means = {
        metric: {name: fmean([draw[name][metric] for draw in draws]) for name in (baseline, *list_methods(result))}
        for metric in SINGLE
    }
    right, gold = (max(list_methods(result), key=means[metric].__getitem__) for metric in SINGLE)
    change, _ = paired_intervals.student_t_interval([compute_gain_over_control(result, draw, right) for draw in draws])
    verdict = "beats" if change.low > 0 else "is below" if change.high < 0 else "cannot be told from"
    paid, _ = paired_intervals.student_t_interval([compute_gain_over_control(result, draw, gold) for draw in draws])
    lost = " Beyond chance it has fewer right answers than that control."
    return (
        f"Over {len(draws)} draws of data, models and test problems, {right} has the most right answers of the methods "
        f"and {verdict} SFT continued on worked problems of the same pool (of two such controls, each draw counts the "
        f"one with more right answers): {format_points(change)} points, with the 95 % interval. {gold} "
        "has the most gold answers, which are right, show the reference's steps, name each result and say nothing "
        f"else: {100 * means[GOLD][gold]:.0f} %, where SFT has {100 * means[GOLD][baseline]:.0f} %."
        f"{lost if paid.high < 0 else ''}\n"
    )


def over_draws(result: Mapping[str, Any], *names: str) -> str:
    """A row for each policy, or for these: right answers, their difference to the better control, gold answers, and
    what those gained by manner and by being right.
    """
    draws = result["draws"]
    baseline = result["baseline"]
    tests = {
        name: paired_intervals.student_t_interval([compute_gain_over_control(result, draw, name) for draw in draws])
        for name in list_methods(result)
    }
    corrected = dict(zip(tests, paired_intervals.holm_correction([p for _, p in tests.values()]).p, strict=True))
    heads = ("right", "over the better control, points", "p", "gold", "over SFT, points", "by manner", "by being right")
    rows = [["policy", *heads]]
    for name in names or list_policies(result):
        right, gold = (f"{100 * fmean([draw[name][metric] for draw in draws]):.1f} %" for metric in SINGLE)
        change = [format_points(tests[name][0]), f"{corrected[name]:.2g}"] if name in tests else ["", ""]
        gained = ["", "", ""]
        if name != baseline:
            total = paired_intervals.student_t_interval([draw[name][GOLD] - draw[baseline][GOLD] for draw in draws])[0]
            gained = [
                format_points(total),
                *(f"{100 * fmean([draw[name][part] for draw in draws]):+.1f}" for part in PARTS),
            ]
        rows.append([name, right, *change, gold, *gained])
    return tables.render_markdown_table(rows)


def format_points(change: Estimate) -> str:
    """A change of a share in points, with its interval."""
    return f"{100 * change.mean:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"


def render_problem_kinds_table(result: Mapping[str, Any]) -> str:
    """A row for each policy: right answers to each small set of another kind."""
    rows = [["policy", *KINDS]]
    for name in list_policies(result):
        shares = [fmean([draw[name][f"{RIGHT}_{kind}"] for draw in result["draws"]]) for kind in KINDS]
        rows.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    return tables.render_markdown_table(rows)


def render_accuracy_by_draw(result: Mapping[str, Any]) -> str:
    """A row for each draw: right answers of each policy."""
    rows = [["draw", *list_policies(result)]]
    for draw in result["draws"]:
        shares = [draw[name][RIGHT] for name in list_policies(result)]
        rows.append([str(draw["draw"]), *(f"{100 * share:.1f} %" for share in shares)])
    return tables.render_markdown_table(rows)


def gradient_variance(result: Mapping[str, Any]) -> str:
    """A row for each draw: the variance of REINFORCE's gradient by what each token is weighted with, over that with
    reward-to-go alone.
    """
    heads = {
        "total_return": "total return",
        "none": "reward-to-go",
        "running_mean": "less a running mean",
        "critic": "less a critic",
    }
    rows = [["draw", *heads.values()]]
    for draw in result["draws"]:
        rows.append([str(draw["draw"]), *(f"{draw['variance'][name]:.1f}" for name in heads)])
    ratios = {name: [draw["variance"][name] / draw["variance"]["none"] for draw in result["draws"]] for name in heads}
    rows.append(["of reward-to-go's, mean", *(f"{fmean(values):.2f}" for values in ratios.values())])
    return tables.render_markdown_table(rows)


def with_baseline(result: Mapping[str, Any]) -> str:
    """One sentence: what REINFORCE's baseline is worth in right answers."""
    change, p = paired_intervals.student_t_interval(
        [draw["reinforce"][RIGHT] - draw[UNAIDED][RIGHT] for draw in result["draws"]]
    )
    apart = "" if change.low > 0 or change.high < 0 else ", which cannot be told from nothing"
    return (
        f"Over {len(result['draws'])} draws REINFORCE with a critic as baseline has {format_points(change)} points of "
        "right answers more than without "
        f"one (p = {p:.2g}){apart}.\n"
    )


def reward_model(result: Mapping[str, Any]) -> str:
    """A row for each draw: the share of held-out pairs that are ordered as labelled, after training and before it."""
    rows = [["draw", "reward model", "SFT's log-probability", "difference, points"]]
    gains = list[float]()
    for draw in result["draws"]:
        trained = draw["reward_model"]["accuracy"]
        likelihood = draw["reward_model"]["likelihood"]
        gains.append(trained - likelihood)
        shares = f"{100 * trained:.1f} %", f"{100 * likelihood:.1f} %", f"{100 * gains[-1]:+.1f}"
        rows.append([str(draw["draw"]), *shares])
    rows.append(["mean", "", "", format_points(paired_intervals.student_t_interval(gains)[0])])
    return tables.render_markdown_table(rows)


def list_policies(result: Mapping[str, Any]) -> list[str]:
    """The policies that every draw has, in the report's order, and behind them the further ones."""
    names = dict.fromkeys([*result["policies"], *FURTHER, UNAIDED])
    return [name for name in names if all(name in draw for draw in result["draws"])]


def list_methods(result: Mapping[str, Any]) -> list[str]:
    """Those that are neither the baseline, nor a control, nor the model that the baseline started from."""
    names = list_policies(result)
    return [name for name in names[names.index(result["baseline"]) + 1 :] if name not in result["controls"]]


def compute_gain_over_control(result: Mapping[str, Any], draw: Mapping[str, Any], name: str) -> float:
    """What a policy has of right answers above the better control, which is the baseline where no control is better."""
    return float(draw[name][RIGHT] - max(draw[other][RIGHT] for other in (*result["controls"], result["baseline"])))


def main() -> None:
    """Run the draws that the file does not have yet."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.draws", description=__doc__)
    parser.add_argument("draws", nargs="*", type=int, metavar="DRAW")
    parser.add_argument("--preset", default="", help="lay this preset over the default first, such as full")
    parser.add_argument("--result", type=Path, default=ROOT / DRAWS, help="the file that the draws are kept in")
    arguments = parser.parse_args()
    for draw in arguments.draws or range(10):
        result = result_files.load_result(arguments.result, {"draws": []})
        if any(done["draw"] == draw for done in result["draws"]):
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # MLflow may still be written
            folder = Path(scratch) / f"draw-{draw}"
            began = time.monotonic()
            create_draw_clone(draw, folder, arguments.preset)
            run_posttrain(folder, "run", "language")
            seconds = time.monotonic() - began
            report = YAML(typ="safe").load(folder / "params.yaml")["report"]
            facts = {key: report[key] for key in ("policies", "baseline", "controls")}
            facts["params_hash"] = hash_folder_params(folder)
            if result["draws"] and {key: result[key] for key in facts} != facts:
                raise SystemExit(f"{arguments.result}: its draws are of other params; move it away to begin anew")
            row = {**collect_draw_results(draw, folder), "seconds": seconds}
            single = {policy: load_policy_values(folder, policy) for policy in facts["policies"]}
            others, their_values = train_further_methods(draw, folder, facts["policies"])
            draws = [*result["draws"], {**row, **others}]
            single = {f"{policy} / {draw}": held for policy, held in {**single, **their_values}.items()}
            ordered = sorted(draws, key=lambda row: row["draw"])
            result_files.write_result(arguments.result, {**facts, "draws": ordered}, single, adds=True)


if __name__ == "__main__":
    main()
