"""A stage run in this process on tiny params, so that one key can be changed and the outs compared.

Paths and branches are those of dvc.yaml, keys and their values those of params.schema.json, which is made from the
Configs: a new key or a new stage is covered without further work.
"""

import contextlib
import copy
import hashlib
import importlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError
from ruamel.yaml import YAML

from flows.params import checking
from tests import extensions, repository
from tests.tasks import solved
from tests.tasks.language import judged

ROOT = Path(__file__).parent.parent
PIPELINE = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
SCHEMA = json.loads((ROOT / "params.schema.json").read_text())
Params = dict[str, dict[str, Any]]


def definition(stage: str) -> dict[str, Any]:
    """The stage's entry in dvc.yaml, or that of its branches."""
    return PIPELINE[stage].get("do", PIPELINE[stage])


def module(stage: str) -> str:
    """The stage's module, tasks.<flow>.<stage> or tasks.extensions.<name>.<stage>."""
    return definition(stage)["cmd"].split()[2]


def flow(stage: str) -> str:
    """The flow that the stage is one of; of an extension's stage its module says so."""
    folder = module(stage).split(".")[1]
    if folder != "extensions":
        return folder
    source = (ROOT / (module(stage).replace(".", "/") + ".py")).read_text()
    return re.search(r'\bmain\(run, flow="(\w+)"\)', source)[1]


def filled(text: str, params: Params, key: str = "", item: Any = None) -> str:
    """A text of dvc.yaml with values in place of ${..}, or of {..} in a command."""

    def value(match: re.Match[str]) -> str:
        found: Any = {"key": key, "item": item, **params}
        for name in match[1].split("."):
            found = found[name]
        return str(found)

    return re.sub(r"\$?\{([\w.-]+)\}", value, text)


def branches(stage: str, params: Params) -> list[tuple[str, Any]]:
    """Name and item of each of the stage's branches; one without a name where it has none."""
    if "matrix" in PIPELINE[stage]:
        [(axis, values)] = PIPELINE[stage]["matrix"].items()
        return [(value, {axis: value}) for value in values]
    if "foreach" not in PIPELINE[stage]:
        return [("", None)]
    section, name = PIPELINE[stage]["foreach"].removeprefix("${").removesuffix("}").split(".")
    found = repository.in_file(params)[section][name]
    return [*found.items()] if isinstance(found, dict) else [(one, one) for one in found]


def run(stage: str, params: Params, root: Path, only: str | None = None) -> dict[str, str]:
    """Run the stage's branches, or `only` this one, from the working directory into `root`; the hash of each one's
    outs.
    """
    return {
        key: _run(stage, filled(definition(stage)["cmd"], params, key, item), params, root)
        for key, item in branches(stage, params)
        if only in (None, key)
    }


def _run(stage: str, command: str, params: Params, root: Path) -> str:
    words = shlex.split(command)[3:]
    given: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            values = given.setdefault(word.removeprefix("--").replace("-", "_"), [])
        else:
            values.append(word)
    metrics, _ = root / given.pop("metrics")[0], given.pop("threads")
    function = importlib.import_module(module(stage)).run
    hints = get_type_hints(function)
    written = {
        name: root / given[name][0]
        for name in ("out", "curves")
        if name in given and (name == "out" or stage != "report")  # the report reads all curves
    }
    read = {
        name: [Path(value) for value in values] if hints[name] == list[Path] else Path(values[0])
        for name, values in given.items()
    }
    found = function(hints["config"].model_validate_json(json.dumps(params[stage])), **{**read, **written})
    metrics.parent.mkdir(parents=True, exist_ok=True)
    metrics.write_text(json.dumps(found))
    outs = [hashlib.sha256(metrics.read_bytes()).hexdigest(), *(_digest(path, root) for path in written.values())]
    return hashlib.sha256(json.dumps(outs).encode()).hexdigest()


def _digest(path: Path, root: Path) -> dict[str, str]:
    """The hash of each file; `root` is left out of pages that name their own folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes().replace(str(root).encode(), b"")).hexdigest()
        for file in files
    }


def keys(stage: str, params: Params) -> Iterator[str]:
    """Every dotted key of the stage's section; of a list, or of entries that the user names, only the first entry's
    keys.
    """
    return (".".join([stage, *map(str, path)]) for path, _, _ in _leaves(_section(stage), params[stage], ()))


def candidates(key: str, params: Params) -> Iterator[Any]:
    """Other values that the key's type allows."""
    stage, *path = key.split(".")
    [(schema, value)] = [
        (schema, value)
        for names, schema, value in _leaves(_section(stage), params[stage], ())
        if [*map(str, names)] == path
    ]
    for kind in schema.get("anyOf", [schema]):
        yield from (other for other in kind.get("enum", []) if other != value)
        if kind.get("type") == "boolean":
            yield not value
        if kind.get("type") == "integer":
            yield from (1, 5) if value is None else (value + 1, value - 1, 2 * value)
        if kind.get("type") == "number":
            yield from (value / 2, value * 2) if value else (1.0, 0.5, 0.25)
        if kind.get("type") == "array":
            yield from (value[:-1], value + value[-1:])


