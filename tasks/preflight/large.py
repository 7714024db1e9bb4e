"""Files that are too large to be read whole before a run: their first rows are read as the stages read them, the rest
is left to the stages.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.common.errors import DataError, StageError
from tasks.common.tables import Record, iterate_record_batches, open_parquet
from tasks.language import corpus, demonstrations, mixture, problems
from tasks.language.data import imported_pairs, labelled_texts, problem_forms, test_sets
from tasks.language.data.rows import SUFFIXES, read_file, read_files
from tasks.preflight import extensions
from tasks.preflight.data import (
    Configs,
    check_message_roles,
    check_reward_inputs,
    is_small_enough_to_read,
    is_stage_output,
)

HEAD = 20 * 2**20  # bytes that are read of a file of lines, or of the values of a parquet file
SIZES = {"GB": 2**30, "MB": 2**20, "kB": 2**10}


@dataclass(frozen=True)
class LargeSource:
    """Files of a section that are read row by row."""

    section: str
    path: Path
    rows: Callable[[Path], list[Any]]


def iterate_large_source_checks(configs: Configs, stages: Collection[str]) -> Iterator[str]:
    """A line for each source of `stages` that is too large to be read whole; StageError for the first fault in the part
    that is read.
    """
    at_work = {name.partition("@")[0] for name in stages}
    for source in iterate_configured_sources(configs):
        path = str(source.path)
        if source.section in at_work and not is_stage_output(path) and not is_small_enough_to_read(source.path):
            yield _check_and_describe_first_rows(configs, stages, source)


def iterate_configured_sources(configs: Configs) -> Iterator[LargeSource]:
    """The files of all sections, with the readers of their stages; what is asked of a set as a whole cannot be asked of
    a part.
    """
    demonstrated = configs["demonstrations"]
    tested = configs["evaluate"]
    pairs = configs["preferences"]
    readers: dict[str, Callable[[Path], list[Any]]] = {
        "problems": _read_problems,
        "corpus": corpus.read_documents,
        "solutions": lambda path: labelled_texts.parse_labelled_answers(read_files(path)),
    }
    for section, reader in readers.items():
        if configs[section].source == "files":
            yield LargeSource(section, Path(configs[section].path), reader)
    if demonstrated.source == "files":
        yield LargeSource(
            "demonstrations",
            Path(demonstrated.path),
            lambda path: demonstrations.read_or_fetch_demonstrations(demonstrated, path)[0],
        )
    if "files" in pairs.sources:
        path = pairs.path if pairs.source == "files" else pairs.pairs_path
        yield LargeSource("preferences", Path(path), _read_pairs)
    if tested.source == "files":
        yield LargeSource("evaluate", Path(tested.path), lambda path: _read_test_problems(configs, path))
    yield LargeSource("evaluate", Path(tested.pairs_path), _read_pairs)
    for dataset in configs["mixture"].datasets:
        if dataset.source == "file":
            file = Path(configs["mixture"].path) / dataset.location
            yield LargeSource("mixture", file, _make_prompt_reader(configs, dataset))
    for module in extensions.import_preflight_modules():
        if hasattr(module, "large"):
            yield from module.large(configs)


def _read_problems(path: Path) -> list[Record]:
    return [
        row
        for name in ("train", "test")
        for row in problem_forms.parse_problems(read_file(problems.get_split_file_path(path, name)))
    ]


def _read_pairs(path: Path) -> list[Record]:
    return imported_pairs.parse_unsplit_pairs(read_files(path))


def _read_test_problems(configs: Configs, path: Path) -> list[Any]:
    return list(test_sets.read_or_fetch_test_problems(configs["evaluate"], Path(), path).to_dict("records"))


def _make_prompt_reader(configs: Configs, dataset: Any) -> Callable[[Path], list[Record]]:
    def rows(path: Path) -> list[Record]:
        moved = dataset.model_copy(update={"location": path.name})
        return [
            mixture.make_dataset_prompt(moved, row)
            for row in mixture.read_or_fetch_dataset_problems(configs["mixture"], moved, Path(), path.parent)
        ]

    return rows


def _check_and_describe_first_rows(configs: Configs, stages: Collection[str], source: LargeSource) -> str:
    files = [source.path] if source.path.is_file() else [*source.path.rglob("*")]
    size = sum(file.stat().st_size for file in files if file.is_file())
    unit, large = next(((unit, scale) for unit, scale in SIZES.items() if size >= scale), ("bytes", 1))
    whole = f"{source.section}: {source.path} has {size / large:.1f} {unit}"
    with TemporaryDirectory() as folder:
        head = Path(folder, source.path.name)
        if not _write_first_rows(source.path, head):
            return f"{whole}: it is left to the stage"
        try:
            rows = source.rows(head)
            if source.section == "demonstrations":
                check_message_roles(configs, rows, head)
            if source.section == "mixture":
                check_reward_inputs(configs, stages, rows, head)
        except StageError as error:
            raise type(error)(str(error).replace(str(head), str(source.path))) from None
    return f"{whole}: its first {len(rows):,} rows are read before the run, the rest is left to the stage"


def _write_first_rows(path: Path, head: Path) -> bool:
    """Write the first rows of a file, or of each file of a folder, to `head`; False where a file cannot be cut, as a
    list in JSON.
    """
    if path.is_dir():
        head.mkdir()
        return all(
            _write_first_rows(file, head / file.name) for file in sorted(path.iterdir()) if file.suffix in SUFFIXES
        )
    if path.stat().st_size <= HEAD:
        head.symlink_to(path.resolve())
        return True
    if path.suffix == ".parquet":
        _write_first_parquet_rows(path, head)
        return True
    with path.open("rb") as file:
        lines = file.read(HEAD).rpartition(b"\n")[0]
    head.write_bytes(lines)
    return path.suffix == ".jsonl" and bool(lines.strip())


def _write_first_parquet_rows(path: Path, head: Path) -> None:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetWriter

    try:
        file = open_parquet(path)
        left = HEAD
        with ParquetWriter(head, file.schema_arrow) as writer:
            for batch in iterate_record_batches(file, path):
                writer.write_batch(batch)
                left -= batch.nbytes
                if left <= 0:
                    break
    except (ArrowException, DataError, OSError, ValueError):  # the reader of the rows says what is wrong
        head.unlink(missing_ok=True)
        head.symlink_to(path.resolve())
