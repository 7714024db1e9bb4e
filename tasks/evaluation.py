"""`python -m tasks.evaluation MODEL --out DIR`: judge one checkpoint alone. `posttrain evaluate` starts it.

It is the stage `evaluate` without a pipeline: any model in Hugging Face layout, any test set, the same tables and
measures, and a run in MLflow of its own. Nothing has to be trained first, and no reward model and no reference are
needed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from transformers.utils import logging

from tasks.algorithms.common.errors import TrainingError
from tasks.common import model_files, models, tables, tracking
from tasks.common.errors import DataError, StageError
from tasks.language import evaluate
from tasks.language.configs.evaluate import EvaluateConfig
from tasks.language.data import test_sets
from tasks.language.evaluate import Models
from tasks.language.rewards import reward_model_files
from tasks.language.rewards.answers import find_marked_answer
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tasks.language.training import starting_model
from tasks.stage import read_section

NUMBERS = ("problems", "samples", "max_new_tokens", "batch_size")  # keys of the section that have a flag
SHARES = (
    "strict",
    "lenient",
    "timed_out",
    "unjudged",
    "ended",
    "gold",
    "steps",
    "manner",
    "pair",
)  # how the names begin of what is shown in percent
DOWNLOADED = ("*.safetensors", "*.json", "*.model", "*.txt", "*.jinja")  # from the hub: no pickles, no code


def load_or_fetch_models(model: str, revision: str, reward_model: Path | None) -> Models:
    """A model by its folder or hub id, with a chat template and a padding token where it has none; and the reward
    model.
    """
    folder = Path(model)
    if not folder.is_dir():
        folder = fetch_model_files(model, revision)
    policy, tokenizer = starting_model.load_model_from_folder(folder, "MODEL")
    if reward_model is not None and model_files.load_tokenizer(reward_model).get_vocab() != tokenizer.get_vocab():
        raise DataError(f"{reward_model}: the reward model has another tokenizer than {model}, which it is to score")
    scorer = None if reward_model is None else reward_model_files.load_reward_model(reward_model)
    return Models(models.prepare_model_on_device(policy, tokenizer), None, scorer, tokenizer)


def fetch_model_files(model: str, revision: str) -> Path:
    """The files of a model of the hub, in the hub's own cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(DOWNLOADED)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise DataError(
            f"{model}: no folder here, and not from the hub: {' '.join(str(error).split())[:200]}"
        ) from None


def build_evaluate_config(arguments: argparse.Namespace) -> EvaluateConfig:
    """The section `evaluate` with what the command line says otherwise."""
    changes: dict[str, object] = {name: value for name in NUMBERS if (value := getattr(arguments, name)) is not None}
    if arguments.data is not None:
        changes |= {"source": "files", "path": str(arguments.data)}
    section = read_section("evaluate", EvaluateConfig).model_dump() | changes
    if "samples" in changes:
        section["pass_at"] = [k for k in section["pass_at"] if k <= section["samples"]] or [1]
    return EvaluateConfig.model_validate_json(json.dumps(section))


