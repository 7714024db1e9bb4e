"""`python -m tasks.memory [STAGE...]`: what a stage needs of a device's memory, by arithmetic. `posttrain plan-memory`
starts it.

With --check only stages that would not fit are named, a line each, which `posttrain run` does before it starts a stage
on a GPU. Exit code 2, with one line on standard error, for what cannot be planned.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from tasks.common.errors import ConfigError, StageError
from tasks.memory import advice, sources, terms
from tasks.memory.workloads import PRECISIONS, STAGES, MemoryOptions, Workload, assign_devices, build_workload

LEAST = {"lora_rank": 0, "sequence": 2, "batch": 1, "micro_batch": 1, "devices": 1}
WIDEST = max(map(len, STAGES))
WHEN = {"always": "", "training": "in a pass", "sampling": "while sampling", "loading": "as it is read"}


class Plan:
    """A stage with its terms, beside the memory of its device."""

    def __init__(self, work: Workload, memory: int, base: int) -> None:
        self.work = work
        self.memory = memory
        self.base = base
        self.terms = terms.list_memory_terms(work, base)
        self.total, self.phase = terms.compute_peak_memory(self.terms)
        self.fits = advice.fits_in_memory(self.total, memory)

    def change(self) -> str:
        """What would make it fit, in one sentence."""
        remedy = advice.find_fitting_change(self.work, self.memory, self.base)
        if remedy is None:
            return "nothing that is known here makes it fit"
        change, total = remedy
        settings = " ".join(f"--set {shlex.quote(setting)}" for setting in change.settings)
        return (
            f"{' '.join(part for part in (settings, change.devices) if part)} would need {format_decimal_bytes(total)}"
        )


def format_decimal_bytes(count: float) -> str:
    """Bytes as a person reads them, in units of 1,000: 128.0 GB, 35.9 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def read_memory_sections() -> dict[str, Any]:
    """The sections of the language flow that a plan reads."""
    from pydantic import ValidationError
    from ruamel.yaml import YAML

    from tasks.stage import PARAMS, read_section

    data = YAML(typ="safe").load(PARAMS) or {}
    sections = {}
    for name in (*STAGES, "tokenizer", "preferences"):
        module = import_module(f"tasks.language.configs.{name}")
        kind = getattr(module, "".join(map(str.title, name.split("_"))) + "Config")
        try:
            sections[name] = kind.parse_section(data[name])
        except (ValidationError, LookupError, TypeError):
            sections[name] = read_section(name, kind)  # says in one line what is wrong
    return sections


