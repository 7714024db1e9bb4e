"""`posttrain chat`, `export` and `evaluate`: what is done with a model that a stage has made."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.console.summary import relative
from flows.params.files import find_root
from flows.running import WrongUseError, one_line

INTERRUPTED = 130  # the exit code after Ctrl-C
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
    """Talk with a model in the terminal; with a pipe as input, each line is a turn and the answers go to standard
    output.
    """
    from flows.outs import checkpoint

    root = find_root()
    with one_line():
        folder = checkpoint(root, model)
        other = [f"--against={checkpoint(root, against)}"] if against is not None else []
    options = [f"--temperature={temperature}", f"--max-new-tokens={max_new_tokens}", f"--seed={seed}"]
    return child(root, "tasks.chat", str(folder), *other, f"--system={system}", *options, takes_ctrl_c=True)


def export(
    model: Checkpoint,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder to make, or an empty one.")],
) -> int:
    """Write a stage's model to a folder of its own with a card: a language model ready for `hf upload`, an offline
    policy as TorchScript and ONNX.
    """
    from flows import exporting

    root, folder = find_root(), folder.absolute()
    with one_line():
        for remark in exporting.export(root, model, folder):
            print(remark)
    print(f"{relative(folder, Path.cwd())}: model and card; choose a license in its README.md")
    print(f"to upload it: hf upload USER/NAME {relative(folder, Path.cwd())}")
    return 0


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|STAGE|HUB_ID",
            help="A model in Hugging Face layout, the stage that made it, or a model of the hub.",
            autocompletion=tab.checkpoints,
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(metavar="FILE|FOLDER", help="Test problems; those of the pipeline otherwise.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME@COMMIT", help="Benchmark suites: from files, or from the hub at a commit."),
    ] = None,
    suites: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the files of suites are.")] = None,
    shots: Annotated[int | None, typer.Option(min=0, help="With a suite: examples before each problem.")] = None,
    reward_model: Annotated[
        str | None, typer.Option(metavar="FOLDER|STAGE", help="Score the answers too.", autocompletion=tab.checkpoints)
    ] = None,
    problems: Annotated[int | None, typer.Option(min=1, help="The first problems only.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Answers to each, at each temperature.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of an answer at most.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Problems at a time.")] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a model of the hub.")] = "main",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the tables go.")] = None,
) -> int:
    """Judge one model alone, on test problems of your own, the pipeline's, or benchmark suites; nothing is trained for
    it.
    """
    from flows.outs import checkpoint

    root = find_root()
    with one_line():
        on_hub = model.count("/") == 1 and not Path(model).is_dir() and not (root / model.partition("/")[0]).is_dir()
        folder = model if on_hub else str(checkpoint(root, model))
        scorer = [f"--reward-model={checkpoint(root, reward_model)}"] if reward_model is not None else []
        if suite is not None and (data is not None or reward_model is not None):
            raise WrongUseError(
                "--suite brings its own problems and scoring; expected it without --data and --reward-model"
            )
        if suite is None and (suites is not None or shots is not None):
            raise WrongUseError("--suites and --shots are about suites; expected --suite with them")
    options = [f"--data={data.absolute()}"] if data is not None else []
    options += [f"--suite={suite}"] if suite is not None else []
    options += [f"--suites={suites.absolute()}"] if suites is not None else []
    numbers = {"problems": problems, "samples": samples, "max-new-tokens": max_new_tokens, "batch-size": batch_size}
    numbers["shots"] = shots
    options += [f"--{name}={value}" for name, value in numbers.items() if value is not None]
    source = data.absolute() if data is not None else Path("problems" if suite is None else "suites")
    named = "-".join(part for part in (Path(folder).name, source.parent.name, source.stem) if part)
    target = out.absolute() if out is not None else Path("mlruns/evaluations") / named
    return child(root, "tasks.evaluation", folder, f"--revision={revision}", f"--out={target}", *scorer, *options)


def child(root: Path, module: str, *arguments: str, takes_ctrl_c: bool = False) -> int:
    """Run a module of this repository on this terminal; its exit code. Ctrl-C ends it, in no words.

    One that `takes_ctrl_c` gets it itself. It too begins by ignoring it: Python would end with a page of errors in its
    first moments.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=root)
    if not takes_ctrl_c:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = child.wait()
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        status = INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before)
    if status == INTERRUPTED:
        raise SystemExit(status)  # nothing was at work that another run could go on with
    return status
