"""`tasks.stage.main`: flags of a stage's signature, its section, its resources, its processes and its record.

A stage is run in this process as `python -m` runs it. Only what several processes do together is run in processes of
their own.
"""

import gc
import inspect
import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from mlflow import MlflowClient

from tasks import stage
from tasks.common import processes
from tasks.common.errors import WAITING, ConfigError, WaitingError
from tasks.stage import Names, run_in_single_process, substitute_path_names
from tests.tasks import forks

# Page faults of filling and freeing arrays twenty times, with a glibc that keeps no freed memory by default, then as a
# stage sets it.
FAULTS = f"""import ctypes, resource
from contextlib import suppress
{inspect.getsource(stage.keep_freed_memory)}
def fill():
    kept = [b"x" * 2**20 for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def new_pages():
    first = [fill() for _ in range(3)][-1]
    return [fill() for _ in range(20)][-1] - first
by_default = new_pages()
keep_freed_memory()
print(by_default, new_pages())"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: the setting is that library's own")
def test_freed_memory_is_kept():
    environ = os.environ | {"MALLOC_MMAP_THRESHOLD_": "100000"}
    done = subprocess.run([sys.executable, "-S", "-c", FAULTS], env=environ, capture_output=True, check=True)
    by_default, kept = map(int, done.stdout.split())
    assert by_default > 10 * kept


# A stage of a package of its own: main() makes flags of the signature, and finds the section by the module's name.
TOY = """
import os
from pathlib import Path
import torch
from tasks.stage import Config, Metrics, main

class ToyConfig(Config):
    seed: int

def run(config: ToyConfig, raw_text: Path, more: list[Path], out: Path) -> Metrics:
    out.write_text(f"{config.seed} {raw_text.read_text()} {[path.name for path in more]}")
    return {"threads": torch.get_num_threads(), "nested": {"seed": config.seed}}

if __name__ == "__main__":
    main(run)
"""


@pytest.fixture
def house(empty_mlflow, tmp_path):
    (tmp_path / "stages/toys").mkdir(parents=True)
    (tmp_path / "stages/toys/toy.py").write_text(TOY)
    (tmp_path / "params.yaml").write_text("toy: {seed: 7}\n")
    (tmp_path / "dvc.yaml").write_text("stages: {toy: {meta: {resources: {gpu: 0}}}}\n")
    shutil.copy(empty_mlflow, tmp_path / "mlflow.db")
    (tmp_path / "raw.txt").write_text("raw")
    return tmp_path


@pytest.fixture
def start(house, monkeypatch, capsys):
    """Runs the stage as `python -m stages.toys.toy` does, but here; its exit status and its standard error."""
    monkeypatch.chdir(house)
    monkeypatch.syspath_prepend(house)
    monkeypatch.setattr(stage, "keep_freed_memory", lambda **_: None)

    def severed(count, module):
        raise SystemExit(f"{module} would become {count} processes")

    monkeypatch.setattr(processes, "replace_with_processes", severed)
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()

    def started(*arguments, device="", branch="", **environ):
        monkeypatch.setattr(sys, "argv", ["toy", "--threads", "3", *arguments])
        with mock.patch.dict(os.environ, variables(house, device, branch, environ), clear=True):
            status = exit_status()
        return SimpleNamespace(returncode=status, stderr=capsys.readouterr().err)

    yield started
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict, warn_only=warns)
    gc.unfreeze()


def variables(house, device="", branch="", more=None):
    """The environment of a stage that nothing but these has been said to."""
    named = {"DVC_STAGE": branch} if branch else {}
    address = f"sqlite:///{house}/mlflow.db"
    return {"PATH": "", "MLFLOW_TRACKING_URI": address, "POSTTRAIN_DEVICE": device, **named, **(more or {})}


def exit_status():
    """Of a run of the stage's module; a text that it ends with goes to standard error, as Python itself writes it."""
    try:
        runpy.run_module("stages.toys.toy", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "stages"]:
            del sys.modules[name]
    return 0


def recorded(house):
    client = MlflowClient(f"sqlite:///{house}/mlflow.db")
    return client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])


ARGUMENTS = ["--raw-text", "raw.txt", "--more", "a", "b", "--out", "out.txt", "--metrics", "data/metrics/toy.json"]


