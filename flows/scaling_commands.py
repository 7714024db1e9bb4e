"""`posttrain plan-memory`: what a stage needs of its devices, before it is started on them."""

from typing import Annotated, Literal

import typer

from flows.console import completion as tab
from flows.model_commands import run_module_in_terminal
from flows.params.files import PARAMS, find_root, parse_params, read_text

Algorithm = Literal[
    "pretrained", "sft", "rejection_sft", "reward_model", "dpo", "reinforce", "ppo", "grpo", "responses", "evaluate"
]


def plan_memory(
    stages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STAGE...]", help="Stages of the language flow.", autocompletion=tab.complete_stages),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER|HUB_ID|SIZE", help="Another model, or a size such as 8B.")
    ] = None,
    algorithm: Annotated[Algorithm | None, typer.Option(help="The same as STAGE: the values of its section.")] = None,
    precision: Annotated[
        Literal["fp32", "bf16", "pure_bf16", "fp16"] | None,
        typer.Option(help="fp16 is for comparison; no stage has it."),
    ] = None,
    lora_rank: Annotated[int | None, typer.Option(min=0, help="0 for no adapter.")] = None,
    sequence: Annotated[int | None, typer.Option(min=2, help="Tokens of a prompt with its answer.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Sequences of an optimizer step, or prompts where each has several answers."),
    ] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Sequences in one pass.")] = None,
    checkpointing: Annotated[
        bool | None, typer.Option("--checkpointing/--no-checkpointing", help="Layers are computed again.")
    ] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Devices that divide the batch.")] = None,
    shard: Annotated[
        Literal["optimizer", "model"] | None,
        typer.Option(help="What they divide as well: the optimizer's moments, or those with weights and gradients."),
    ] = None,
    device_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of a GPU, such as 80GB; this machine's otherwise.")
    ] = None,
    lectures: Annotated[
        bool, typer.Option("--lectures", help="The lectures' count beside: no gradients, no activations.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="A JSON list, bytes as numbers.")] = False,
) -> int:
    """Count a stage's memory term by term, and say what would make it fit; without options all is that of
    params.yaml.
    """
    names = [*(stages or []), *([algorithm] if algorithm else [])]
    values = {
        "model": model, "precision": precision, "lora-rank": lora_rank, "sequence": sequence, "batch": batch,
        "micro-batch": micro_batch, "devices": devices, "device-memory": device_memory, "shard": shard,
    }  # fmt: skip
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    options += [] if checkpointing is None else ["--checkpointing" if checkpointing else "--no-checkpointing"]
    options += [f"--{name}" for name, enabled in (("lectures", lectures), ("json", json_)) if enabled]
    root = find_root()
    if (root / PARAMS).is_file():
        parse_params(read_text(root / PARAMS))  # a file that would crash the reader of the child is one line here
    return run_module_in_terminal(root, "tasks.memory", *options, "--", *names)
