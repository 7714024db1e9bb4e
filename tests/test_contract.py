"""The contract of the repository: dvc.yaml, params.yaml, presets, signatures and imports agree."""

import ast
import functools
import importlib
import inspect
import json
import re
import shlex
import shutil
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import get_type_hints

import networkx as nx
import pytest
from dvc.repo import Repo
from pydantic import ValidationError
from ruamel.yaml import YAML

from flows.engine.dvc_closure import StageGraph
from flows.params import editing
from flows.running import FLOWS
from tasks import contract
from tasks.code.registries import collect_choices
from tasks.code.stages import StageCode, get_stage_code_path, read_working_files
from tasks.common.config_faults import explain_validation_error
from tasks.common.errors import ConfigError
from tasks.offline.configs.learners import MethodConfig
from tasks.stage import Names, read_section, substitute_path_names
from tests import extensions, repository
from tests.conftest import BRANCHED, PARAMS, SECTIONS, one_branch

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent
PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """Every stage as DVC resolves it, with branches and interpolation; each stage that may have branches has at least
    one.
    """
    root = copied(tmp_path_factory.mktemp("resolved"))
    values = repository.in_file(PARAMS)
    unused = [
        name for name, (section, key) in contract.collect_branch_keys(PIPELINE).items() if not values[section][key]
    ]
    editing.edit_params(root, SECTIONS, [editing.parse_setting(one_branch(name)) for name in unused])
    with dvc_repo(root) as repo:
        return {stage.name: stage for stage in repo.index.stages if stage.name != contract.CODE}


def copied(root):
    """A folder with this pipeline and its parameters."""
    repository.write_params(root)
    shutil.copy(ROOT / "params.schema.json", root)
    shutil.copy(ROOT / "dvc.yaml", root)
    return root


@contextmanager
def dvc_repo(root):
    """The folder as a repository of DVC."""
    Repo.init(str(root), no_scm=True).close()
    with Repo(str(root)) as repo:
        yield repo


def flags(stage):
    """The stage's `python -m module --flag value...` as module and {flag: values}; values of params.yaml are filled
    in.
    """
    name, _, branch = stage.name.partition("@")
    names = Names(repository.in_file(BRANCHED), str(PIPELINE["stages"][name].get("foreach", "")), branch)
    python, dash_m, module, *rest = shlex.split(stage.cmd)
    assert (python, dash_m) == ("python", "-m")
    given: dict[str, list[str]] = {}
    for word in rest:
        if word.startswith("--"):
            flag = word.removeprefix("--").replace("-", "_")
            assert flag not in given
            given[flag] = []
        else:
            given[flag].append(str(substitute_path_names(word, names)))
    [threads] = given.pop("threads")
    assert int(threads) == PIPELINE["stages"][name].get("do", PIPELINE["stages"][name])["meta"]["resources"]["cpu"], (
        name
    )
    return module, given


def paths(outs_or_deps):
    return {entry.def_path for entry in outs_or_deps} - {"params.yaml"}


@functools.cache
def covered(folder):
    """The stages that have a test file of their own, or that a shared test file imports."""
    files = repository.files(f"tests/tasks/{folder}/test_*.py", f"tasks/{folder}/tests/test_*.py")
    nodes = [
        node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
    ]
    imported = {
        alias.name for node in nodes if node.module == f"tasks.{folder.replace('/', '.')}" for alias in node.names
    }
    return imported | {file.stem.removeprefix("test_") for file in files}


def test_file_stage_section_and_folder_have_one_name(stages):
    files = {
        file.stem: folder
        for folder in ("language", "offline", "agents", *(f"extensions/{name}" for name in extensions.NAMES))
        for file in repository.files(f"tasks/{folder}/*.py")
        if file.stem != "__init__" and (folder.count("/") == 0 or file.stem in extensions.STAGES)
    }
    names = {name.split("@")[0] for name in stages}
    assert files.keys() == names == set(PIPELINE["stages"]) - {contract.CODE} == set(PARAMS)
    assert [name for name, folder in files.items() if name not in covered(folder)] == []
    for name, stage in stages.items():
        stem, _, item = name.partition("@")
        module, given = flags(stage)
        assert module == f"tasks.{files[stem].replace('/', '.')}.{stem}"
        folder = [item] if stem == "sft_control" else [stem, item]  # a control is a policy like others, at data/POLICY
        assert given["out"] == ["/".join(filter(None, ["data", *folder]))]
        assert given["metrics"] == [f"data/metrics/{name}.json"]