def test_main_runs_a_stage(house, start):
    done = start(*ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert (house / "out.txt").read_text() == "7 raw ['a', 'b']"
    assert json.loads((house / "data/metrics/toy.json").read_text()) == {"threads": 3, "nested": {"seed": 7}}
    [run] = recorded(house)
    assert run.info.run_name == "toy"
    assert run.info.status == "FINISHED"
    assert run.data.params == {"toy.seed": "7"}
    assert run.data.metrics == {"threads": 3, "nested/seed": 7}


def test_main_refuses_wrong_flags_and_values(house, start):
    lacking = start(*ARGUMENTS[2:])
    assert lacking.returncode == 2
    assert "--raw-text" in lacking.stderr
    (house / "params.yaml").write_text("toy: {seed: soon}\n")
    wrong = start(*ARGUMENTS)
    assert wrong.returncode == 1
    assert wrong.stderr.strip() == "params.yaml: toy.seed: expected a whole number, got 'soon'"
    assert not (house / "out.txt").exists()
    assert recorded(house) == [], "nothing is recorded of a run that never began"


BRANCHED = """
from pathlib import Path
import torch
from tasks.stage import Config, Metrics, main

class Entry(Config):
    size: int
    name: str

class ToyConfig(Config):
    branched_by = "entries"

    entries: dict[str, Entry]
    seed: int
    weights: dict[str, float]

def run(config: ToyConfig, out: Path) -> Metrics:
    out.write_text(config.entries[out.name].name)
    return {"threads": torch.get_num_threads()}

if __name__ == "__main__":
    main(run)
"""


def test_a_branch_has_its_stage_s_threads_and_is_recorded_by_its_own_name_with_its_own_entry(house, start):
    (house / "stages/toys/toy.py").write_text(BRANCHED)
    (house / "dvc.yaml").write_text(
        "stages: {toy: {foreach: '${branches.toy}', do: {cmd: x, meta: {resources: {gpu: 0}}}}}\n"
    )
    entries = {"Some-v1": {"size": 1, "name": "one"}, "other": {"size": 2, "name": "two"}}
    (house / "params.yaml").write_text(
        json.dumps({"toy": {"seed": 4, "weights": {"Some-v1": 0.5}}, "branches": {"toy": entries}})
    )
    done = start("--out", "Some-v1", "--metrics", "data/metrics/toy@Some-v1.json")
    assert done.returncode == 0, done.stderr
    assert (house / "Some-v1").read_text() == "one"
    [run] = recorded(house)
    assert run.info.run_name == run.data.tags["posttrain.stage"] == "toy@Some-v1"
    assert run.data.metrics == {"threads": 3}
    assert run.data.params == {
        "branches.toy.Some-v1.size": "1",
        "branches.toy.Some-v1.name": "one",
        "toy.seed": "4",
        "toy.weights": "{'Some-v1': 0.5}",
    }


@pytest.mark.parametrize(("gpu", "device"), [(0, "cpu"), (1, "xpu")])
def test_a_stage_without_a_gpu_computes_on_the_cpu_whatever_the_environment_names(house, start, gpu, device):
    """Plain `dvc repro` does not hide the GPU, but its bytes must be those of `posttrain run`."""
    where = "from tasks.common import models; out.write_text(models.choose_device())"
    (house / "stages/toys/toy.py").write_text(re.sub("out.write_text.*", where, TOY))
    (house / "dvc.yaml").write_text(f"stages: {{toy: {{meta: {{resources: {{gpu: {gpu}}}}}}}}}\n")
    paths = ["--raw-text", "raw.txt", "--more", "raw.txt", "--out", "out.txt", "--metrics", "metrics.json"]
    done = start(*paths, device="xpu")
    assert done.returncode == 0, done.stderr
    assert (house / "out.txt").read_text() == device


@pytest.mark.parametrize(("asked", "warns"), [({}, False), ({"POSTTRAIN_NONDETERMINISTIC": "1"}, True)])
def test_a_stage_is_strict_about_determinism_unless_it_is_told(house, start, asked, warns):
    """Only then does torch take attention's deterministic kernel on a GPU."""
    mode = (
        "import torch; out.write_text(f'{torch.are_deterministic_algorithms_enabled()} "
        "{torch.is_deterministic_algorithms_warn_only_enabled()}')"
    )
    (house / "stages/toys/toy.py").write_text(re.sub("out.write_text.*", lambda _: mode, TOY))
    paths = ["--raw-text", "raw.txt", "--more", "raw.txt", "--out", "out.txt", "--metrics", "metrics.json"]
    done = start(*paths, **asked)
    assert done.returncode == 0, done.stderr
    assert (house / "out.txt").read_text() == f"True {warns}"


PARAMS = {"data": {"sets": {"a-1": {"of": "x y"}, "b": {"of": "$(pwd)"}}, "path": "it's"}, "branches": {"bc": ["a-1"]}}


@pytest.mark.parametrize(
    ("text", "foreach", "branch", "expected"),
    [
        ("data/raw", "", "", "data/raw"),
        ("{data.path}", "", "", "it's"),
        ("data/{key}/{item.of}", "${data.sets}", "a-1", "data/a-1/x y"),
        ("data/{item.of}", "${data.sets}", "b", "data/$(pwd)"),
        ("data/{item}/m@{key}.json", "${branches.bc}", "a-1", "data/a-1/m@a-1.json"),
    ],
)
def test_a_command_names_in_braces_what_the_stage_looks_up(text, foreach, branch, expected):
    assert substitute_path_names(text, Names(PARAMS, foreach, branch)) == Path(expected)


@pytest.mark.parametrize(
    ("text", "branch", "told"),
    [
        ("{data.nosuch}", "", "params.yaml: data.nosuch is missing"),
        ("{item.nosuch}", "a-1", "params.yaml: data.sets.a-1.nosuch is missing"),
        ("{key}", "", "DVC_STAGE: expected stage@branch, as `dvc repro` sets it"),
        ("{key}", "../../etc", "DVC_STAGE: expected stage@branch, as `dvc repro` sets it"),
        ("{item.of}", "c", "params.yaml: data.sets.c.of is missing"),
    ],
)
def test_what_a_command_cannot_name_is_one_line(text, branch, told):
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}"):
        substitute_path_names(text, Names(PARAMS, "${data.sets}", branch))


