"""What tests read of the repository they stand in: its own files, whatever its user has put beside them or set.

A clone in use has results, the user's data, rewards and notes, and often a preset over params.yaml. Tests read the
files that git tracks, and the committed values of params.yaml; in a folder without git (a tarball) they read what is
there.
"""

import functools
import subprocess
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flows.params import checking
from tasks.common.config import BRANCHES
from tasks.common.config_faults import SectionError, merge_branch_entries, parse_stage_config
from tests.reach import files_of

ROOT = Path(__file__).parent.parent
REAL_FILES = {  # that some tests read where they are, by folder: real data and a small real model
    "data": "GSM8K, ARC, UltraFeedback and other public data sets, as their publishers name the files",
    "data/gsm8k": "GSM8K's train.jsonl and test.jsonl",
    "data/ultrafeedback": "UltraFeedback, binarized, as parquet",
    "data/wikitext2": "WikiText-2",
    "models/stories260K": "the model stories260K in Hugging Face layout",
}


@functools.cache
def _tracked() -> frozenset[str] | None:
    listed = _git("ls-files", "-z")
    return None if listed is None else frozenset(listed.split("\0"))


def _git(*arguments: str) -> str | None:
    """What git prints; None where the folder is no repository of its own."""
    try:
        top = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if top.returncode or Path(top.stdout.strip()).resolve() != ROOT.resolve():
            return None
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout


def files(*patterns: str) -> list[Path]:
    """The files below ROOT that match one of the patterns of Path.glob, in order; those that git does not track are
    left out.
    """
    matches = {
        file
        for pattern in patterns
        for file in ROOT.glob(pattern)
        if file.is_file() and "__pycache__" not in file.parts
    }
    tracked = _tracked()
    return sorted(file for file in matches if tracked is None or str(file.relative_to(ROOT)) in tracked)


def source_files() -> list[str]:
    """The files that a copy of the repository needs, as paths below ROOT: those that git tracks, and code that is not
    yet committed.

    Without git: all that is not made by runs.
    """
    tracked = _tracked()
    if tracked is None:
        return files_of(ROOT)
    new = (_git("ls-files", "-z", "--others", "--exclude-standard", "flows", "tasks", "tests") or "").split("\0")
    return sorted(name for name in {*tracked, *new} if name and (ROOT / name).is_file())


def presets() -> list[str]:
    """The names of the presets."""
    return [file.stem for file in preset_files()]


def preset_files() -> list[Path]:
    """The presets, those of extensions too."""
    return files("presets/*.yaml", "tasks/extensions/*/presets/*.yaml")


@functools.cache
def params_text() -> str:
    """params.yaml without what its user has set: the committed section, where the stage's Config (as it is now) accepts
    it.
    """
    text = (ROOT / "params.yaml").read_text()
    committed = _git("show", "HEAD:params.yaml")
    if committed is None or committed == text:
        return text
    yaml = YAML()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)  # as the file is written
    now = yaml.load(text)
    before = YAML().load(committed)
    types = checking.load_config_classes(ROOT)
    if now.keys() == before.keys() and all(_accepted(types, name, before) for name in now):
        return committed
    anchored = now["seed"]
    for name in now:
        if name in before and _accepted(types, name, before):
            now[name] = before[name]
        elif isinstance(now[name], dict) and now[name].get("seed") is anchored:
            now[name]["seed"] = before["seed"]  # of two anchors of one name the text could not be read
    output = StringIO()
    yaml.dump(now, output)
    return output.getvalue()


def _accepted(types: checking.Sections, name: str, values: Any) -> bool:
    try:
        if name in types:
            parse_stage_config(name, types, values)
    except SectionError:
        return False
    return True


def sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a params.yaml as the stages' Configs have them, each with its branches, in the order of the
    pipeline.
    """
    types, stages = checking.load_config_classes(ROOT), YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    return {name: merge_branch_entries(name, types[name], values) for name in stages if name in types}


def preset_file(name: str) -> Path:
    """The file of a preset."""
    return next(file for file in preset_files() if file.stem == name)


def preset(name: str) -> dict[str, Any]:
    """The sections of a preset as the stages' Configs have them, those keys alone that it sets."""
    values = YAML(typ="safe").load(preset_file(name))
    entries, types = values.pop(BRANCHES, {}), checking.load_config_classes(ROOT)
    for stage, entry in entries.items():
        values.setdefault(stage, {})[types[stage].branched_by] = entry
    return values


def in_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections as Configs have them, some of them or with some keys, as they stand in params.yaml."""
    types, found = checking.load_config_classes(ROOT), dict[str, Any]()
    branches = dict(values.get(BRANCHES, {}))
    for name, section in values.items():
        field = types[name].branched_by if name in types else ""
        if field and field in section:
            branches[name] = section[field]
        own = {key: value for key, value in section.items() if key != field}
        if own and name != BRANCHES:
            found[name] = own
    return found | ({BRANCHES: branches} if branches else {})


def write_params(folder: Path) -> Path:
    """Write that params.yaml into a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "params.yaml"
    file.write_text(params_text())
    return file


def needs(folder: str) -> str:
    """Why a test of real files is skipped: which files would run it, and where they would be."""
    return f"needs {REAL_FILES[folder]}, in ../shared/{folder} beside the clone"
