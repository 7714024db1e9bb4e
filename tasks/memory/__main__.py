"""`python -m tasks.memory [STAGE...]`: what a stage needs of a device's memory, by arithmetic. `posttrain plan-memory` starts it.

With --check only stages that would not fit are named, a line each, which `posttrain run` does before it starts a stage on a GPU.
Exit code 2, with one line on standard error, for what cannot be planned.
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
from tasks.memory.workloads import PRECISIONS, STAGES, Options, Workload, on, workload

LEAST = {"lora_rank": 0, "sequence": 2, "batch": 1, "micro_batch": 1, "devices": 1}
WIDEST = max(map(len, STAGES))
WHEN = {"always": "", "training": "in a pass", "sampling": "while sampling", "loading": "as it is read"}


class Plan:
    """A stage with its terms, beside the memory of its device."""

    def __init__(self, work: Workload, memory: int, base: int) -> None:
        self.work, self.memory, self.base = work, memory, base
        self.terms = terms.terms(work, base)
        self.total, self.phase = terms.peak(self.terms)
        self.fits = advice.fits(self.total, memory)

    def change(self) -> str:
        """What would make it fit, in one sentence."""
        found = advice.advise(self.work, self.memory, self.base)
        if found is None:
            return "nothing that is known here makes it fit"
        change, total = found
        settings = " ".join(f"--set {shlex.quote(setting)}" for setting in change.settings)
        return f"{' '.join(part for part in (settings, change.devices) if part)} would need {shown(total)}"


def shown(count: float) -> str:
    """Bytes as a person reads them, in units of 1,000: 128.0 GB, 35.9 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def configs() -> dict[str, Any]:
    """The sections of the language flow that a plan reads."""
    from pydantic import ValidationError
    from ruamel.yaml import YAML

    from tasks.stage import PARAMS, read_section

    data, found = YAML(typ="safe").load(PARAMS) or {}, {}
    for name in (*STAGES, "tokenizer", "preferences"):
        module = import_module(f"tasks.language.configs.{name}")
        kind = getattr(module, "".join(map(str.title, name.split("_"))) + "Config")
        try:
            found[name] = kind.from_yaml(data[name])
        except (ValidationError, LookupError, TypeError):
            found[name] = read_section(name, kind)  # says in one line what is wrong
    return found


def plan(stage: str, given: Mapping[str, Any], asked: argparse.Namespace) -> Plan:
    """The plan of one stage."""
    if asked.lectures and stage not in terms.LECTURES:
        raise ConfigError(f"--lectures: they count {' and '.join(terms.LECTURES)}, not {stage}")
    shape = sources.model(asked.model) if asked.model else sources.of_params(given)
    options = Options(
        asked.precision, asked.lora_rank, asked.sequence, asked.batch, asked.micro_batch, asked.checkpointing, asked.lectures
    )  # fmt: skip
    work = workload(stage, shape, given, options)
    if work.scorer is not None and not asked.model:
        work = replace(work, scorer=sources.scorer(given, stage, shape))
    devices, gpu, shard = sources.resources(stage)
    known = sources.memory(asked.device_memory) if asked.device_memory else sources.gpu_memory() if gpu else None
    work = on(work, "cpu" if known is None else "cuda", asked.devices or devices, asked.shard or shard)
    if known is not None:
        return Plan(work, known, 0)
    if not asked.check:
        import_module(
            f"tasks.language.{stage}"
        )  # so that this process is as large as the stage's before it has a model
    return Plan(work, sources.machine_memory() // work.devices, sources.resident())


def table(found: Plan, lectures: bool) -> Iterator[str]:
    """The lines of one stage's table."""
    work = found.work
    over = (
        f"{work.devices} devices{f', which divide the {work.shard}' if work.shard else ''}"
        if work.devices > 1
        else "one device"
    )
    yield f"{work.stage}: {work.shape.name}, {work.shape.weights:,} weights, {work.precision}, {over} ({work.device})"
    counted = terms.lectures(work) if lectures else {}
    width = max(len(term.name) for term in found.terms)
    for term in found.terms:
        beside = f"{shown(counted[term.name]) if term.name in counted else '':>10}  " if lectures else ""
        yield f"  {term.name:<{width}}  {shown(term.bytes):>10}  {beside}{WHEN[term.when]:<14}  {term.how}".rstrip()
    yield f"  {'sum at the peak':<{width}}  {shown(found.total):>10}" + (
        f"  {shown(sum(counted.values())):>10}  as the lectures count" if lectures else f"  {WHEN[found.phase]}"
    )
    if work.assumed:
        yield f"  {work.assumed}"
    whose = "the machine has" if work.device == "cpu" else "a device has"
    if found.fits:
        yield f"  fits: {whose} {shown(found.memory)}"
    else:
        yield f"  does not fit: {whose} {shown(found.memory)}, of which a tenth is left free; {found.change()}"


def document(found: Plan, lectures: bool) -> dict[str, Any]:
    """The same for other programs; bytes as numbers."""
    parts = [term._asdict() for term in found.terms]
    told = {
        "stage": found.work.stage,
        "model": found.work.shape.name,
        "weights": found.work.shape.weights,
        "precision": found.work.precision,
        "device": found.work.device,
        "devices": found.work.devices,
        "terms": parts,
        "total": found.total,
        "phase": found.phase,
        "memory": found.memory,
        "fits": found.fits,
        "change": None if found.fits else found.change(),
        "assumed": found.work.assumed or None,
    }
    return told | ({"lectures": sum(terms.lectures(found.work).values())} if lectures else {})


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
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
    return parser.parse_args(given)


def lines(asked: argparse.Namespace) -> Iterator[str]:
    """All that is printed."""
    for name, least in LEAST.items():
        value = getattr(asked, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name.replace('_', '-')} {value}: expected at least {least}")
    given = configs()
    stages = list(dict.fromkeys(name.partition("@")[0] for name in asked.stages)) or list(STAGES)
    if unknown := [name for name in stages if name not in STAGES]:
        if not asked.check:
            raise ConfigError(f"{unknown[0]}: expected a stage that holds a language model: {', '.join(STAGES)}")
        stages = [name for name in stages if name in STAGES]
    plans = [plan(name, given, asked) for name in stages if name != "pretrained" or given[name].init == "scratch"]
    if asked.check:
        for found in plans:
            if found.work.device == "cuda" and not found.fits:
                need = f"about {shown(found.total)} of memory, and a device has {shown(found.memory)}"
                yield f"{found.work.stage} needs {need}: {found.change()}"
    elif asked.json:
        yield json.dumps([document(found, asked.lectures) for found in plans])
    elif asked.stages:
        for found in plans:
            yield from table(found, asked.lectures)
    else:
        for found in plans:
            need = "fits" if found.fits else f"does not fit into {shown(found.memory)}: {found.change()}"
            yield f"{found.work.stage:<{WIDEST}}  {shown(found.total):>10}  {WHEN[found.phase]:<14}  {need}"
        yield "`posttrain plan-memory STAGE` has the terms of each sum, and what is assumed"


def main() -> None:
    """Print the plan; exit code 2 with one line where there can be none."""
    try:
        for line in lines(arguments()):
            print(line, flush=True)
    except StageError as error:
        print(f"posttrain: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
