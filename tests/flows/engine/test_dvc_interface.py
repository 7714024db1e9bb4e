"""DVC's internal interface that the engine uses: if a new version changes it, these tests say what changed."""

import importlib
import inspect
import json
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dvc.dependency import param
from dvc.fs import localfs
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.dvc_repository import cache_parsed_params
from tests.flows.engine.toy import Toy

USED = [
    ("dvc.repo", "Repo", ["root_dir", "_wait_for_lock"]),
    ("dvc.ignore", "DvcIgnoreFilter", ["fs", "root_dir"]),
    ("dvc.ignore", "DvcIgnoreFilter.walk", ["fs", "path"]),
    ("dvc.ignore", "DvcIgnoreFilter.is_ignored_dir", ["path"]),
    ("dvc.lock", "make_lock", ["lockfile", "tmp_dir", "hardlink_lock"]),
    ("dvc.lock", "Lock._do_lock", []),
    ("dvc.lock", "HardlinkLock.lock", ["timeout"]),
    ("dvc.rwlock", "rwlock", ["tmp_dir", "fs", "cmd", "read", "write", "hardlink"]),
    ("dvc.rwlock", "_edit_rwlock", ["lock_dir", "fs", "hardlink"]),
    ("dvc.stage.cache", "_get_cache_hash", ["cache", "key"]),
    ("dvc.stage.cache", "StageCache.restore", ["stage"]),
    ("dvc.stage.cache", "StageCache.save", ["stage"]),
    ("dvc.stage.cache", "StageCache", ["repo"]),
    ("dvc.stage.run", "prepare_kwargs", ["stage"]),
    ("dvc.stage.run", "_make_cmd", ["executable", "cmd"]),
    ("dvc.stage.run", "_enforce_cmd_list", ["cmd"]),
    ("dvc.stage.run", "get_executable", []),
    ("dvc.stage.serialize", "to_lockfile", ["stage"]),
    ("dvc.stage.serialize", "to_single_stage_lockfile", ["stage"]),
    ("dvc.utils.serialize", "dumps_yaml", ["d"]),
    ("dvc.utils.serialize", "load_yaml", ["path"]),
    ("dvc.stage", "PipelineStage.save_deps", []),
    ("dvc.stage", "PipelineStage.save_outs", []),
    ("dvc.stage", "PipelineStage.ignore_outs", []),
    ("dvc.stage", "PipelineStage.commit", []),
    ("dvc.output", "Output.save", []),
    ("dvc.output", "Output.commit", []),
    ("dvc.output", "Output.status", []),
    ("dvc.output", "Output.unprotect", []),
    ("dvc.dependency", "ParamsDependency.read_params", []),
    ("dvc.dependency.param", "load_path", ["fs_path"]),
    ("dvc.dependency.param", "read_param_file", ["fs", "path", "key_paths", "flatten"]),
    ("dvc.dvcfile", "load_file", ["repo", "path"]),
    ("dvc.dvcfile", "Lockfile.SCHEMA", []),
    ("dvc.dvcfile", "ProjectFile.LOADER", ["dvcfile", "data", "lockfile_data"]),
    ("dvc.repo.index", "Index", ["repo", "stages"]),
    ("dvc.utils.serialize", "parse_yaml", ["text", "path"]),
]


@pytest.mark.parametrize(("module", "name", "parameters"), USED)
def test_what_the_engine_calls_is_where_it_was(module: str, name: str, parameters: list[str]) -> None:
    where = f"{module}.{name} of DVC {metadata.version('dvc')}: the engine calls it, see flows/engine"
    found = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"{where}; it is gone"
        found = getattr(found, part)
    signature = inspect.signature(found)  # type: ignore[arg-type]
    missing = [parameter for parameter in parameters if parameter not in signature.parameters]
    assert not missing, f"{where}; it no longer takes {missing}"


@pytest.mark.usefixtures("plain_commands")
def test_params_are_parsed_once_for_a_plan_and_anew_for_the_next(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.stage("a")
    toy.stage("b", "a")
    toy.run()
    parsed = []
    load = param.load_path

    def counted(path: str, *rest: Any, **options: Any) -> Any:
        parsed.append(path)
        return load(path, *rest, **options)

    monkeypatch.setattr(param, "load_path", counted)
    assert set(toy.reasons().values()) == {None}
    assert parsed == [str(toy.root / "params.yaml")]
    toy.set(b=2)
    assert toy.reasons("b") == {"a": None, "b": "param b changed 1 -> 2"}
    assert param.load_path is counted
    with pytest.raises(RuntimeError), cache_parsed_params():
        raise RuntimeError
    assert param.load_path is counted


PARAMS = {"a": {"x": None, "y": [1, {"z": 2}], "u-v": {"10%": 0.5, "e": {}}, "7": 7}, "b": False, "c": None}
KEYS = ["a", "b", "c", "d", "a.x", "a.y", "a.y.1.z", "a.u-v.10%", "a.u-v.e", "a.u-v.f", "a.7", "b.c", "a.u-?"]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(KEYS), max_size=5), st.booleans())
def test_params_are_read_as_dvc_reads_them(keys: list[str], flatten: bool) -> None:
    with TemporaryDirectory() as home:
        path = Path(home, "params.json")
        path.write_text(json.dumps(PARAMS))
        expected = param.read_param_file(localfs, str(path), keys, flatten)
        with cache_parsed_params():
            assert param.read_param_file(localfs, str(path), keys, flatten) == expected
