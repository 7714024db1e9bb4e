"""`posttrain label`: the page on which people judge answers, what they have said so far, and the files of other tools.

The work is done by `python -m tasks.extensions.labelling`, which takes this process's place, so that no server outlives
the command.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from flows.console import completion as tab
from flows.engine import server_guard
from flows.params.checking import load_config_classes, parse_and_check_configs
from flows.params.files import PARAMS, ParameterError, find_root, parse_params, read_text
from flows.running import WrongUseError, convert_errors_to_wrong_use

PORT = 4300
RECORDS = Path("data/raw/judgements")
TOKEN = Path("mlruns/label-token")  # its own: who judges need not read the pages of `posttrain ui`
VARIABLE = "POSTTRAIN_LABEL_TOKEN"
Mode = Literal["pairwise", "ranking", "steps", "edit"]
TOOLS = ("trl", "trl-chat", "argilla", "potato")


def list_record_names(incomplete: str) -> list[str]:
    """Names of records of judgements that begin with the typed text, for Tab."""
    try:
        root = find_root()
    except (ParameterError, OSError):
        return []
    return sorted(file.stem for file in (root / RECORDS).glob("*.jsonl") if file.stem.startswith(incomplete))


def label(
    arena: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="STAGE STAGE",
            help="Two policies' answers to the test problems.",
            autocompletion=tab.complete_stages,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE|FOLDER", help="Prompts with answers of your own (.jsonl, .json, .parquet)."),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="What people say of the answers.")] = "pairwise",
    name: Annotated[
        str, typer.Option(metavar="NAME", help=f"The record: {RECORDS}/NAME.jsonl.", autocompletion=list_record_names)
    ] = "people",
    items: Annotated[int | None, typer.Option(min=1, help="The first items only.")] = None,
    overlap: Annotated[int, typer.Option(min=1, help="People who judge each item.")] = 2,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Items with the judgement to expect, mixed in unannounced.")
    ] = None,
    repeats: Annotated[
        float,
        typer.Option(min=0, max=0.5, metavar="SHARE", help="Share of items that a person gets again, unannounced."),
    ] = 0.05,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the order, the sides and the repeats.")] = 0,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 for other machines too.")
    ] = server_guard.HOST,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"{PORT}, or a free one in place of one in use.")
    ] = None,
    import_: Annotated[
        tuple[str, Path] | None,
        typer.Option("--import", metavar="TOOL FILE|FOLDER", help="Take in judgements of trl, argilla or potato."),
    ] = None,
    export: Annotated[
        tuple[str, Path] | None,
        typer.Option(metavar="TOOL FOLDER", help="Write the record for trl, trl-chat, argilla or potato."),
    ] = None,
    statistics: Annotated[bool, typer.Option("--statistics", help="Print what the record says, and end.")] = False,
) -> None:
    """Open a page on which people judge answers: pairs, rankings, steps or better answers.

    What they say is on disk at once.
    """
    root = find_root()
    record = RECORDS / f"{name}.jsonl"
    if not name or Path(name).name != name:
        raise WrongUseError(f"--name {name}: expected the name of a file without a folder")
    if sum(option is not None for option in (arena, file, import_, export)) + statistics > 1:
        raise WrongUseError("choose one of --arena, --file, --import, --export and --statistics")
    if statistics:
        _exec_labelling_module(root, "statistics", f"--record={record}")
    for what, tool_and_path in (("import", import_), ("export", export)):
        if tool_and_path is not None:
            if tool_and_path[0] not in TOOLS:
                raise WrongUseError(f"--{what} {tool_and_path[0]}: expected {', '.join(TOOLS)}, then a file or folder")
            _exec_labelling_module(
                root, what, f"--record={record}", f"--tool={tool_and_path[0]}", f"--path={tool_and_path[1].absolute()}"
            )
    with convert_errors_to_wrong_use():
        source = _build_source_options(root, arena, file)
        token = server_guard.load_or_create_token(root, TOKEN)
        listen_port = port or server_guard.find_free_port(PORT)
    numbers = [
        f"--overlap={overlap}",
        f"--repeats={repeats}",
        f"--seed={seed}",
        f"--host={host}",
        f"--port={listen_port}",
    ]
    numbers += [f"--items={items}"] if items is not None else []
    numbers += [f"--gold={gold.absolute()}"] if gold is not None else []
    wanted = read_wanted_judgements(root, mode)
    numbers += [f"--wanted={wanted}"] if wanted is not None else []
    os.environ[VARIABLE] = token
    _exec_labelling_module(root, "serve", f"--record={record}", f"--mode={mode}", *source, *numbers)


def read_wanted_judgements(root: Path, mode: Mode) -> int | None:
    """How many judgements the pipeline waits for by params.yaml; None where it reads none of the folder's."""
    configs = parse_and_check_configs(parse_params(read_text(root / PARAMS)), load_config_classes(root), {})
    config: Any = configs["solutions" if mode == "steps" else "preferences"]
    sources = [config.source] if mode == "steps" else config.sources
    return config.minimum if "people" in sources and Path(config.judgements) == RECORDS else None


def _build_source_options(root: Path, arena: tuple[str, str] | None, file: Path | None) -> list[str]:
    """Where the answers are that people judge, as options of tasks.extensions.labelling."""
    if file is not None:
        return [f"--file={file.absolute()}"]
    if arena is None:
        return [f"--responses={_get_stage_tables_folder(root, 'responses')}"]
    stages = [policy if "@" in policy or "/" in policy else f"evaluate@{policy}" for policy in arena]
    return ["--arena", *(str(_get_stage_tables_folder(root, stage)) for stage in stages)]


def _get_stage_tables_folder(root: Path, stage: str) -> Path:
    """The folder of a stage's tables, relative within `root`."""
    from flows.engine.dvc_repository import PlanError
    from flows.stage_outputs import list_table_files

    try:
        folder = list_table_files(root, stage)[0].parent
    except PlanError as error:
        raise WrongUseError(f"{error}; `posttrain run {stage}` makes them") from None
    return folder.relative_to(root) if folder.is_relative_to(root) else folder


def _exec_labelling_module(root: Path, *arguments: str) -> NoReturn:
    """Run tasks.extensions.labelling in this process's place."""
    sys.stdout.flush()
    os.chdir(root)
    os.execv(sys.executable, [sys.executable, "-m", "tasks.extensions.labelling", *arguments])


COMMANDS = (label,)