def evaluate_checkpoint(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Judge the model, write the tables to `arguments.out`, and return the measures."""
    config = build_evaluate_config(arguments)
    out = Path(arguments.out)
    if config.source == "problems" and not (arguments.problems_folder / "test.parquet").is_file():
        raise DataError(
            f"{arguments.problems_folder}: the pipeline's test problems are not there; expected --data with "
            "problems of your own, or "
            "`posttrain run problems` first"
        )
    all_problems = test_sets.read_or_fetch_test_problems(config, arguments.problems_folder, arguments.data or Path())
    tracking.announce_phase(f"loading {arguments.model}")
    loaded = load_or_fetch_models(arguments.model, arguments.revision, arguments.reward_model)
    problems = evaluate.select_fitting_problems(config, loaded, all_problems)
    tables.write_table(Problems, problems, out / "asked.parquet")
    measures = evaluate.evaluate_on_test_set(config, loaded, problems, arguments.problems_folder, out)
    (out / "evaluation.json").write_text(json.dumps(measures, indent=1) + "\n")
    return measures


def format_answer_counts(generations: pd.DataFrame, max_new_tokens: int) -> str:
    """How many of the greedy answers were cut off, mark no final answer, or are empty."""
    greedy = generations[generations["temperature"] == 0]
    empty = greedy["response"].str.strip() == ""
    counts = [f"{(~greedy['ended']).sum()} cut off at max_new_tokens {max_new_tokens}"]
    if "strict" in greedy:
        unmarked = greedy["response"].map(find_marked_answer).isna() & ~empty
        counts.append(f"{unmarked.sum()} without a marked final answer (#### or \\boxed{{}})")
    return ", ".join([*counts, f"{empty.sum()} empty"])


def iterate_measure_lines(measures: Mapping[str, Any]) -> Iterator[str]:
    """A table of the measures of the greedy answers with their intervals, after a line on what each of them means."""
    shown = [name for name in evaluate.ESTIMATES if name in measures and name.endswith(("_greedy", "reference_loss"))]
    for name in shown:
        yield f"{name.removesuffix('_greedy')}: {evaluate.ESTIMATES[name]}"
    yield f"{'measure':<16}{'mean':>8}    95 % interval over problems"
    for name in shown:
        value = measures[name]
        share = name.startswith(SHARES)
        low, mean, high = (100 * value[key] if share else value[key] for key in ("low", "mean", "high"))
        unit = " %" if share else "  "
        yield f"{name.removesuffix('_greedy'):<16}{mean:8.2f}{unit}  {low:.2f} to {high:.2f}"


def build_evaluation_parser(module: str, description: str) -> argparse.ArgumentParser:
    """The options that every evaluation of one model has."""
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    options.add_argument("model")
    options.add_argument("--revision", default="main")
    options.add_argument("--out", type=Path, required=True)
    for name in NUMBERS:
        options.add_argument(f"--{name.replace('_', '-')}", type=int)
    return options


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    options = build_evaluation_parser("tasks.evaluation", __doc__ or "")
    options.add_argument("--data", type=Path)
    options.add_argument("--reward-model", type=Path)
    options.add_argument("--problems-folder", type=Path, default=Path("data/problems"))
    return options.parse_args(arguments)


def run_recorded_evaluation(
    evaluate_model: Callable[[argparse.Namespace], Mapping[str, Any]],
    arguments: argparse.Namespace,
    data: str,
    metrics: Path,
) -> Mapping[str, Any]:
    """The measures of an evaluation, which is a run of its own in MLflow; exit code 2 with one line on standard error
    where it cannot be done.
    """
    logging.disable_progress_bar()
    params = {"model": arguments.model, "data": data, "revision": arguments.revision}
    try:
        with tracking.record_stage_run("language", "evaluation", params, metrics):
            return evaluate_model(arguments)
    except (StageError, TrainingError) as error:
        print(f"posttrain: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def main() -> None:
    """Exit code 2 with one line on standard error where the model or the data cannot be used."""
    arguments = parse_arguments(sys.argv[1:])
    metrics = arguments.out / "evaluation.json"
    measures = run_recorded_evaluation(evaluate_checkpoint, arguments, str(arguments.data or "data/problems"), metrics)
    count = f"{measures['asked']} test problem{'s' if measures['asked'] != 1 else ''}"
    generations = tables.read_table(Generations, arguments.out / "generations.parquet")
    counts = format_answer_counts(generations, build_evaluate_config(arguments).max_new_tokens)
    print(f"{arguments.model}: greedy answers to {count}: {counts}")
    print("\n".join(iterate_measure_lines(measures)))
    print(f"all measures: {metrics}; answers: {arguments.out / 'generations.parquet'}")


if __name__ == "__main__":
    main()