def test_a_branch_finds_its_own_places_from_what_dvc_calls_it(house, start):
    (house / "stages/toys/toy.py").write_text(BRANCHED)
    (house / "dvc.yaml").write_text(
        "stages: {toy: {foreach: '${branches.toy}', do: {cmd: x, meta: {resources: {gpu: 0}}}}}\n"
    )
    entries = {"one-v1": {"size": 1, "name": "one"}}
    (house / "params.yaml").write_text(json.dumps({"toy": {"seed": 4, "weights": {}}, "branches": {"toy": entries}}))
    arguments = ["--out", "{key}", "--metrics", "data/metrics/toy@{key}.json"]
    lost = start(*arguments)
    assert lost.returncode == 1
    assert lost.stderr.startswith("DVC_STAGE: expected stage@branch")
    done = start(*arguments, branch="toy@one-v1")
    assert done.returncode == 0, done.stderr
    assert (house / "one-v1").read_text() == "one"
    assert (house / "data/metrics/toy@one-v1.json").is_file()


@pytest.mark.parametrize("asked", ["dvc.yaml", "environment"])
def test_a_stage_that_can_only_be_one_process_refuses_to_be_two(house, start, asked):
    if asked == "dvc.yaml":
        (house / "dvc.yaml").write_text("stages: {toy: {meta: {resources: {gpu: 0, processes: 2}}}}\n")
    done = start(*ARGUMENTS, **({"RANK": "1", "WORLD_SIZE": "2"} if asked == "environment" else {}))
    assert done.returncode == 1
    assert done.stderr == "dvc.yaml: toy: asked for 2 processes, but this stage can only be one\n"
    assert not (house / "out.txt").exists()


SAYS_WHAT = TOY.replace("out.write_text(", "out.write_text(os.environ['POSTTRAIN_SHARD'] or 'nothing') #").replace(
    "main(run)", "main(run, data_parallel=True)"
)