def changed(params: Params, changes: Mapping[str, Any]) -> Params:
    """The params with other values by dotted key; a list's entries are numbered."""
    result = copy.deepcopy(params)
    for key, value in changes.items():
        *path, last = key.split(".")
        place: Any = result
        for name in path:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[int(last) if isinstance(place, list) else last] = value
    return result


def valid(stage: str, params: Params) -> bool:
    """Whether the stage's Config accepts them."""
    config = get_type_hints(importlib.import_module(module(stage)).run)["config"]
    with contextlib.suppress(ValidationError):
        config.model_validate_json(json.dumps(params[stage]))
        return True
    return False


def in_dvc(key: str) -> bool:
    """Whether dvc.yaml itself reads the key: in a command, or for the names of a stage's branches."""
    stage, *path = key.split(".")
    texts = [definition(stage)["cmd"], *(str(other.get("foreach", "")) for other in PIPELINE.values())]
    own = [f"{{{key}}}"]
    if PIPELINE[stage].get("foreach", "").startswith(f"${{{stage}.{path[0]}}}"):
        own.append(f"{{item.{path[-1]}}}")
    return any(name in text for name in own for text in texts)


def _section(stage: str) -> dict[str, Any]:
    """The schema of what the stage's Config has: its section, and its entry in the section `branches`."""
    own = SCHEMA["properties"].get(stage, {"properties": {}})
    if not (field := checking.load_config_classes(ROOT)[stage].branched_by):
        return own
    entries = SCHEMA["properties"]["branches"]["properties"][stage]
    return {**own, "properties": {field: entries, **own["properties"]}}


def _leaves(schema: dict[str, Any], value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], dict, Any]]:
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    entry = schema.get("additionalProperties") or schema.get("items")
    if "properties" in schema:
        for name, part in schema["properties"].items():
            yield from _leaves(part, value[name], (*path, name))
    elif isinstance(value, dict):
        first = next(iter(value))
        yield from _leaves(entry, value[first], (*path, first))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from _leaves(entry, value[0], (*path, 0))
    else:
        yield path, schema, value


class Home:
    """A folder like this repository, in which a stage and its upstream run once, when first asked for."""

    def __init__(self, root: Path, params: Params, one_branch: Mapping[str, str]) -> None:
        self.root, self.params, self.one_branch = root, params, one_branch
        self.found: dict[tuple[str, str], dict[str, str]] = {}  # hashes of outs by stage and what was changed
        rows = [json.dumps({"question": f"Ada has {n} pens. How many?", "answer": f"{n}\n#### {n}"}) for n in range(40)]
        given = [json.dumps({"prompt": f"Who has {n}?", "chosen": "Ada", "rejected": "nobody"}) for n in range(30)]
        for file, part in (
            *((f"{stage}/own", [*map(json.dumps, said)]) for stage, said in extensions.entries("FILES").items()),
            ("text/own", [json.dumps({"text": f"Text {n}."}) for n in range(200)]),
            ("problems/train", rows[:24]),
            ("problems/test", rows[24:]),
            ("demonstrations/own", rows),
            ("test_problems/own", rows[:5]),
            ("pairs/own", given),
            *extensions.entries("RAW").items(),
        ):
            path = root / f"data/raw/{file}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(part) + "\n")
        judged.two_people(root / "data/raw/judgements/people.jsonl")

    def outs(self, stage: str) -> dict[str, str]:
        """The hashes of the stage's outs."""
        if stage == "decision_transformer":  # which can learn from text and from a language model
            self.outs("pretrained")
        for earlier in self.params:
            if flow(earlier) == flow(stage) and (earlier, "") not in self.found:
                self.found[earlier, ""] = run(earlier, self.params, self.root)
                if earlier == "pretrained":
                    problems, model = self.root / "data/problems/train.parquet", self.root / "data/pretrained"
                    solved.write(problems, model, self.root / "data/solved")
                    solved.outcome_model(model, self.root / "data/outcome")
                    shutil.copytree(self.root / "data/pretrained", self.root / "data/raw/models")
            if earlier == stage:
                break
        return self.found[stage, ""]

    def changed(self, stage: str, changes: Mapping[str, Any], out: Path) -> dict[str, str]:
        """The hashes with these changes to its params; the outs go to `out`."""
        self.outs(stage)
        return run(stage, changed(self.params, changes), out, self.one_branch.get(stage))

    def beside(self, stage: str, changes: Mapping[str, Any], out: Path) -> dict[str, str]:
        """The hashes with these settings, made once for all keys that need them."""
        name = stage, json.dumps(changes)
        if name not in self.found:
            self.found[name] = self.changed(stage, changes, out) if changes else self.outs(stage)
        return self.found[name]
