"""The files that a run would read, read with the stages' own readers: what is there, and whether it fits together.

A fault that a stage would find after others have trained for hours is one line here, in seconds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.language import demonstrations, evaluate, mixture, problems
from tasks.language.data import forms, given_pairs, problem_forms
from tasks.language.data.rows import read_file, read_files

Configs = Mapping[str, Any]  # section -> its Config
LARGE = 200 * 2**20  # bytes; larger files are left to the stages


def read(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """A line for each source of data among `stages`, which will run; ConfigError or DataError for the first fault.

    A stage's own output cannot be read before it is there, nor can a data set of a hub be without downloading it.
    """
    own = configs["problems"]
    if "problems" in stages and own.source == "files" and small(Path(own.path)):
        raw = Path(own.path)
        parts = [problem_forms.read(read_file(problems.one_file(raw, name))) for name in ("train", "test")]
        splits = problems.split(own, parts[0], parts[1])
        yield f"problems: {', '.join(f'{len(rows):,} {name}' for name, rows in splits.items())} from {raw}"
        for section in ("responses", "mixture"):
            check_skip(configs, stages, section, len(splits["train"]))
    own = configs["demonstrations"]
    if "demonstrations" in stages and own.source == "files" and readable(own.path):
        rows = demonstrations.read(own, Path(own.path))
        if configs["pretrained"].init == "scratch":
            check_roles(rows, own.path)
        train, held_out = demonstrations.split(own, rows, own.path)
        yield f"demonstrations: {len(train):,} to learn from and {len(held_out):,} held out from {own.path}"
    own = configs["preferences"]
    if "preferences" in stages and own.source == "files" and readable(own.path):
        found = given_pairs.read(read_files(Path(own.path)), own.test_share, own.seed, own.path)
        yield (
            f"preferences: {len(found.train):,} pairs to learn from and {len(found.test):,} held out from {own.path}; left out: "
            f"{found.equal} of equal texts, {found.duplicates} repeated, {found.leaked} whose prompt is held out"
        )
    own = configs["mixture"]
    for one in own.datasets if "mixture" in stages else ():
        if one.source == "file" and readable(str(Path(own.path) / one.location)):
            asked = [mixture.prompt(one, row) for row in mixture.available(own, one, Path(), Path(own.path))]
            yield f"mixture: {len(asked):,} prompts in {one.name}"
    own = configs["evaluate"]
    if any(name.startswith("evaluate@") for name in stages) and own.source == "files" and readable(own.path):
        table = evaluate.test_problems(own, Path(), Path(own.path))
        known = int((table["answer"] != "").sum())
        yield f"evaluate: {len(table):,} test problems from {own.path}, {known:,} with an answer"


def check_skip(configs: Configs, stages: Collection[str], section: str, there: int) -> None:
    """ConfigError where more training problems are passed over than there are."""
    own = configs[section]
    mixed = getattr(own, "datasets", None)
    if section in stages and own.skip >= there and (mixed is None or any(one.source == "problems" for one in mixed)):
        raise ConfigError(
            f"params.yaml: {section}.skip: expected less than the {there:,} training problems that there are, got {own.skip}"
        )


def check_roles(rows: Sequence[Record], source: str) -> None:
    """DataError where a conversation has turns that the tokenizer of a model from scratch has no token for."""
    for row in rows:
        for number, turn in enumerate(forms.from_json(row["messages"]) if row["messages"] else [], 1):
            if turn["role"] not in ("user", "assistant"):
                raise DataError(
                    f"{source}: {row['demonstration_id']}: message {number} ({turn['role']}): a model from scratch knows user and "
                    "assistant only; expected pretrained.init directory or hub, or conversations without it"
                )


def readable(path: str) -> bool:
    """Whether it is the user's own, and there: what a stage makes lies in data/ beside data/raw."""
    made = path.startswith("data/") and not path.startswith("data/raw/")
    return not made and small(Path(path))


def small(path: Path) -> bool:
    """Whether it is worth reading before a run."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) <= LARGE
