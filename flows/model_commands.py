"""`posttrain chat` and `posttrain export`: what is done with a model that a stage has made."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.console.summary import relative
from flows.params.files import find_root
from flows.running import one_line

INTERRUPTED = 130  # the child's exit code where Ctrl-C stopped it while it was loading
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER|STAGE",
        help="A model in Hugging Face layout, or the stage that made it.",
        autocompletion=tab.checkpoints,
    ),
]


def chat(
    model: Checkpoint,
    against: Annotated[
        str | None,
        typer.Option(metavar="FOLDER|STAGE", help="Show this model's answers beside.", autocompletion=tab.checkpoints),
    ] = None,
    system: Annotated[str, typer.Option(metavar="TEXT", help="The system prompt.")] = "",
    temperature: Annotated[float, typer.Option(min=0, max=100, help="0 is greedy.")] = 0.7,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 512,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The same seed gives the same answers.")] = 0,
) -> int:
    """Talk with a model in the terminal; with a pipe as input, each line is a turn and the answers go to standard output."""
    from flows.outs import checkpoint

    root = find_root()
    with one_line():
        folder = checkpoint(root, model)
        other = [f"--against={checkpoint(root, against)}"] if against is not None else []
    options = [f"--temperature={temperature}", f"--max-new-tokens={max_new_tokens}", f"--seed={seed}"]
    return _child(root, "tasks.chat", str(folder), *other, f"--system={system}", *options)


def export(
    model: Checkpoint,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder to make, or an empty one.")],
) -> int:
    """Write a stage's model to a folder of its own with a model card, ready for `hf upload`."""
    from flows import exporting

    root, folder = find_root(), folder.absolute()
    with one_line():
        for remark in exporting.export(root, model, folder):
            print(remark)
    print(f"{relative(folder, Path.cwd())}: model and card; choose a license in its README.md")
    print(f"to upload it: hf upload USER/NAME {relative(folder, Path.cwd())}")
    return 0


def _child(root: Path, module: str, *arguments: str) -> int:
    """Run a module of this repository on this terminal; its exit code. A Ctrl-C is for the child alone, which begins by ignoring it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=root).wait()
    finally:
        signal.signal(signal.SIGINT, before)
    if status == INTERRUPTED:
        raise SystemExit(status)  # nothing was at work that another run could go on with
    return status
