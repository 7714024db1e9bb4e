"""What holds the house together: dvc.yaml, params.yaml, signatures, imports and the lock say the same."""

import ast
import importlib.metadata
import inspect
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import get_type_hints

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from tasks import contract, tracking
from tasks.language import sft
from tasks.stage import read_section
from tests.conftest import PARAMS, tiny

ROOT = Path(__file__).parent.parent
PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")
SOURCES = sorted(file for folder in ("flows", "tasks", "tests", "benchmarks") for file in (ROOT / folder).rglob("*.py"))


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def stages():
    """Every stage as DVC resolves it, matrix and interpolation included."""
    with Repo(str(ROOT)) as repo:
        found = {stage.name: stage for stage in repo.index.stages if stage.addressing != "data/raw"}
        return {name: stage for name, stage in found.items() if stage.cmd}


def flags(command):
    """`python -m module --flag value...` as module and {flag: values}."""
    python, dash_m, module, *rest = shlex.split(command)
    assert (python, dash_m) == ("python", "-m")
    given: dict[str, list[str]] = {}
    for word in rest:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            assert name not in given
            given[name] = []
        else:
            given[name].append(word)
    return module, given


def paths(outs_or_deps):
    return {entry.def_path for entry in outs_or_deps} - {"params.yaml"}


def test_file_stage_section_and_folder_have_one_name(stages):
    files = {
        file.stem: folder
        for folder in ("language", "offline")
        for file in (ROOT / "tasks" / folder).glob("*.py")
        if file.stem != "__init__"
    }
    names = {name.split("@")[0] for name in stages}
    assert files.keys() == names == set(PIPELINE["stages"]) == set(PARAMS)
    assert all((ROOT / f"tests/tasks/{folder}/test_{name}.py").is_file() for name, folder in files.items())
    for name, stage in stages.items():
        stem, _, item = name.partition("@")
        module, given = flags(stage.cmd)
        assert module == f"tasks.{files[stem]}.{stem}"
        assert given["out"] == ["/".join(filter(None, ["data", stem, item]))]
        assert given["metrics"] == [f"data/metrics/{name}.json"]


def sections(pipeline, name, item):
    """The params that a stage of dvc.yaml, or its branch `item`, depends on."""
    return [key.replace("${key}", item) for key in contract.params(pipeline)[name]]


def test_a_stage_depends_on_its_whole_section_and_a_branch_on_its_own_entry_of_it(stages):
    for name, stage in stages.items():
        stem, _, item = name.partition("@")
        [given] = [dep.params for dep in stage.deps if dep.def_path == "params.yaml"]
        assert given == sections(PIPELINE, stem, item), "`make contract` rewrites dvc.yaml"
        assert {key.split(".")[0] for key in given} == {stem}


def test_flags_are_the_signature(stages):
    for name, stage in stages.items():
        module, given = flags(stage.cmd)
        run = importlib.import_module(module).run
        hints = get_type_hints(run)
        expected = {*inspect.signature(run).parameters, "metrics"} - {"config"}
        assert given.keys() == expected, name
        for flag, values in given.items():
            assert len(values) == 1 or hints[flag] == list[Path], f"{name} --{flag}"
            assert flag == "metrics" or hints[flag] in (Path, list[Path])


def test_every_path_of_a_command_is_a_dep_or_an_out_and_the_other_way_round(stages):
    for name, stage in stages.items():
        _, given = flags(stage.cmd)
        named = {value for values in given.values() for value in values}
        data = {path for path in paths(stage.deps) if not path.startswith("tasks/")}
        assert named == data | paths(stage.outs), name
        written = {given[flag][0] for flag in ("out", "curves", "metrics") if flag in given and name != "report"}
        if name != "report":
            assert paths(stage.outs) == written, name
        assert [out.def_path for out in stage.outs if out.metric] == given["metrics"]


def test_a_policy_waits_for_the_reward_model_only_where_its_reward_counts_it(stages):
    for name in ("rejection_sft", "reinforce", "ppo", "grpo"):
        counts = PARAMS[name]["reward"]["reward_model"] > 0
        assert ("data/reward_model" in paths(stages[name].deps)) == counts, name


