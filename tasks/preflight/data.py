"""The files that a run would read, read with the stages' own readers: what is there, and whether it fits together.

A fault that a stage would find after others have trained for hours is one line here, in seconds.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language import corpus, demonstrations, evaluate, mixture, problems, reviews
from tasks.language.configs.mixture import Dataset
from tasks.language.configs.preferences import PreferencesConfig
from tasks.language.data import forms, given_pairs, labelled_texts, messages, problem_forms
from tasks.language.data.rows import hub_rows, read_file, read_files
from tasks.language.judgements import judged_pairs, record
from tasks.language.rewards import rewards
from tasks.language.steps import people

Configs = Mapping[str, Any]  # section -> its Config
POLICIES = ("rejection_sft", "reinforce", "ppo", "grpo")  # the stages that sample answers to the mixture's prompts
LARGE = 200 * 2**20  # bytes; larger files are left to the stages


def read(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """A line for each source of data among `stages`, which will run; ConfigError or DataError for the first fault.

    A stage's own output cannot be read before it is there, nor can a data set of a hub be without downloading it.
    """
    yield from _problems(configs, stages)
    yield from _reviews(configs, stages)
    own = configs["demonstrations"]
    if "demonstrations" in stages and own.source in ("files", "people") and readable(own.path):
        rows, losses = demonstrations.read(own, Path(own.path))
        if configs["pretrained"].init == "scratch":
            check_roles(rows, own.path)
        train, held_out = demonstrations.split(own, rows, own.path)
        yield f"demonstrations: {len(train):,} to learn from and {len(held_out):,} held out from {own.path}"
        yield from losses.lines("demonstrations")
    if "preferences" in stages:
        yield from _preferences(configs["preferences"])
    own = configs["solutions"]
    if "solutions" in stages and own.source == "people" and readable(own.judgements):
        judged = people.judged(record.read(Path(own.judgements)))
        yield f"solutions: {len(judged):,} judged step by step in {own.judgements}{_missing(own.minimum - len(judged), ' --mode steps')}"
    if "solutions" in stages and own.source == "files" and readable(own.path):
        answers = labelled_texts.answers(read_files(Path(own.path)))
        yield f"solutions: {len(answers):,} answers with a label from {own.path}, {sum(row['right'] for row in answers):,} of them right"
    own = configs["mixture"]
    for one in own.datasets if "mixture" in stages else ():
        if one.source == "file" and readable(str(Path(own.path) / one.location)):
            rows = [mixture.prompt(one, row) for row in mixture.available(own, one, Path(), Path(own.path))]
            _check_rewards(configs, stages, one, rows)
            yield f"mixture: {len(rows):,} prompts in {one.name}"
    own = configs["evaluate"]
    if any(name.startswith("evaluate@") for name in stages) and own.source == "files" and readable(own.path):
        table = evaluate.test_problems(own, Path(), Path(own.path))
        known = int((table["answer"] != "").sum())
        note = "; without an answer to each nothing is counted as right or wrong" if 0 < known < len(table) else ""
        yield f"evaluate: {len(table):,} test problems from {own.path}, {known:,} with an answer{note}"


def _reviews(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """What files of reviews hold, and one's own text for pretraining."""
    own = configs["reviews"]
    if "reviews" in stages and own.source == "files" and readable(own.path):
        found, _ = reviews.given(own, Path(own.path))
        reviews.divided(own, found)
        yield f"reviews: {len(found):,} from {own.path}, {sum(row['positive'] for row in found):,} of them positive"
    own = configs["corpus"]
    if "corpus" in stages and own.source == "files" and readable(own.path):
        yield f"corpus: {len(corpus.read(Path(own.path))):,} texts from {own.path}"


def _preferences(own: PreferencesConfig) -> Iterator[str]:
    """What files of pairs hold, and how much people have judged."""
    path = own.path if own.source == "files" else own.pairs_path
    if "files" in own.sources and readable(path):
        found = given_pairs.read(read_files(Path(path)), own.test_share, own.seed, path)
        yield (
            f"preferences: {len(found.train):,} pairs to learn from and {len(found.test):,} held out from {path}; left out: "
            f"{found.equal} of equal texts, {found.duplicates} repeated, {found.leaked} whose prompt is held out"
        )
        yield from found.lines("preferences")
    if "people" in own.sources and readable(own.judgements):
        judged = judged_pairs.counted(record.read(Path(own.judgements)))
        judges = len({one.person for one in judged})
        rest = _missing(own.minimum - len(judged))
        yield f"preferences: {len(judged):,} judgements by {judges} people in {own.judgements}{rest}"


def _missing(judgements: int, mode: str = "") -> str:
    """How many judgements are waited for, and by which command they are given."""
    return f"; waiting for {judgements} more: posttrain label{mode}" if judgements > 0 else ""


def _problems(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """What is known of the training problems before they are there: by the user's files, or by the card of a hub set."""
    own = configs["problems"]
    if "problems" not in stages or own.source == "generated":
        return
    if own.source == "hub":
        there = hub_rows(own.hub_id, own.hub_config, own.hub_revision, "train") if _skips(configs, stages) else None
        if there is None:
            return
        there = max(0, min(own.train, there - own.validation))
        yield f"problems: at most {there:,} train in {own.hub_id}"
    elif readable(own.path):
        raw = Path(own.path)
        parts = [problem_forms.read(read_file(problems.one_file(raw, name))) for name in ("train", "test")]
        splits, _ = problems.split(own, parts[0], parts[1])
        there = len(splits["train"])
        yield f"problems: {', '.join(f'{len(rows):,} {name}' for name, rows in splits.items())} from {raw}"
    else:
        return
    for section in _skips(configs, stages):
        problem_forms.check_skip(section, configs[section].skip, there)


def check_roles(rows: Sequence[Record], source: str) -> None:
    """DataError where a conversation has turns that the tokenizer of a model from scratch has no token for."""
    for row in rows:
        for number, turn in enumerate(forms.from_json(row["messages"]) if row["messages"] else [], 1):
            if turn["role"] not in ("user", "assistant", messages.TOOLS):
                raise DataError(
                    f"{source}: {row['demonstration_id']}: message {number} ({turn['role']}): a model from scratch knows user and "
                    "assistant only; expected pretrained.init directory or hub, or conversations without it"
                )


def _skips(configs: Configs, stages: Collection[str]) -> list[str]:
    """The sections that pass over training problems in this run."""
    mixed = any(one.source == "problems" for one in configs["mixture"].datasets)
    return [name for name in ("responses", "mixture") if name in stages and (mixed or name == "responses")]


def _check_rewards(configs: Configs, stages: Collection[str], one: Dataset, rows: list[Record]) -> None:
    """DataError for the first prompt that lacks what a reward reads that counts for it."""
    for section in POLICIES:
        weights = configs[section].reward if one.reward == "policy" else {one.reward: 1.0}
        for row in rows if section in stages else ():
            columns = json.loads(row["columns"]) if row["columns"] else {}
            if wrong := rewards.fault(row, columns, weights):
                where, name = (
                    Path(configs["mixture"].path) / one.location,
                    row["prompt_id"].removeprefix(f"{one.name}/"),
                )
                raise DataError(f"{section}: {where}: {name}: {wrong}")


def readable(path: str) -> bool:
    """Whether it is the user's own, and not too large: what a stage makes lies in data/ beside data/raw."""
    made = path.startswith("data/") and not path.startswith("data/raw/")
    return not made and small(Path(path))


def small(path: Path) -> bool:
    """Whether it is worth reading before a run."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) <= LARGE
