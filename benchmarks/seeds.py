"""What the default pipeline learned, over seeds, before its task was set up anew: benchmarks/seeds.md and tables of other pages.

They are made of benchmarks/results/seeds.json (benchmarks/claims.py). What the present default learns is measured by benchmarks/draws.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import tables
from tasks.common.estimates import over_seeds
from tasks.language.reporting.scoreboard import at

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
        "Of the earlier default task (commit a8899a6; [benchmarks/draws.py](draws.py) measures the present one): 500 test problems, each seed in a fresh clone. Strict accuracy; brackets: 95 % intervals over problems. "
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