def test_a_stage_depends_on_its_whole_section_and_a_branch_on_its_own_entry_of_it(stages):
    wanted = contract.compute_stage_params(PIPELINE)
    for name, stage in stages.items():
        stem, _, item = name.partition("@")
        [given] = [dep.params for dep in stage.deps if dep.def_path == "params.yaml"]
        assert given == [key.replace("${key}", item) for key in wanted[stem]], "`make contract`"
        assert {key.split(".")[0] for key in given} <= {stem, "branches"}


def test_flags_are_the_signature(stages):
    for name, stage in stages.items():
        module, given = flags(stage)
        run = importlib.import_module(module).run
        hints = get_type_hints(run)
        expected = {*inspect.signature(run).parameters, "metrics"} - {"config"}
        assert given.keys() == expected, name
        for flag, values in given.items():
            assert len(values) == 1 or hints[flag] == list[Path], f"{name} --{flag}"
            assert flag == "metrics" or hints[flag] in (Path, list[Path])


def test_every_path_of_a_command_is_a_dep_or_an_out_and_the_other_way_round(stages):
    for name, stage in stages.items():
        _, given = flags(stage)
        named = {value for values in given.values() for value in values}
        data = {path for path in paths(stage.deps) if not path.startswith("data/code/")}
        assert named == data | paths(stage.outs), name
        written = {given[flag][0] for flag in ("out", "curves", "metrics") if flag in given and name != "report"}
        if name != "report":
            assert paths(stage.outs) == written, name
        assert set(given["metrics"]) <= paths(stage.outs), name


def test_a_policy_waits_for_the_reward_model_only_where_its_reward_counts_it(stages):
    for name in ("rejection_sft", "reinforce", "ppo", "grpo"):
        counts = PARAMS[name]["reward"].get("reward_model", 0) > 0
        assert ("data/reward_model" in paths(stages[name].deps)) == counts, name


def test_a_reward_in_python_is_a_dep_of_its_policies_alone_and_an_evaluation_can_do_without_a_reward_model(
    stages, tmp_path
):
    """If params.yaml names a folder without a model, an evaluation does not wait for a reward model."""
    for name in ("rejection_sft", "reinforce", "ppo", "grpo"):
        assert "rewards/none" in paths(stages[name].deps)
    settings = [
        'grpo.reward={"rewards/mine.py:f": 1.0}',
        "grpo.reward_files=rewards/mine.py",
        "evaluate.reward_model_path=data/raw/reward_model",
    ]
    editing.edit_params(copied(tmp_path), SECTIONS, [*map(editing.parse_setting, settings)])
    with dvc_repo(tmp_path) as repo:
        assert [stage.name for stage in repo.index.stages if "rewards/mine.py" in paths(stage.deps)] == ["grpo"]
        [stage] = [stage for stage in repo.index.stages if stage.name == "evaluate@grpo"]
        upstream = {above.name for above in nx.descendants(repo.index.graph, stage)}
    assert "data/reward_model" not in paths(stage.deps)
    assert "grpo" in upstream
    assert not upstream & {"reward_model", "preferences", "ppo"}


def test_the_graph_is_read_from_top_to_bottom():
    """No stage is a page long, and no line is wider than a window."""
    text = (ROOT / "dvc.yaml").read_text()
    assert len(text.splitlines()) <= 700
    assert [line for line in [*text.splitlines(), *repository.params_text().splitlines()] if len(line) > 120] == []
    for block in re.split(r"\n(?=  \w+:\n)", text.split("\nstages:\n")[1].split("\nplots:")[0]):
        assert len(block.strip().splitlines()) <= 21, block


def test_every_stage_says_what_it_takes():
    for name, stage in definitions(PIPELINE).items():
        assert {"cpu", "gpu"} <= stage["meta"]["resources"].keys(), name
        assert stage["desc"]


def test_plots_are_outs(stages):
    outs = set().union(*(paths(stage.outs) for stage in stages.values()))
    for entry in PIPELINE["plots"]:
        [path] = entry
        assert any(path == out or path.startswith(out + "/") for out in outs), path


def test_params_are_the_configs(tmp_path):
    assert contract.import_config_types(PIPELINE) == SECTIONS, "a stage reads what the command line checks"
    for name, config in contract.import_config_types(PIPELINE).items():
        assert PARAMS[name].keys() == config.model_fields.keys(), name
        assert all(field.is_required() for field in config.model_fields.values()), f"{name}: no defaults in code"
        config.parse_section(PARAMS[name])
        for key in PARAMS[name]:
            with pytest.raises(ValidationError) as error:
                config.parse_section(without(name, key))
            where, told = explain_validation_error(error.value, name, {name: config})
            assert (where, told[:18]) == ((name, key), "missing; expected ")
    file = tmp_path / "params.yaml"
    file.write_text(json.dumps({"dpo": without("dpo", "beta")}))
    with pytest.raises(ConfigError, match=r"dpo.beta: missing; expected "):
        read_section("dpo", contract.import_config_types(PIPELINE)["dpo"], file)