@pytest.mark.parametrize(
    ("resources", "divided"),
    [("", "nothing"), (", shard: optimizer", "optimizer"), (", shard: model", "model")],
)
def test_dvc_yaml_says_what_processes_divide(house, start, resources, divided):
    """Whatever the environment said before; a stage that is data_parallel is so many processes."""
    (house / "stages/toys/toy.py").write_text(SAYS_WHAT)
    (house / "dvc.yaml").write_text(f"stages: {{toy: {{meta: {{resources: {{gpu: 0{resources}}}}}}}}}\n")
    done = start(*ARGUMENTS, POSTTRAIN_SHARD="model" if divided == "nothing" else "")
    assert done.returncode == 0, done.stderr
    assert (house / "out.txt").read_text() == divided
    (house / "dvc.yaml").write_text(f"stages: {{toy: {{meta: {{resources: {{gpu: 0, processes: 2{resources}}}}}}}}}\n")
    assert start(*ARGUMENTS).stderr == "stages.toys.toy would become 2 processes\n"


SEVERAL = """
import os
from pathlib import Path
from time import sleep
from tasks.common import processes
from tasks.stage import Config, Metrics, main

if processes.is_multi_process():  # before it is several, the stage needs no torch
    from tasks.algorithms.common import distributed

leave = processes.leave_process_group

def left(torch) -> None:
    Path(f"leaves-{os.environ['RANK']}").touch()
    leave(torch)
    Path(f"left-{os.environ['RANK']}").touch()

processes.leave_process_group = left

class ToyConfig(Config):
    seed: int

def run(config: ToyConfig, raw_text: Path, more: list[Path], out: Path) -> Metrics:
    divides = [name for name in ("optimizer", "model") if getattr(distributed, f"is_{name}_sharded")()]
    out.with_name(f"{distributed.get_rank()}.txt").write_text(" ".join(divides))
    if not processes.is_main_process():
        while not Path("leaves-0").exists():
            sleep(0.01)
        sleep(0.1)
        Path("first-has-left").write_text(str(Path("left-0").exists()))
    return {}

if __name__ == "__main__":
    main(run, data_parallel=True)
"""


def rank(house, number):
    """In a child of this process: the stage as one of its two processes, which tasks.common.processes starts."""
    ranks = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, processes.FOLDER: house / "meeting"}
    records = {"POSTTRAIN_RECORDS": "records.jsonl"}
    os.chdir(house)
    sys.path.insert(0, str(house))
    sys.argv = ["toy", "--threads", "1", *ARGUMENTS]
    environ = variables(house, more={**records, **{name: str(value) for name, value in ranks.items()}})
    with mock.patch.dict(os.environ, environ, clear=True):
        assert exit_status() == 0


def test_a_process_leaves_only_when_all_are_done(house):
    """One that had ended while another still connected was lost to it, and the stage failed: 10 times of 300."""
    (house / "stages/toys/toy.py").write_text(SEVERAL)
    (house / "dvc.yaml").write_text("stages: {toy: {meta: {resources: {gpu: 0, processes: 2, shard: optimizer}}}}\n")
    (house / "meeting").mkdir()
    children = [forks.start(partial(rank, house, number)) for number in (0, 1)]
    assert [forks.ended(child) for child in children] == [0, 0]
    assert [(house / f"{rank}.txt").read_text() for rank in (0, 1)] == ["optimizer"] * 2
    assert (house / "first-has-left").read_text() == "False"
    assert (house / "left-0").exists()
    metrics = [json.loads(line).get("metrics", {}) for line in (house / "records.jsonl").read_text().splitlines()]
    assert {"system/processes": 2, "system/threads": 1, "system/gpus": 0} in metrics, "recorded once, by the first"


def test_a_stage_that_is_to_divide_something_else_says_what_it_can(house, start):
    (house / "dvc.yaml").write_text("stages: {toy: {meta: {resources: {gpu: 0, shard: weights}}}}\n")
    done = start(*ARGUMENTS)
    assert (done.returncode, done.stderr) == (
        1,
        "dvc.yaml: toy: meta.resources.shard: expected optimizer or model, got 'weights'\n",
    )


def test_waiting_for_people_is_a_status_of_its_own_with_one_line(capsys):
    def run():
        raise WaitingError("waiting for 40 more: posttrain label")

    with pytest.raises(SystemExit) as ended:
        run_in_single_process(run)
    assert ended.value.code == WAITING == 75
    assert capsys.readouterr().err == "waiting for 40 more: posttrain label\n"
