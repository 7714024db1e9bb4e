"""Makes a command of a stage: main() calls the stage's `run` with its section of params.yaml and its paths.

`run(config, <paths>) -> metrics` is a plain function, so a flow, plain `dvc repro`, a test and a REPL all call the same
one.
"""

import argparse
import ctypes
import gc
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from ruamel.yaml import YAML

from tasks.algorithms.common.errors import TrainingError
from tasks.code import import_check
from tasks.common import config_faults, processes, tracking
from tasks.common.config import BRANCH, BRANCHES, Config
from tasks.common.errors import WAITING, ConfigError, StageError, WaitingError
from tasks.common.terminal import message

PARAMS = Path("params.yaml")
PIPELINE = Path("dvc.yaml")
Metrics = Mapping[str, "float | Metrics"]


def read_section(stage: str, config_type: type[Config], params: Path = PARAMS) -> Config:
    """The stage's section of params.yaml; ConfigError with one line naming file, key and what was expected."""
    try:
        return config_faults.parse_stage_config(stage, {stage: config_type}, _load_yaml(params))
    except config_faults.SectionError as error:
        raise ConfigError(f"{params}: {error}") from None


def main(run: Callable[..., Metrics], *, data_parallel: bool = False, flow: str = "") -> None:
    """Run a stage as a command: flags from `run`'s signature, Config from params.yaml, metrics to `--metrics`.

    A stage is a module of its flow's folder, as `tasks.language.dpo`; one of an extension, as
    `tasks.extensions.search.search`, says by `flow` under which flow its run is recorded.

    A parameter of `run` typed Path becomes one required flag, one typed list[Path] a flag with one or more values.
    `--threads` stands in the command and so counts in DVC's hash: the order of sums, and with it the bytes, depends on
    it. `meta.resources` in dvc.yaml says whether the stage may use a GPU, and how many: a stage that is `data_parallel`
    runs as so many processes (docs/scaling/devices.md). No hash holds it, so that results outlive a change of machine.
    """
    spec = sys.modules["__main__"].__spec__
    assert spec is not None, "a stage is started with python -m"
    _, folder, *_, stage = spec.name.split(".")
    flow = flow or folder
    definition = _load_yaml(PIPELINE)["stages"][stage]
    name = os.environ.get("DVC_STAGE", stage)  # stage@branch, where it has branches; DVC sets it for every command
    hints = get_type_hints(run)
    parser = argparse.ArgumentParser(prog=f"python -m {spec.name}", description=sys.modules["__main__"].__doc__)
    paths = [name for name in inspect.signature(run).parameters if name != "config"]
    named = partial(
        substitute_path_names,
        names=Names(_load_yaml(PARAMS), str(definition.get("foreach", "")), name.partition("@")[2]),
    )
    parser.add_argument("--threads", type=int, required=True)
    for flag in [*paths, "metrics"]:
        nargs = "+" if hints.get(flag) == list[Path] else None
        parser.add_argument("--" + flag.replace("_", "-"), type=named, required=True, nargs=nargs)
    try:
        arguments = vars(parser.parse_args())
        import_check.check_and_watch_imports(stage, Path())
        config = read_section(stage, hints["config"])
        resources = definition.get("do", definition)["meta"]["resources"]
        count = processes.read_world_size() or processes.count_wanted_processes(
            name, resources, sys.modules.get("torch")
        )
        os.environ[processes.SHARD] = processes.read_shard_setting(name, resources)
        if count > 1 and not data_parallel:
            raise ConfigError(f"dvc.yaml: {name}: asked for {count} processes, but this stage can only be one")
    except (ConfigError, StageError) as error:
        raise SystemExit(str(error)) from None
    if count > 1 and not processes.is_multi_process():
        processes.replace_with_processes(count, spec.name)
    metrics_path: Path = arguments.pop("metrics")
    configure_torch(arguments.pop("threads"), resources["gpu"])
    keep_freed_memory(of_a_divided_model=count > 1 and os.environ[processes.SHARD] == "model")
    gc.freeze()  # searching all that is imported for garbage, now and at the end, costs a stage two seconds
    params = collect_recorded_params(config, metrics_path.stem)
    with (
        tracking.record_stage_run(flow, metrics_path.stem, params, metrics_path)
        if processes.is_main_process()
        else nullcontext()
    ):
        if data_parallel:
            tracking.record_metrics(processes.collect_process_facts(sys.modules["torch"]), step=0)
        metrics = (run_as_rank if processes.is_multi_process() else run_in_single_process)(
            partial(run, config, **arguments)
        )
        if processes.is_main_process():
            metrics_path.parent.mkdir(parents=True, exist_ok=True)
            metrics_path.write_text(json.dumps(metrics, indent=2) + "\n")
            if (torch := sys.modules.get("torch")) is not None:
                tracking.record_metrics(processes.measure_peak_gpu_memory(torch), step=0)
    gc.freeze()