def build_memory_plan(stage: str, sections: Mapping[str, Any], flags: argparse.Namespace) -> Plan:
    """The plan of one stage."""
    if flags.lectures and stage not in terms.LECTURES:
        raise ConfigError(f"--lectures: they count {' and '.join(terms.LECTURES)}, not {stage}")
    shape = sources.resolve_model_shape(flags.model) if flags.model else sources.resolve_starting_model_shape(sections)
    options = MemoryOptions(
        flags.precision, flags.lora_rank, flags.sequence, flags.batch,
        flags.micro_batch, flags.checkpointing, flags.lectures,
    )  # fmt: skip
    work = build_workload(stage, shape, sections, options)
    if work.scorer is not None and not flags.model:
        work = replace(work, scorer=sources.resolve_reward_model_shape(sections, stage, shape))
    devices, gpu, shard = sources.read_stage_resources(stage)
    device_memory = (
        sources.parse_memory_size(flags.device_memory)
        if flags.device_memory
        else sources.measure_smallest_gpu_memory()
        if gpu
        else None
    )
    work = assign_devices(
        work, "cpu" if device_memory is None else "cuda", flags.devices or devices, flags.shard or shard
    )
    if device_memory is not None:
        return Plan(work, device_memory, 0)
    if not flags.check:
        import_module(
            f"tasks.language.{stage}"
        )  # so that this process is as large as the stage's before it has a model
    return Plan(work, sources.get_machine_memory() // work.devices, sources.measure_resident_memory())


def iterate_plan_table_lines(stage_plan: Plan, lectures: bool) -> Iterator[str]:
    """The lines of one stage's table."""
    work = stage_plan.work
    over = (
        f"{work.devices} devices{f', which divide the {work.shard}' if work.shard else ''}"
        if work.devices > 1
        else "one device"
    )
    yield f"{work.stage}: {work.shape.name}, {work.shape.weights:,} weights, {work.precision}, {over} ({work.device})"
    counted = terms.estimate_lecture_memory(work) if lectures else {}
    width = max(len(term.name) for term in stage_plan.terms)
    for term in stage_plan.terms:
        beside = f"{format_decimal_bytes(counted[term.name]) if term.name in counted else '':>10}  " if lectures else ""
        yield (
            f"  {term.name:<{width}}  {format_decimal_bytes(term.bytes):>10}  {beside}{WHEN[term.when]:<14}  {term.how}"
        ).rstrip()
    yield f"  {'sum at the peak':<{width}}  {format_decimal_bytes(stage_plan.total):>10}" + (
        f"  {format_decimal_bytes(sum(counted.values())):>10}  as the lectures count"
        if lectures
        else f"  {WHEN[stage_plan.phase]}"
    )
    if work.assumed:
        yield f"  {work.assumed}"
    whose = "the machine has" if work.device == "cpu" else "a device has"
    if stage_plan.fits:
        yield f"  fits: {whose} {format_decimal_bytes(stage_plan.memory)}"
    else:
        yield (
            f"  does not fit: {whose} {format_decimal_bytes(stage_plan.memory)}, of which a tenth is left free; "
            f"{stage_plan.change()}"
        )


def build_plan_record(stage_plan: Plan, lectures: bool) -> dict[str, Any]:
    """The same for other programs; bytes as numbers."""
    parts = [term._asdict() for term in stage_plan.terms]
    description = {
        "stage": stage_plan.work.stage,
        "model": stage_plan.work.shape.name,
        "weights": stage_plan.work.shape.weights,
        "precision": stage_plan.work.precision,
        "device": stage_plan.work.device,
        "devices": stage_plan.work.devices,
        "terms": parts,
        "total": stage_plan.total,
        "phase": stage_plan.phase,
        "memory": stage_plan.memory,
        "fits": stage_plan.fits,
        "change": None if stage_plan.fits else stage_plan.change(),
        "assumed": stage_plan.work.assumed or None,
    }
    return description | (
        {"lectures": sum(terms.estimate_lecture_memory(stage_plan.work).values())} if lectures else {}
    )


def parse_memory_arguments(command_line: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tasks.memory", description=__doc__)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--precision", choices=PRECISIONS)
    for name in LEAST:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument("--checkpointing", action=argparse.BooleanOptionalAction)
    parser.add_argument("--device-memory")
    parser.add_argument("--shard", choices=("optimizer", "model"), default="")
    for name in ("lectures", "json", "check"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(command_line)


def iterate_memory_report_lines(flags: argparse.Namespace) -> Iterator[str]:
    """All that is printed."""
    for name, least in LEAST.items():
        value = getattr(flags, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name.replace('_', '-')} {value}: expected at least {least}")
    sections = read_memory_sections()
    stages = list(dict.fromkeys(name.partition("@")[0] for name in flags.stages)) or list(STAGES)
    if unknown := [name for name in stages if name not in STAGES]:
        if not flags.check:
            raise ConfigError(f"{unknown[0]}: expected a stage that holds a language model: {', '.join(STAGES)}")
        stages = [name for name in stages if name in STAGES]
    plans = [
        build_memory_plan(name, sections, flags)
        for name in stages
        if name != "pretrained" or sections[name].init == "scratch"
    ]
    if flags.check:
        for stage_plan in plans:
            if stage_plan.work.device == "cuda" and not stage_plan.fits:
                need = (
                    f"about {format_decimal_bytes(stage_plan.total)} of memory, and a device has "
                    f"{format_decimal_bytes(stage_plan.memory)}"
                )
                yield f"{stage_plan.work.stage} needs {need}: {stage_plan.change()}"
    elif flags.json:
        yield json.dumps([build_plan_record(stage_plan, flags.lectures) for stage_plan in plans])
    elif flags.stages:
        for stage_plan in plans:
            yield from iterate_plan_table_lines(stage_plan, flags.lectures)
    else:
        for stage_plan in plans:
            need = (
                "fits"
                if stage_plan.fits
                else f"does not fit into {format_decimal_bytes(stage_plan.memory)}: {stage_plan.change()}"
            )
            yield (
                f"{stage_plan.work.stage:<{WIDEST}}  {format_decimal_bytes(stage_plan.total):>10}  "
                f"{WHEN[stage_plan.phase]:<14}  {need}"
            )
        yield "`posttrain plan-memory STAGE` has the terms of each sum, and what is assumed"


def main() -> None:
    """Print the plan; exit code 2 with one line where there can be none."""
    try:
        for line in iterate_memory_report_lines(parse_memory_arguments()):
            print(line, flush=True)
    except StageError as error:
        print(f"posttrain: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
