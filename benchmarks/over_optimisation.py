"""A reward model that is optimised too far: `python -m benchmarks.over_optimisation DATA --small SFT --scratch FOLDER`.

DATA is the data folder of a run of the default pipeline up to `reward_model`; SFT is a model of a quarter of the size,
fine-tuned on the same data (tasks/extensions/search/README.md has the commands). Heads of both sizes are trained on 60,
500 and all pairs of presets/fault-over-optimised.yaml, by about as many updates. Then the proxy is optimised in two
ways, as in arXiv:2210.10760: best of n of SFT's answers by the head, whose KL to SFT is log n - (n - 1) / n, and PPO
by the preset. The gold is the rubric, of whose points the pairs' labels were made. Results go to
benchmarks/results/training_faults/over-optimised.json, the picture to docs/faults/over-optimised.png.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import over_optimisation_picture, result_files, variants
from benchmarks.training_faults import workspace
from flows.params import checking, editing, files
from tasks.common import estimates, models
from tasks.extensions.search import sampling, scoring, subsets
from tasks.extensions.search.configs.search import SearchConfig
from tasks.language import reward_model
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.data import chat
from tasks.language.reporting import judging
from tasks.language.rewards import reward_model_files
from tasks.language.rewards.verifier import Verifier

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/training_faults/over-optimised.json"
PICTURE = ROOT / "docs/faults/over-optimised.png"
PRESET = "fault-over-optimised"
PAIRS: dict[str, int | None] = {"60 pairs": 60, "500 pairs": 500, "all pairs": None}
ASKED = {"problems": 200, "samples": 128, "temperature": 1.0}  # of the section search
WEAKER = ["ppo.kl_coefficient=0.0", "ppo.steps=64"]  # PPO goes further than with the preset's weak pull
RESAMPLES = 1000
Floats = NDArray[np.float64]


def best_of_n_kl(n: int) -> float:
    """The KL divergence of the best of n samples from one sample, in nats, where no two samples tie."""
    return float(np.log(n) - (n - 1) / n)


def prepare_preset_clone(folder: Path, given: Path) -> None:
    """A clone with the preset's parameters and the outs of an earlier run; the preferences are the preset's."""
    workspace.prepare_fault_clone(folder, 0, given)
    types = checking.load_config_classes(folder)
    editing.edit_params(folder, types, editing.load_preset_edits(folder, types, PRESET))
    variants.run_stage_command(folder, "preferences")


def create_pair_subset(folder: Path, pairs: int | None) -> tuple[Path, int]:
    """A folder of preferences with so many training pairs, one of a prompt, or with all; and the number of their
    prompts.
    """
    whole = folder / "data/preferences"
    table = pd.read_parquet(whole / "train.parquet")
    if pairs is None:
        return whole, table["prompt_id"].nunique()
    part = folder / f"data/preferences-{pairs}"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(whole, part)
    table.groupby("prompt_id").sample(1, random_state=0).sample(pairs, random_state=0).to_parquet(
        part / "train.parquet"
    )
    return part, pairs


def train_head(folder: Path, sft: Path, pairs: int | None, out: Path) -> dict[str, Any]:
    """A reward model on so many pairs, with as many epochs as make the updates of one epoch of all; its accuracies."""
    data, prompts = create_pair_subset(folder, pairs)
    epochs = round(create_pair_subset(folder, None)[1] / prompts)
    section = {**files.parse_params((folder / "params.yaml").read_text())["reward_model"], "epochs": epochs}
    curve = out.with_suffix(".csv")
    found = reward_model.run(RewardModelConfig.parse_section(section), sft, data, out, curve)
    fitted = float(pd.read_csv(curve)["accuracy"].tail(20).mean())
    return {"epochs": epochs, "held_out": found["accuracy"], "fitted": fitted}


def sample_test_answers(folder: Path) -> tuple[pd.DataFrame, sampling.TestPrompts]:
    """SFT's answers to the test problems, with the gold: rubric points over ten."""
    section = {**files.parse_params((folder / "params.yaml").read_text())["search"], **ASKED}
    config = SearchConfig.parse_section(section)
    sft = folder / "data/sft"
    assert isinstance(config, SearchConfig)
    tokenizer = models.load_tokenizer(sft)
    given = sampling.load_test_prompts(config, folder / "data/problems", tokenizer)
    with Verifier() as verifier:
        drawn = sampling.sample_answers(
            config, "sft", sampling.load_sampling_policy(sft, tokenizer), tokenizer, given, verifier
        )
    drawn = drawn[~drawn["greedy"]].reset_index(drop=True)
    by_id = {problem["problem_id"]: problem for problem in given.problems}
    drawn["rubric"] = [
        judging.compute_rubric_points(
            by_id[row.problem_id], chat.decode_response(tokenizer, row.tokens, row.ended), row.ended
        )["rubric"]
        / 10
        for row in drawn.itertuples()
    ]
    return drawn, given