def run_in_single_process(run: Callable[[], Metrics]) -> Metrics:
    """What a stage returns; a failure of its own ends the process with its line, and so does waiting for people."""
    try:
        return run()
    except WaitingError as error:
        print(error, file=sys.stderr, flush=True)
        raise SystemExit(WAITING) from None
    except (StageError, TrainingError) as error:
        raise SystemExit(str(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # Of a library in Rust, as tokenizers, whose matcher gives up where an expression of tokenizer.json takes too
        # long.
        raise SystemExit(message(f"a library could not go on: {error}")) from None


def run_as_rank(run: Callable[[], Metrics]) -> Metrics:
    """The same in one of several processes, which meet before; only the first has anything to write after training."""
    torch: Any = sys.modules["torch"]
    try:
        processes.join_process_group(torch)
        metrics = run()
        processes.leave_process_group(torch)
    except (StageError, TrainingError) as error:
        raise processes.record_failure_and_make_exit(str(error)) from None
    except RuntimeError as error:
        if processes.is_peer_lost_error(error):
            raise SystemExit(processes.LOST) from None
        raise
    return metrics


@dataclass(frozen=True)
class Names:
    """What a command in dvc.yaml may name in braces: a dotted key of params.yaml, and in a branch of `foreach` {key}
    and {item}.

    In deps and outs DVC replaces the same names, written as ${..}. In a command it would put the values unquoted before
    a shell, so a command has the names without the dollar, and the stage itself looks them up.
    """

    params: Mapping[str, object]
    foreach: str
    branch: str

    def __getitem__(self, name: str) -> str:
        first, *rest = name.split(".")
        if first in ("key", "item"):
            if not BRANCH.fullmatch(self.branch):
                wanted = (
                    "DVC_STAGE: expected stage@branch, as `dvc repro` sets it, the branch of letters, digits, _ and -"
                )
                raise ConfigError(f"{wanted}; got {self.branch!r}")
            if first == "key":
                return self.branch
            foreach_keys = self.foreach.removeprefix("${").removesuffix("}").split(".")
            named = isinstance(
                self._get_by_keys(foreach_keys), Mapping
            )  # where branches come from a list, the item is the name itself
            return str(self._get_by_keys([*foreach_keys, self.branch, *rest])) if named else self.branch
        return str(self._get_by_keys([first, *rest]))

    def _get_by_keys(self, keys: Sequence[str]) -> object:
        node: object = self.params
        for key in keys:
            if not isinstance(node, Mapping) or key not in node:
                raise ConfigError(f"{PARAMS}: {'.'.join(keys)} is missing")
            node = node[key]
        return node


def substitute_path_names(text: str, names: Names) -> Path:
    """A path of a command, with the names in braces replaced."""
    return Path(re.sub(r"\{([^{}]+)\}", lambda match: names[match[1]], text))


def _load_yaml(file: Path) -> Any:
    return YAML(typ="safe").load(file) or {}


def collect_recorded_params(config: Config, name: str) -> dict[str, object]:
    """What a stage, or one of its branches (STAGE@BRANCH), depends on: its section, and its own entry of the section
    `branches`.
    """
    stage, _, branch = name.partition("@")
    params: dict[str, object] = config.model_dump()
    entries = params.pop(config.branched_by, None)
    entry = entries.get(branch) if isinstance(entries, dict) else None
    return params | {f"{BRANCHES}.{stage}.{branch}.{key}": value for key, value in (entry or {}).items()}


def keep_freed_memory(*, of_a_divided_model: bool = False) -> None:
    """Have glibc keep large freed blocks for reuse; otherwise every gradient step would ask the system for new pages.

    Of a divided model they are given back: layers come and go, and the holes between them would be as large as what is
    saved.
    """
    with suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            mallopt(option, 2**18 if of_a_divided_model else 2**30)


def configure_torch(threads: int, gpus: int) -> None:
    """Keep torch to what dvc.yaml grants the stage, and ask it for deterministic kernels.

    A stage without a GPU computes on the CPU whatever POSTTRAIN_DEVICE says: `posttrain run` hides the GPUs from it,
    and plain `dvc repro` must give the same bytes. With `warn_only` torch keeps attention's non-deterministic kernel on
    a GPU; POSTTRAIN_NONDETERMINISTIC=1 is for models with operations that have no deterministic one.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    if not gpus:
        os.environ["POSTTRAIN_DEVICE"] = "cpu"
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=os.environ.get("POSTTRAIN_NONDETERMINISTIC") == "1")