def test_every_stage_says_what_it_takes():
    for name, stage in definitions(PIPELINE).items():
        assert stage["meta"]["resources"].keys() == {"cpu", "gpu"}, name
        assert stage["desc"]


def test_plots_are_outs(stages):
    outs = set().union(*(paths(stage.outs) for stage in stages.values()))
    for entry in PIPELINE["plots"]:
        [path] = entry
        assert any(path == out or path.startswith(out + "/") for out in outs), path


def test_params_are_the_configs(tmp_path):
    for name, config in contract.config_types(PIPELINE).items():
        assert PARAMS[name].keys() == config.model_fields.keys(), name
        assert all(field.is_required() for field in config.model_fields.values()), f"{name}: no defaults in code"
        read_section(name, config, ROOT / "params.yaml")
        for key in PARAMS[name]:
            lacking = tmp_path / "params.yaml"
            lacking.write_text(json.dumps({name: {k: v for k, v in PARAMS[name].items() if k != key}}))
            with pytest.raises(SystemExit, match=f"{name}.{key}: Field required"):
                read_section(name, config, lacking)


def laid(preset):
    """params.yaml with a preset's values over it."""
    return {name: {**section, **preset.get(name, {})} for name, section in PARAMS.items()}


def test_presets_are_valid(tmp_path):
    for file in sorted((ROOT / "presets").glob("*.yaml")):
        preset = YAML(typ="safe").load(file)
        assert preset.keys() <= PARAMS.keys(), file.name
        (tmp_path / file.name).write_text(json.dumps(laid(preset)))
        for name, config in contract.config_types(PIPELINE).items():
            read_section(name, config, tmp_path / file.name)


def test_a_wrong_preset_would_be_noticed(tmp_path):
    (tmp_path / "wrong.yaml").write_text(json.dumps(laid({"dpo": {"beta": "high"}})))
    with pytest.raises(SystemExit, match=r"dpo\.beta: .*number.* 'high'"):
        read_section("dpo", contract.config_types(PIPELINE)["dpo"], tmp_path / "wrong.yaml")


def definitions(pipeline):
    return {name: contract.definition(stage) for name, stage in pipeline["stages"].items()}


def drift(pipeline):
    """Stages whose code deps in dvc.yaml are not the modules they import."""
    wanted = contract.code_deps(contract.stage_modules(pipeline))
    given = {name: [dep for dep in stage["deps"] if dep.endswith(".py")] for name, stage in definitions(pipeline).items()}
    return [name for name in wanted if sorted(wanted[name]) != sorted(given[name])]


def test_code_deps_are_the_imports():
    assert drift(PIPELINE) == [], "`make contract` rewrites dvc.yaml"


@pytest.mark.parametrize("name", PIPELINE["stages"])
def test_a_missing_or_needless_code_dep_is_noticed(name):
    lacking, needless = deepcopy(PIPELINE), deepcopy(PIPELINE)
    deps = definitions(lacking)[name]["deps"]
    deps.remove(next(dep for dep in reversed(deps) if dep.endswith(".py")))
    definitions(needless)[name]["deps"].append("tasks/check.py")
    assert drift(lacking) == drift(needless) == [name]


def test_a_new_import_is_noticed(tmp_path):
    """In a copy, an algorithm comes to import another one: its stage's deps grow, also through a third."""
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks")
    module = tmp_path / "tasks/algorithms/pairs.py"
    module.write_text(module.read_text() + "\n\ndef late():\n    from tasks.algorithms import annotator\n")
    code = "import json; from tasks import contract; print(json.dumps(contract.code_deps(json.loads(input()))))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps({"dpo": "tasks.language.dpo", "sft": "tasks.language.sft"}),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    deps, before = json.loads(done.stdout), contract.code_deps(contract.stage_modules(PIPELINE))
    assert sorted(deps["dpo"]) == sorted([*before["dpo"], "tasks/algorithms/annotator.py"])
    assert deps["sft"] == before["sft"]


def test_the_schema_is_the_configs():
    assert json.loads((ROOT / "params.schema.json").read_text()) == contract.schema(PIPELINE), "`make contract`"