def measure_best_of_n(drawn: pd.DataFrame, score: Floats) -> dict[str, Any]:
    """Proxy, rubric and accuracy of the best of n by the score, as means over all subsets and problems with 95 %
    intervals.

    The proxy is in standard deviations of one problem's samples, from the mean of its samples.
    """
    groups = drawn.assign(score=score).groupby("problem_id", sort=False)
    wanted = subsets.list_budgets(int(groups.size().min()))
    spread = float(np.sqrt(groups["score"].var(ddof=0).mean()))
    by_problem: dict[str, list[Floats]] = {"proxy": [], "rubric": [], "right": []}
    for _, own in groups:
        scores = own["score"].to_numpy()
        values = {
            "proxy": (scores - scores.mean()) / spread,
            "rubric": own["rubric"].to_numpy(),
            "right": own["right"].to_numpy(),
        }
        for name, value in values.items():
            by_problem[name].append(subsets.best_of_n_accuracy(scores, value, wanted))
    found: dict[str, Any] = {"n": wanted, "kl": [best_of_n_kl(n) for n in wanted]}
    for name, rows in by_problem.items():
        found[name] = [_bootstrap_interval(column) for column in np.array(rows).T]
        found[f"{name}_over_one"] = [
            _bootstrap_interval(column) for column in (np.array(rows) - np.array(rows)[:, :1]).T
        ]
    return found


def _bootstrap_interval(values: Floats) -> list[float]:
    estimate = estimates.bootstrap_mean(pd.Series(values), 0, RESAMPLES)
    return [round(value, 5) for value in (estimate.mean, estimate.low, estimate.high)]


def train_ppo_and_load_path(folder: Path, head: Path) -> dict[str, Any]:
    """PPO's path by the head of all pairs: KL, and reward, rubric and accuracy on held-out prompts."""
    shutil.rmtree(folder / "data/reward_model", ignore_errors=True)
    shutil.copytree(head, folder / "data/reward_model")
    types = checking.load_config_classes(folder)
    editing.edit_params(folder, types, [editing.parse_setting(text) for text in WEAKER])
    variants.run_stage_command(folder, "ppo")
    frame = pd.read_csv(folder / "data/curves/ppo.csv")
    frame = frame[frame["step"] % 2 == 0]
    names = {"kl": "objective/kl", "proxy": "eval_reward", "rubric": "eval_rubric", "right": "eval_accuracy"}
    return {"step": frame["step"].tolist(), **{name: frame[column].round(5).tolist() for name, column in names.items()}}


def measure_over_optimisation(given: Path, small: Path, folder: Path) -> None:
    """All of it; what is done is in the results at once."""
    prepare_preset_clone(folder, given)
    drawn, asked = sample_test_answers(folder)
    pad = models.load_tokenizer(folder / "data/sft").pad_token_id
    for size, sft in (("default", folder / "data/sft"), ("quarter", small)):
        for name, pairs in PAIRS.items():
            out = folder / f"head-{size}-{pairs or 'all'}"
            trained = train_head(folder, sft, pairs, out)
            scores = scoring.add_score_columns(drawn, {"pairs": reward_model_files.load_reward_model(out)}, asked, pad)[
                "pairs"
            ]
            save_result_and_picture(
                "best of n", f"{size}, {name}", {**trained, **measure_best_of_n(drawn, scores.to_numpy())}
            )
    save_result_and_picture("PPO", "default, all pairs", train_ppo_and_load_path(folder, folder / "head-default-all"))


def save_result_and_picture(kind: str, name: str, row: Mapping[str, Any]) -> None:
    """Add a result, and draw the picture anew."""
    results = result_files.load_result(RESULTS, {})
    results.setdefault(kind, {})[name] = row
    result_files.write_result(RESULTS, results, adds=True)
    over_optimisation_picture.save_over_optimisation_picture(results, PICTURE)


def main() -> None:
    """Measure, or without DATA draw the picture anew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.over_optimisation", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--small", type=Path, help="the SFT model of a quarter of the size")
    parser.add_argument("--scratch", type=Path, help="a folder for the clone, which is kept")
    given = parser.parse_args()
    if given.data is None:
        over_optimisation_picture.save_over_optimisation_picture(result_files.load_result(RESULTS), PICTURE)
    elif given.small is None or given.scratch is None:
        parser.error("DATA needs --small and --scratch")
    else:
        measure_over_optimisation(given.data, given.small, given.scratch)


if __name__ == "__main__":
    main()
