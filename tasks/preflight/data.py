"""The files that a run would read, read with the stages' own readers: what is there, and whether it fits together.

A fault that a stage would find after others have trained for hours is one line here, in seconds.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language import corpus, demonstrations, mixture, problems
from tasks.language.configs.preferences import PreferencesConfig
from tasks.language.data import forms, imported_pairs, labelled_texts, messages, problem_forms, test_sets
from tasks.language.data.rows import fetch_hub_row_count, read_file, read_files
from tasks.language.judgements import judged_pairs, judgement_log
from tasks.language.rewards import weighted_rewards
from tasks.language.steps import people

Configs = Mapping[str, Any]  # section -> its Config
POLICIES = ("rejection_sft", "reinforce", "ppo", "grpo")  # the stages that sample answers to the mixture's prompts
SIDES = {"user", "assistant", messages.TOOLS}  # whose turns a model from scratch has tokens for, or no template reads
TASKS = Path(__file__).parents[1]
LARGE = 200 * 2**20  # bytes; larger files are left to the stages


def iterate_data_source_checks(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """A line for each source of data among `stages`, which will run; ConfigError or DataError for the first fault.

    A stage's own output cannot be read before it is there, nor can a data set of a hub be without downloading it.
    """
    yield from _iterate_training_problem_checks(configs, stages)
    config = configs["corpus"]
    if "corpus" in stages and config.source == "files" and should_read_before_run(config.path):
        yield f"corpus: {len(corpus.read_documents(Path(config.path))):,} texts from {config.path}"
    config = configs["demonstrations"]
    if "demonstrations" in stages and config.source in ("files", "people") and should_read_before_run(config.path):
        rows, omissions = demonstrations.read_or_fetch_demonstrations(config, Path(config.path))
        yield from omissions.lines("demonstrations")
        check_message_roles(configs, rows, config.path)
        train, held_out = demonstrations.split_demonstrations(config, rows, config.path)
        yield f"demonstrations: {len(train):,} to learn from and {len(held_out):,} held out from {config.path}"
    if "preferences" in stages:
        yield from _iterate_preference_checks(configs)
    config = configs["solutions"]
    if "solutions" in stages and config.source == "people" and should_read_before_run(config.judgements):
        judged = people.collect_judged_solutions(judgement_log.read_judgement_record(Path(config.judgements)))
        yield (
            f"solutions: {len(judged):,} judged step by step in "
            f"{config.judgements}{_format_missing_judgements(config.minimum - len(judged), ' --mode steps')}"
        )
    if "solutions" in stages and config.source == "files" and should_read_before_run(config.path):
        answers = labelled_texts.parse_labelled_answers(read_files(Path(config.path)))
        yield (
            f"solutions: {len(answers):,} answers with a label from {config.path}, "
            f"{sum(row['right'] for row in answers):,} of them right"
        )
    config = configs["mixture"]
    for dataset in config.datasets if "mixture" in stages else ():
        if dataset.source == "file" and should_read_before_run(str(Path(config.path) / dataset.location)):
            rows = [
                mixture.make_dataset_prompt(dataset, row)
                for row in mixture.read_or_fetch_dataset_problems(config, dataset, Path(), Path(config.path))
            ]
            check_reward_inputs(configs, stages, rows, Path(config.path) / dataset.location)
            yield f"mixture: {len(rows):,} prompts in {dataset.name}{_format_unknown_role_note(configs, rows)}"
    if "evaluate" in {name.partition("@")[0] for name in stages}:
        yield from _iterate_test_problem_checks(configs)


def _iterate_test_problem_checks(configs: Configs) -> Iterator[str]:
    """What files of test problems and of pairs that are judged hold."""
    config = configs["evaluate"]
    if config.source == "files" and should_read_before_run(config.path):
        table = test_sets.read_or_fetch_test_problems(config, Path(), Path(config.path))
        answered = int((table["answer"] != "").sum())
        note = "; without an answer to each nothing is counted as right or wrong" if 0 < answered < len(table) else ""
        yield (
            f"evaluate: {len(table):,} test problems from {config.path}, {answered:,} with an "
            f"answer{note}{_format_unknown_role_note(configs, tables.list_records(table))}"
        )
    if (
        should_read_before_run(config.pairs_path)
        and (pairs := test_sets.read_held_out_pairs(Path(config.pairs_path))) is not None
    ):
        strange = _format_unknown_role_note(configs, tables.list_records(pairs))
        yield f"evaluate: {len(pairs):,} pairs to be judged from {config.pairs_path}{strange}"


def _iterate_preference_checks(configs: Configs) -> Iterator[str]:
    """What files of pairs hold, and how much people have judged."""
    config: PreferencesConfig = configs["preferences"]
    path = config.path if config.source == "files" else config.pairs_path
    if "files" in config.sources and should_read_before_run(path):
        pairs = imported_pairs.parse_and_split_pairs(read_files(Path(path)), config.test_share, config.seed, path)
        yield (
            f"preferences: {len(pairs.train):,} pairs to learn from and {len(pairs.test):,} held out "
            f"from {path}; left out: "
            f"{pairs.equal} of equal texts, {pairs.duplicates} repeated, {pairs.leaked} whose prompt is held out"
            f"{_format_unknown_role_note(configs, [*pairs.train, *pairs.test])}"
        )
        yield from pairs.lines("preferences")
    if "people" in config.sources and should_read_before_run(config.judgements):
        judged = judged_pairs.select_counted_judgements(judgement_log.read_judgement_record(Path(config.judgements)))
        judges = len({judgement.person for judgement in judged})
        rest = _format_missing_judgements(config.minimum - len(judged))
        yield f"preferences: {len(judged):,} judgements by {judges} people in {config.judgements}{rest}"


def _format_missing_judgements(judgements: int, mode: str = "") -> str:
    """How many judgements are waited for, and by which command they are given."""
    return f"; waiting for {judgements} more: posttrain label{mode}" if judgements > 0 else ""


def _iterate_training_problem_checks(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """What is known of the training problems before they are there: by the user's files, or by the card of a hub
    set.
    """
    config = configs["problems"]
    if "problems" not in stages or config.source == "generated":
        return
    if config.source == "hub":
        count = (
            fetch_hub_row_count(config.hub_id, config.hub_config, config.hub_revision, "train")
            if _list_sections_with_skip(configs, stages)
            else None
        )
        if count is None:
            return
        count = max(0, min(config.train, count - config.validation))
        yield f"problems: at most {count:,} train in {config.hub_id}"
    elif should_read_before_run(config.path):
        raw = Path(config.path)
        parts = [
            problem_forms.parse_problems(read_file(problems.get_split_file_path(raw, name)))
            for name in ("train", "test")
        ]
        splits, _ = problems.split_problems(config, parts[0], parts[1])
        count = len(splits["train"])
        yield f"problems: {', '.join(f'{len(rows):,} {name}' for name, rows in splits.items())} from {raw}"
    else:
        return
    for section in _list_sections_with_skip(configs, stages):
        problem_forms.check_skip(section, configs[section].skip, count)


def check_message_roles(configs: Configs, rows: Iterable[Record], source: str | Path) -> None:
    """DataError where a conversation has turns that the tokenizer of a model from scratch has no token for."""
    for row in rows:
        for number, role in enumerate(_list_roles_if_from_scratch(configs, row["messages"]), 1):
            if role not in SIDES:
                raise DataError(
                    f"{source}: {row['demonstration_id']}: message {number} ({role}): a model from "
                    "scratch knows user and "
                    "assistant only; expected pretrained.init directory or hub, or conversations without it"
                )


def _format_unknown_role_note(configs: Configs, rows: Collection[Record]) -> str:
    """What a model from scratch makes of turns before the prompts that it has no token for."""
    count = sum(not SIDES.issuperset(_list_roles_if_from_scratch(configs, row.get("history"))) for row in rows)
    return (
        f"; in {count:,} of them a model from scratch reads turns before the prompt as the assistant's" if count else ""
    )


def _list_roles_if_from_scratch(configs: Configs, turns: str | None) -> list[str]:
    """The roles of a row's turns where the model is one from scratch; none for another, whose template knows its
    own.
    """
    return (
        [turn["role"] for turn in forms.parse_messages_json(turns)]
        if turns and configs["pretrained"].init == "scratch"
        else []
    )


def _list_sections_with_skip(configs: Configs, stages: Collection[str]) -> list[str]:
    """The sections that pass over training problems in this run."""
    mixed = any(dataset.source == "problems" for dataset in configs["mixture"].datasets)
    return [name for name in ("responses", "mixture") if name in stages and (mixed or name == "responses")]


def check_reward_inputs(configs: Configs, stages: Collection[str], rows: Iterable[Record], where: str | Path) -> None:
    """DataError for the first row of Prompts that lacks what a reward reads that counts for it in one of `stages`."""
    weights = {section: configs[section].reward for section in POLICIES if section in stages}
    for row in rows if weights else ():
        columns = json.loads(row["columns"]) if row["columns"] else {}
        for section, reward_weights in weights.items():
            if wrong := weighted_rewards.find_prompt_fault(
                row, columns, reward_weights if row["reward"] == "policy" else {row["reward"]: 1.0}
            ):
                name = row["prompt_id"].removeprefix(f"{row['dataset']}/")
                raise DataError(f"{section}: {where}: {name}: {wrong}")


def should_read_before_run(path: str) -> bool:
    """Whether it is the user's own, and not too large to be read whole before a run."""
    return not is_stage_output(path) and is_small_enough_to_read(Path(path))


def is_stage_output(path: str) -> bool:
    """Whether a stage makes it: what it writes lies in data/, in a folder of its name."""
    folder, name, *_ = *Path(path).parts, "", ""
    patterns = (f"*/{name}.py", f"extensions/*/configs/{name}.py")
    return folder == "data" and any(any(TASKS.glob(pattern)) for pattern in patterns)


def is_small_enough_to_read(path: Path) -> bool:
    """Whether it is worth reading before a run."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) <= LARGE