def test_rewriting_changes_nothing(tmp_path, monkeypatch):
    """What `make contract` writes is what stands there, comments and layout included."""
    for name in ("DVC_YAML", "SCHEMA"):
        shutil.copy(getattr(contract, name), tmp_path)
        monkeypatch.setattr(contract, name, tmp_path / getattr(contract, name).name)
    contract.rewrite()
    for name in ("dvc.yaml", "params.schema.json"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()


def test_tracking_influences_no_out(made, empty_mlflow, tmp_path, monkeypatch):
    """The one module that is no code dep: a stage writes the same bytes with a recorder, and without."""
    assert {"tasks.tracking"} == contract.WITHOUT_INFLUENCE
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_mlflow, tmp_path / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    config, metrics = tiny(sft.SftConfig, "sft"), {}
    for name in ("without", "with"):
        arguments = (made / "pretrained", made / "problems", tmp_path / name / "model", tmp_path / name / "curve.csv")
        if name == "without":
            metrics[name] = sft.run(config, *arguments)
        else:
            with tracking.run("language", "sft", config.model_dump(), tmp_path / "metrics.json"):
                metrics[name] = sft.run(config, *arguments)
                (tmp_path / "metrics.json").write_text(json.dumps(metrics[name]))
    written = {
        name: {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.*")}
        for name in metrics
    }
    assert {"model/model.safetensors", "curve.csv"} <= written["with"].keys()
    assert written["with"] == written["without"]
    assert metrics["with"] == metrics["without"]
    assert recorded_losses(tmp_path) == 4, "the recorder did record"


def recorded_losses(home):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("language").experiment_id])
    return len(client.get_metric_history(run.info.run_id, "loss"))


def test_files_and_functions_stay_small():
    lengths = {file: len(file.read_text().splitlines()) for file in SOURCES}
    assert not {file for file, length in lengths.items() if length > 350}
    assert statistics.median(lengths.values()) <= 150
    assert not [file for file in SOURCES if file.name == "utils.py"]
    functions = {
        f"{file.relative_to(ROOT)}:{node.lineno}": node.end_lineno - node.lineno + 1
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {place for place, length in functions.items() if length > 80}
    assert statistics.quantiles(functions.values(), n=10)[-1] <= 40
    packages = [*(ROOT / "flows").rglob("__init__.py"), *(ROOT / "tasks").rglob("__init__.py")]
    assert packages
    assert not [file for file in packages if file.read_text()]


IMPORTS = """
import importlib, os, pkgutil, sys
import torch
from pathlib import Path
torch.set_num_threads(3)
before = dict(os.environ)
import tasks
for module in pkgutil.walk_packages(tasks.__path__, "tasks."):
    importlib.import_module(module.name)
assert "tasks.language.report" in sys.modules
assert torch.get_num_threads() == 3
assert not torch.are_deterministic_algorithms_enabled()
changed = {key for key in os.environ.keys() | before.keys() if os.environ.get(key) != before.get(key)}
assert not {key for key in changed if key.startswith(("OMP", "MKL", "MLFLOW", "POSTTRAIN", "CUBLAS"))}, changed
assert not list(Path.cwd().iterdir()), list(Path.cwd().iterdir())
assert "mlflow" not in sys.modules
"""


def test_importing_makes_and_sets_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "and it says nothing"


def test_the_lock_names_exactly_what_is_installed():
    lines = (ROOT / "requirements.lock").read_text().split()
    locked = dict(line.split("==") for line in lines)
    assert len(locked) == len(lines)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*", line) for line in lines), "no address, no range"
    # A local version (2.13.0+cpu) says which build of the same version pip chose for this machine.
    installed = {name: importlib.metadata.version(name).split("+")[0] for name in locked}
    assert installed == locked


def test_every_dependency_is_locked():
    """What pyproject.toml asks for, and what that asks for in turn, here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    locked = {canonicalize_name(line.split("==")[0]) for line in (ROOT / "requirements.lock").read_text().split()}
    wanted = [(Requirement(line), "dev") for line in importlib.metadata.requires("posttrain") or ()]
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not in requirements.lock"
        for further in {"", *requirement.extras}:
            if (name, further) not in seen:
                seen.add((name, further))
                wanted += [(Requirement(line), further) for line in importlib.metadata.requires(name) or ()]
    assert len(seen) > 100


def test_imports_point_down():
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* kept, 0 broken", done.stdout)