def without(name, key):
    """A section of params.yaml that lacks a key."""
    return {other: value for other, value in PARAMS[name].items() if other != key}


def test_a_wrong_preset_would_be_noticed(tmp_path):
    (tmp_path / "wrong.yaml").write_text(json.dumps({"dpo": {**PARAMS["dpo"], "beta": "high"}}))
    with pytest.raises(ConfigError, match=r"dpo\.beta: .*number.* 'high'"):
        read_section("dpo", contract.import_config_types(PIPELINE)["dpo"], tmp_path / "wrong.yaml")


def test_every_stage_with_data_sets_of_its_own_is_a_method():
    """By its Config, without which the report does not know it."""
    types = contract.import_config_types(PIPELINE)
    learners = {name for name, kind in types.items() if kind.branched_by == "datasets"}
    assert {name for name, kind in types.items() if issubclass(kind, MethodConfig)} == learners - {"transitions"}


def test_plain_dvc_repro_is_both_flows_and_all_data_sets(tmp_path):
    """What `dvc repro` runs without a target is what the flows run, what presets add to it, and no stage that
    cannot.
    """
    with dvc_repo(copied(tmp_path)) as repo:
        graph = StageGraph(repo)
        targets = {
            *(end for _, ends in FLOWS.values() for end in ends),
            *extensions.STAGES,
            "solutions",
            "rejection_sft",
            "reinforce",
            "transitions",
            "code",
        }
        assert {*graph.load_upstream_closure({one for one in graph.names if one.split("@")[0] in targets}).stages} == {
            *graph.names
        }


def definitions(pipeline):
    return {name: contract.get_stage_definition(stage) for name, stage in pipeline["stages"].items()}


def test_the_code_of_a_stage_is_one_file_which_the_stage_code_writes(stages):
    for name, stage in stages.items():
        assert [path for path in paths(stage.deps) if path.startswith("data/code/")] == [
            get_stage_code_path(name).as_posix()
        ], name
        assert not [path for path in paths(stage.deps) if path.startswith("tasks/")], name
    assert StageCode(read_working_files(ROOT), {}).modules() == contract.collect_stage_modules(PIPELINE)
    code = PIPELINE["stages"][contract.CODE]
    assert (code["cmd"], code["deps"], code["outs"]) == ("python -m tasks.code", ["tasks"], ["data/code"])
    assert code["params"] == [*collect_choices(PARAMS)], "`make contract`"
    assert {"grpo.reward", "mixture.datasets"} <= {*code["params"]}


def test_a_new_stage_gets_its_code_as_a_dep():
    lacking = deepcopy(PIPELINE)
    definitions(lacking)["dpo"]["deps"].remove("data/code/dpo.json")
    assert sorted(definitions(contract.add_code_deps(lacking))["dpo"]["deps"]) == sorted(
        definitions(PIPELINE)["dpo"]["deps"]
    )


def test_every_parameter_is_described():
    made = json.loads((ROOT / "params.schema.json").read_text())
    for part in (*made["properties"].values(), *made["$defs"].values()):
        assert all(len(key.get("description", "")) > 3 for key in part.get("properties", {"seed": part}).values())


def test_rewriting_changes_nothing(tmp_path, monkeypatch):
    """`make contract` writes the files as they are, with comments and layout."""
    monkeypatch.setattr(contract, "PARAMS", repository.write_params(tmp_path))
    for name in ("DVC_YAML", "SCHEMA"):
        shutil.copy(getattr(contract, name), tmp_path)
        monkeypatch.setattr(contract, name, tmp_path / getattr(contract, name).name)
    for name in ("PARAMETER_PAGES", "METRIC_PAGES"):
        monkeypatch.setattr(contract, name, tmp_path / getattr(contract, name))
    contract.rewrite_contract_files()
    for name in ("dvc.yaml", "params.schema.json"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), "`make contract`"
    for folder in ("docs/parameters", "docs/metrics"):
        assert texts(tmp_path / folder) == texts(ROOT / folder), "`make contract`"


def texts(folder):
    """The pages of a folder by their names."""
    return {file.name: file.read_text() for file in folder.glob("*.md")}
