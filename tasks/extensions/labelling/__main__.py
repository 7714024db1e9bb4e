"""`python -m tasks.extensions.labelling`: the page on which people judge answers, until Ctrl-C; `posttrain label`
starts it.

Exit codes as of posttrain: 0 at the end, 2 where the answers or the record cannot be used.
"""

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.language.judgements.judgement_log import Writer
    from tasks.language.judgements.lines import Item

VARIABLE = "POSTTRAIN_LABEL_TOKEN"  # in the environment, which other users cannot read, as they can a command line
ANSWERS = 4  # of an item of mode ranking, and at most in mode edit
GOLD = 0.1  # share of judgements that are of gold items, where there are any
GAP = 10  # judgements between an item and its repeat at least


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tasks.extensions.labelling", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    subparsers = {name: commands.add_parser(name) for name in ("serve", "statistics", "import", "export")}
    for command in subparsers.values():
        command.add_argument("--record", type=Path, required=True)
    for name in ("import", "export"):
        subparsers[name].add_argument("--tool", choices=("trl", "trl-chat", "argilla", "potato"), required=True)
        subparsers[name].add_argument("--path", type=Path, required=True)
    serve = subparsers["serve"]
    serve.add_argument("--mode", choices=("pairwise", "ranking", "steps", "edit"), required=True)
    source = serve.add_mutually_exclusive_group(required=True)
    source.add_argument("--responses", type=Path)
    source.add_argument("--arena", type=Path, nargs=2)
    source.add_argument("--file", type=Path)
    serve.add_argument("--gold", type=Path)
    serve.add_argument("--items", type=int)
    serve.add_argument("--overlap", type=int, required=True)
    serve.add_argument("--wanted", type=int, help="judgements that the pipeline waits for")
    serve.add_argument("--repeats", type=float, required=True)
    serve.add_argument("--seed", type=int, required=True)
    serve.add_argument("--host", required=True)
    serve.add_argument("--port", type=int, required=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Carry out a command."""
    from tasks.common.errors import StageError

    options = build_parser().parse_args(arguments)
    try:
        COMMANDS[options.command](options)
    except StageError as error:
        print(f"posttrain: {error}", file=sys.stderr)
        return 2
    return 0


def print_statistics(options: argparse.Namespace) -> None:
    """Print what the record says."""
    from tasks.extensions.labelling.statistics_text import format_statistics_lines
    from tasks.language.judgements.judgement_log import read_judgement_record

    print("\n".join(format_statistics_lines(read_judgement_record(options.record))))


def export_record(options: argparse.Namespace) -> None:
    """Write the record for another tool."""
    from tasks.extensions.labelling.formats import exchange
    from tasks.language.judgements.judgement_log import read_judgement_record

    for file in exchange.export_judgements(read_judgement_record(options.record), options.tool, options.path):
        print(file)


def import_judgements(options: argparse.Namespace) -> None:
    """Add another tool's judgements to the record; those that it has already are left out, so that it can be done
    again.
    """
    from tasks.extensions.labelling.formats import exchange
    from tasks.extensions.labelling.session import format_current_time
    from tasks.language.judgements.judgement_log import Writer
    from tasks.language.judgements.lines import Item, Judgement

    lines = exchange.load_tool_judgements(options.path, options.tool, options.tool, format_current_time())
    added = 0
    with Writer(options.record) as writer:
        for line in lines:
            if isinstance(line, Item) and line.item not in writer.record.items:
                writer.append(line)
            elif isinstance(line, Judgement) and writer.record.known(line.judgement) is None:
                writer.append(line)
                added += 1
    print(f"{added} judgements are new in {options.record}")


def serve_label_page(options: argparse.Namespace) -> None:
    """Open the record and answer the page until Ctrl-C."""
    from tasks.common.errors import ConfigError
    from tasks.language.judgements.judgement_log import Writer

    token = os.environ.pop(VARIABLE, "")
    if not token:
        raise ConfigError(f"{VARIABLE} is not set; `posttrain label` sets it")
    items = load_items_to_judge(options)
    with Writer(options.record) as writer, open_listening_socket(options.host, options.port) as listener:
        run_label_server(writer, items, options, listener, token)


def load_items_to_judge(options: argparse.Namespace) -> list["Item"]:
    """The items that people are asked about; DataError where there are none of this mode."""
    from tasks.common.errors import DataError
    from tasks.extensions.labelling import items

    if options.responses is not None:
        answered = items.load_answers_from_responses(options.responses)
    elif options.arena is not None:
        answered = items.load_answers_from_evaluations(*options.arena)
    else:
        answered = items.load_answers_from_files(options.file)
    selected = items.build_judgement_items(answered, options.mode, ANSWERS, options.seed, per_prompt=1)[: options.items]
    if options.gold is None:
        return selected
    gold = items.build_judgement_items(
        items.load_answers_from_files(options.gold), options.mode, ANSWERS, options.seed, per_prompt=1
    )
    if bare := next((item for item in gold if item.gold is None), None):
        raise DataError(f"{options.gold}: prompt {bare.prompt_id}: expected the field gold, the judgement to expect")
    gold_ids = {item.item for item in gold}
    return [*(item for item in selected if item.item not in gold_ids), *gold]


def open_listening_socket(host: str, port: int) -> socket.socket:
    """A socket that takes calls, so that the address can be opened as soon as it is printed."""
    from tasks.common.errors import DataError

    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror  # what is wrong with a name has a number below 0
        raise DataError(f"{host}:{port}: {why}; choose another --port or --host") from None


def run_label_server(
    writer: "Writer", items: Sequence["Item"], options: argparse.Namespace, listener: socket.socket, token: str
) -> None:
    """Answer the page until Ctrl-C."""
    import uvicorn

    from tasks.extensions.labelling import guard
    from tasks.extensions.labelling.assignment import Assignment, AssignmentSettings
    from tasks.extensions.labelling.server import build_label_app
    from tasks.extensions.labelling.session import Session
    from tasks.extensions.labelling.statistics_text import build_statistics_context

    gold = GOLD if any(item.gold is not None for item in items) else 0.0
    assignment = Assignment(items, AssignmentSettings(options.seed, options.overlap, gold, options.repeats, GAP))
    session = Session(writer, assignment, token, options.wanted)
    app = build_label_app(
        session,
        token,
        guard.list_allowed_hosts(options.host),
        lambda: build_statistics_context(writer.record, assignment, session.compute_pipeline_progress()),
    )
    progress = session.compute_pipeline_progress()
    waiting = " that the pipeline waits for" if progress else ""
    progress = progress or assignment.compute_total_progress(writer.record)
    print(
        f"{len(items)} items of mode {options.mode}; {progress.done} of {progress.wanted} judgements{waiting} are in "
        f"{writer.path.parent if waiting else writer.path}"
    )
    for name in guard.list_printed_hosts(options.host):
        print(f"http://{name}:{listener.getsockname()[1]}/?token={token}")
    if not guard.is_loopback(options.host):
        print("Every machine that reaches this one can open it, and what is sent is not encrypted.")
    print("The address has the token: pass it on to those who judge, and to nobody else. Ctrl-C stops.", flush=True)
    # No log of calls: the first one has the token in its address.
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
    print(f"stopped; {len(writer.record.judgements)} judgements are in {writer.path}")


COMMANDS = {
    "serve": serve_label_page,
    "statistics": print_statistics,
    "export": export_record,
    "import": import_judgements,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
