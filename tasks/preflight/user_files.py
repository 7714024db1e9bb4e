"""The user's files in every order of commands: whatever has been made before, and whichever stages a run reaches.

A stage that is up to date has read its file; what a stage behind it asks of a row may be new all the same, so the file
is read again. Before a model is trained, the files that only later runs read are read as well: a fault in one is said,
and keeps nobody from this run.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.common.tables import Record
from tasks.language import mixture, problems
from tasks.language.configs.parts.names import list_policy_names
from tasks.language.data import problem_forms
from tasks.language.data.rows import read_file
from tasks.language.tables.problems import Demonstrations, Problems, Prompts
from tasks.preflight import data, extensions, large
from tasks.preflight.data import (
    POLICIES,
    Configs,
    check_message_roles,
    check_reward_inputs,
    is_small_enough_to_read,
    should_read_before_run,
)

LEARNED_BY = {  # section with files -> the stages behind it that ask something of its rows
    "demonstrations": ("sft",),
    "preferences": ("dpo", "reward_model"),
    "solutions": ("reward_model",),
    "mixture": POLICIES,
}
SECTIONS = (*LEARNED_BY, "problems", "corpus", "evaluate")  # all of the core that read files
MADE = Path("data")


def iterate_user_file_checks(configs: Configs, stages: Collection[str], later: bool = True) -> Iterator[str]:
    """A line for each source of data of the `stages` that will run; StageError for the first fault that would end one
    of them.

    With `later` a fault in what only later runs read is a line, where a model is trained.
    """
    at_work = {name.partition("@")[0] for name in stages}
    again = {section for section, users in LEARNED_BY.items() if at_work.intersection(users)}
    if at_work & {"behaviour", "transitions"}:
        from tasks.preflight import offline_datasets  # with the simulators

        yield from offline_datasets.iterate_offline_dataset_checks(configs["behaviour"], configs["transitions"], stages)
    yield from _iterate_source_checks(configs, {*stages, *again})
    _check_made_rows(configs, at_work)
    all_sections = (*SECTIONS, *extensions.map_extension_sections_to_modules())
    for section in all_sections if later and at_work & {*list_policy_names(), "reward_model"} else ():
        if section not in at_work | again:
            try:
                for _ in _iterate_source_checks(configs, {section}):
                    pass
            except StageError as error:
                yield f"no stage of this run reads it, but {section} would end with: {error}"


def _iterate_source_checks(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    for reader in READERS:
        yield from reader(configs, stages)


READERS: tuple[Callable[[Configs, Collection[str]], Iterator[str]], ...] = (
    large.iterate_large_source_checks,
    data.iterate_data_source_checks,
    extensions.iterate_extension_checks,
)


def _check_made_rows(configs: Configs, at_work: set[str]) -> None:
    """DataError where rows that a stage has made of problems or of a hub's set do not suit the stages that will run."""
    if "sft" in at_work and configs["demonstrations"].source == "hub":
        rows = _read_made_tables(Demonstrations, "demonstrations", ("train", "validation"), at_work)
        check_message_roles(configs, rows, "data/demonstrations")
    if not at_work.intersection(POLICIES):
        return
    sets = {dataset.source: dataset for dataset in configs["mixture"].datasets}
    if "hub" in sets:
        rows = _read_made_tables(Prompts, "mixture", ("prompts", "validation"), at_work)
        check_reward_inputs(configs, at_work, rows, "data/mixture")
    if "problems" in sets and configs["problems"].source != "generated":
        drawn = [
            mixture.make_dataset_prompt(sets["problems"], row) for row in _load_training_problems(configs, at_work)
        ]
        check_reward_inputs(configs, at_work, drawn, "problems")


def _load_training_problems(configs: Configs, at_work: Collection[str]) -> list[Record]:
    """The training problems of one's own that the mixture draws from, or those that were made before; none where
    neither is known.
    """
    config = configs["problems"]
    skip = configs["mixture"].skip
    if config.source == "files" and should_read_before_run(config.path):
        parts = (
            problem_forms.parse_problems(read_file(problems.get_split_file_path(Path(config.path), name)))
            for name in ("train", "test")
        )
        return problems.split_problems(config, *parts)[0]["train"][skip:]
    return _read_made_tables(Problems, "problems", ("train",), at_work)[skip:]


def _read_made_tables(
    schema: type[tables.Table], stage: str, parts: Collection[str], at_work: Collection[str]
) -> list[Record]:
    """The tables of a stage that is up to date, where they lie here."""
    files: Mapping[str, Path] = {part: MADE / stage / f"{part}.parquet" for part in parts}
    if stage in at_work or not all(file.is_file() and is_small_enough_to_read(file) for file in files.values()):
        return []
    return [row for file in files.values() for row in tables.list_records(tables.read_table(schema, file))]
