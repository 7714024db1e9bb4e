"""`posttrain chat`, `export` and `evaluate`: what is done with a model that a stage has made."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.console.summary import format_relative_path
from flows.params.files import find_root
from flows.running import convert_errors_to_wrong_use

DEMONSTRATIONS = Path("data/demonstrations")
INTERRUPTED = 130  # the exit code after Ctrl-C
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER|STAGE",
        help="A model in Hugging Face layout, or the stage that made it.",
        autocompletion=tab.complete_checkpoints,
    ),
]


def chat(
    model: Checkpoint,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|STAGE", help="Show this model's answers beside.", autocompletion=tab.complete_checkpoints
        ),
    ] = None,
    system: Annotated[str, typer.Option(metavar="TEXT", help="The system prompt.")] = "",
    temperature: Annotated[float, typer.Option(min=0, max=100, help="0 is greedy.")] = 0.7,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 512,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The same seed gives the same answers.")] = 0,
) -> int:
    """Talk with a model in the terminal; with a pipe as input, each line is a turn and the answers go to standard
    output.
    """
    from flows.stage_outputs import is_made_from, resolve_checkpoint_folder

    root = find_root()
    with convert_errors_to_wrong_use():
        folder = resolve_checkpoint_folder(root, model)
        against_folder = resolve_checkpoint_folder(root, against) if against is not None else None
        other = [f"--against={against_folder}"] if against_folder is not None else []
        if all(is_made_from(root, each, DEMONSTRATIONS) for each in (folder, against_folder) if each is not None):
            other.append(f"--demonstrations={DEMONSTRATIONS / 'train.parquet'}")
    options = [f"--temperature={temperature}", f"--max-new-tokens={max_new_tokens}", f"--seed={seed}"]
    return run_module_in_terminal(
        root, "tasks.chat", str(folder), *other, f"--system={system}", *options, takes_ctrl_c=True
    )


def export(
    model: Checkpoint,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder to make, or an empty one.")],
) -> int:
    """Write a stage's model to a folder of its own with a card: a language model ready for `hf upload`, an offline
    policy as TorchScript and ONNX.
    """
    from flows import exporting

    root = find_root()
    folder = folder.absolute()
    with convert_errors_to_wrong_use():
        for remark in exporting.export_model(root, model, folder):
            print(remark)
    print(f"{format_relative_path(folder, Path.cwd())}: model and card; choose a license in its README.md")
    print(f"to upload it: hf upload USER/NAME {format_relative_path(folder, Path.cwd())}")
    return 0


EvaluatedModel = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER|STAGE|HUB_ID",
        help="A model in Hugging Face layout, the stage that made it, or a model of the hub.",
        autocompletion=tab.complete_checkpoints,
    ),
]
TestData = Annotated[
    Path | None, typer.Option(metavar="FILE|FOLDER", help="Test problems; those of the pipeline otherwise.")
]
Scorer = Annotated[
    str | None,
    typer.Option(metavar="FOLDER|STAGE", help="Score the answers too.", autocompletion=tab.complete_checkpoints),
]
Problems = Annotated[int | None, typer.Option(min=1, help="The first problems only.")]
Samples = Annotated[int | None, typer.Option(min=1, help="Answers to each, at each temperature.")]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Tokens of an answer at most.")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Problems at a time.")]
Revision = Annotated[str, typer.Option(help="Branch, tag or commit of a model of the hub.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Where the tables go.")]


def evaluate(
    model: EvaluatedModel,
    data: TestData = None,
    reward_model: Scorer = None,
    problems: Problems = None,
    samples: Samples = None,
    max_new_tokens: MaxNewTokens = None,
    batch_size: BatchSize = None,
    revision: Revision = "main",
    out: Out = None,
) -> int:
    """Judge one model alone, on test problems of your own or the pipeline's; nothing is trained for it."""
    from flows.stage_outputs import resolve_checkpoint_folder

    root = find_root()
    with convert_errors_to_wrong_use():
        scorer = [f"--reward-model={resolve_checkpoint_folder(root, reward_model)}"] if reward_model is not None else []
    options = [f"--data={data.absolute()}"] if data is not None else []
    numbers = {"problems": problems, "samples": samples, "max-new-tokens": max_new_tokens, "batch-size": batch_size}
    source = data.absolute() if data is not None else Path("problems")
    return run_model_evaluation(root, "tasks.evaluation", model, revision, source, out, [*scorer, *options], numbers)


def run_model_evaluation(
    root: Path,
    module: str,
    model: str,
    revision: str,
    source: Path,
    out: Path | None,
    options: Sequence[str],
    numbers: Mapping[str, int | None],
) -> int:
    """Evaluate a model with a module of this repository, into `out` or a folder named after the model and the source
    of its problems; the exit code.
    """
    from flows.stage_outputs import resolve_checkpoint_folder

    with convert_errors_to_wrong_use():
        on_hub = model.count("/") == 1 and not Path(model).is_dir() and not (root / model.partition("/")[0]).is_dir()
        folder = model if on_hub else str(resolve_checkpoint_folder(root, model))
    named = "-".join(part for part in (Path(folder).name, source.parent.name, source.stem) if part)
    target = out.absolute() if out is not None else Path("mlruns/evaluations") / named
    flags = [f"--{name}={value}" for name, value in numbers.items() if value is not None]
    return run_module_in_terminal(root, module, folder, f"--revision={revision}", f"--out={target}", *options, *flags)


def run_module_in_terminal(root: Path, module: str, *arguments: str, takes_ctrl_c: bool = False) -> int:
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
