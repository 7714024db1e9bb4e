"""DVC without what takes longest on toy repositories: its memory of hashes, and its parsing of what was parsed before.

That DVC's memory of hashes fits what the flows do is tested in tests/flows/engine and by all tests with processes of their own.
"""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dvc.schema
import pytest
import voluptuous
from dvc.config import Config
from dvc.repo import Repo
from dvc.utils import serialize, strictyaml
from dvc.utils.serialize import _yaml
from dvc_data.hashfile import state

PARSE_YAML = _yaml.parse_yaml
LOAD_PATHS = Config._load_paths
IGNORE = Repo._ignore
PARSED: dict[str, bytes] = {}
COMPILED: dict[int, voluptuous.Schema] = {}


def parse_once(text: str, path: str, typ: str = "safe") -> Any:
    """What DVC reads from a text of YAML; the copies of a repository have the same texts."""
    if typ != "safe":  # with comments, to be changed
        return PARSE_YAML(text, path, typ)
    if text not in PARSED:
        PARSED[text] = pickle.dumps(_json(text) or PARSE_YAML(text, path, typ))
    return pickle.loads(PARSED[text])


def _json(text: str) -> Any:
    """The content of a text of JSON, as toys write it; None for other YAML."""
    try:
        return json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None


def without_memory(*_: object, **__: object) -> state.StateNoop:
    """Stands in for DVC's memory of hashes, whose databases take longer to open than these files to hash."""
    return state.StateNoop()


def load_paths(conf: dict[str, Any], filename: str) -> dict[str, Any]:
    """The same configuration with absolute paths; most of its files are empty, and need no schema compiled."""
    return LOAD_PATHS(conf, filename) if conf else conf


def ignore_once(repo: Repo) -> None:
    """Have git ignore DVC's own files, which it already does where they are listed."""
    if not Path(str(repo.dvc_dir), ".gitignore").exists():
        IGNORE(repo)


def compiled_once(schema: Any) -> voluptuous.Schema:
    """The schema of a stage in dvc.yaml, which DVC compiles again for each stage; it keeps its dictionary alive."""
    if id(schema) not in COMPILED:
        COMPILED[id(schema)] = voluptuous.Schema(schema)
    return COMPILED[id(schema)]


def quick_dvc(patch: pytest.MonkeyPatch) -> None:
    """Let DVC in this process remember no hashes, parse a text once, and read no paths of empty files."""
    patch.setattr(state, "State", without_memory)
    patch.setattr(Config, "_load_paths", staticmethod(load_paths))
    patch.setattr(Repo, "_ignore", ignore_once)
    patch.setattr(_yaml, "parse_yaml", parse_once)
    patch.setattr(strictyaml, "parse_yaml", parse_once)
    patch.setattr(serialize, "parse_yaml", parse_once)
    patch.setattr(dvc.schema, "vol", SimpleNamespace(Schema=compiled_once))
