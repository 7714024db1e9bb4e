"""`python -m tasks.label`: the page on which people judge answers, until Ctrl-C. `posttrain label` starts it.

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
    from tasks.language.judgements.lines import Item
    from tasks.language.judgements.record import Writer

VARIABLE = "POSTTRAIN_LABEL_TOKEN"  # in the environment, which other users cannot read, as they can a command line
ANSWERS = 4  # of an item of mode ranking, and at most in mode edit
GOLD = 0.1  # share of judgements that are of gold items, where there are any
GAP = 10  # judgements between an item and its repeat at least


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tasks.label", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    found = {name: commands.add_parser(name) for name in ("serve", "statistics", "import", "export")}
    for command in found.values():
        command.add_argument("--record", type=Path, required=True)
    for name in ("import", "export"):
        found[name].add_argument("--tool", choices=("trl", "trl-chat", "argilla", "potato"), required=True)
        found[name].add_argument("--path", type=Path, required=True)
    serve = found["serve"]
    serve.add_argument("--mode", choices=("pairwise", "ranking", "steps", "edit"), required=True)
    source = serve.add_mutually_exclusive_group(required=True)
    source.add_argument("--responses", type=Path)
    source.add_argument("--arena", type=Path, nargs=2)
    source.add_argument("--file", type=Path)
    serve.add_argument("--gold", type=Path)
    serve.add_argument("--items", type=int)
    serve.add_argument("--overlap", type=int, required=True)
    serve.add_argument("--repeats", type=float, required=True)
    serve.add_argument("--seed", type=int, required=True)
    serve.add_argument("--host", required=True)
    serve.add_argument("--port", type=int, required=True)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Carry out a command."""
    from tasks.common.errors import StageError

    given = parser().parse_args(arguments)
    try:
        COMMANDS[given.command](given)
    except StageError as error:
        print(f"posttrain: {error}", file=sys.stderr)
        return 2
    return 0


def statistics(given: argparse.Namespace) -> None:
    """Print what the record says."""
    from tasks.label.numbers import lines
    from tasks.language.judgements.record import read

    print("\n".join(lines(read(given.record))))


def export(given: argparse.Namespace) -> None:
    """Write the record for another tool."""
    from tasks.language.judgements import exchange
    from tasks.language.judgements.record import read

    for file in exchange.export(read(given.record), given.tool, given.path):
        print(file)


def take_in(given: argparse.Namespace) -> None:
    """Add another tool's judgements to the record; those that it has already are left out, so that it can be done again."""
    from tasks.label.session import instant
    from tasks.language.judgements import exchange
    from tasks.language.judgements.lines import Item, Judgement
    from tasks.language.judgements.record import Writer

    lines, taken = exchange.imported(given.path, given.tool, given.tool, instant()), 0
    with Writer(given.record) as writer:
        for line in lines:
            if isinstance(line, Item) and line.item not in writer.record.items:
                writer.append(line)
            elif isinstance(line, Judgement) and writer.record.known(line.judgement) is None:
                writer.append(line)
                taken += 1
    print(f"{taken} judgements are new in {given.record}")


def serve(given: argparse.Namespace) -> None:
    """Open the record and answer the page until Ctrl-C."""
    from tasks.common.errors import ConfigError
    from tasks.language.judgements.record import Writer

    token = os.environ.pop(VARIABLE, "")
    if not token:
        raise ConfigError(f"{VARIABLE} is not set; `posttrain label` sets it")
    items = asked(given)
    with Writer(given.record) as writer, listening(given.host, given.port) as place:
        answer(writer, items, given, place, token)


def asked(given: argparse.Namespace) -> list["Item"]:
    """The items that people are asked about; DataError where there are none of this mode."""
    from tasks.common.errors import DataError
    from tasks.language.judgements import items

    if given.responses is not None:
        answered = items.from_responses(given.responses)
    elif given.arena is not None:
        answered = items.from_evaluations(*given.arena)
    else:
        answered = items.from_files(given.file)
    found = items.items(answered, given.mode, ANSWERS, given.seed, per_prompt=1)[: given.items]
    if given.gold is None:
        return found
    gold = items.items(items.from_files(given.gold), given.mode, ANSWERS, given.seed, per_prompt=1)
    if bare := next((item for item in gold if item.gold is None), None):
        raise DataError(f"{given.gold}: prompt {bare.prompt_id}: expected the field gold, the judgement to expect")
    known = {item.item for item in gold}
    return [*(item for item in found if item.item not in known), *gold]


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes calls, so that the address can be opened as soon as it is printed."""
    from tasks.common.errors import DataError

    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror  # what is wrong with a name has a number below 0
        raise DataError(f"{host}:{port}: {why}; choose another --port or --host") from None


def answer(
    writer: "Writer", items: Sequence["Item"], given: argparse.Namespace, place: socket.socket, token: str
) -> None:
    """Answer the page until Ctrl-C."""
    import uvicorn

    from tasks.label import guard
    from tasks.label.numbers import numbers
    from tasks.label.server import application
    from tasks.label.session import Session
    from tasks.language.judgements.assignment import Assignment, Settings

    gold = GOLD if any(item.gold is not None for item in items) else 0.0
    assignment = Assignment(items, Settings(given.seed, given.overlap, gold, given.repeats, GAP))
    session = Session(writer, assignment, token)
    app = application(session, token, guard.hosts(given.host), lambda: numbers(writer.record, assignment))
    progress = assignment.progress_of_all(writer.record)
    print(
        f"{len(items)} items of mode {given.mode}; {progress.done} of {progress.wanted} judgements are in {writer.path}"
    )
    for name in guard.addresses(given.host):
        print(f"http://{name}:{place.getsockname()[1]}/?token={token}")
    if not guard.is_loopback(given.host):
        print("Every machine that reaches this one can open it, and what is sent is not encrypted.")
    print("The address has the token: pass it on to those who judge, and to nobody else. Ctrl-C stops.", flush=True)
    # No log of calls: the first one has the token in its address.
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[place])
    print(f"stopped; {len(writer.record.judgements)} judgements are in {writer.path}")


COMMANDS = {"serve": serve, "statistics": statistics, "export": export, "import": take_in}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
