"""What is derived from the code: code deps and params in dvc.yaml, params.schema.json, docs/parameters.md and docs/metrics.md.

`python -m tasks.contract` rewrites them; a test computes them and fails on a difference. If a stage's deps lacked an
import, a change to that module would not run the stage again.

A stage with `foreach: ${section.names}` has a branch for each key of that dictionary, or each item of that list. If that is
in the stage's own section, a branch depends on its own entry alone: a change to another entry does not run it again.
"""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin, get_type_hints

import grimp
from ruamel.yaml import YAML

from tasks import metrics, parameters
from tasks.common.config import Config, Schema, schema_of

# Modules that cannot change an out, so that a change to them, or to what they alone import, re-runs nothing.
# tests/test_without_influence.py shows it.
WITHOUT_INFLUENCE = {
    "tasks.algorithms.common.errors",  # exceptions; where one is raised, nothing is written
    "tasks.algorithms.language.causal_lm",  # Protocols, for the type checker alone
    "tasks.common.config_faults",  # messages about bad values
    "tasks.common.environment",  # versions and the machine, for the records
    "tasks.common.errors",  # exceptions too
    "tasks.common.mlflow_address",  # where MLflow's records are
    "tasks.common.mlflow_database",  # the same, opened
    "tasks.common.mlflow_shared",  # the same, elsewhere
    "tasks.common.source_code",  # what git has of the code, for the records
    "tasks.common.tokenizers",  # a Protocol, for the type checker alone
    "tasks.common.tracking",  # records and shows rows; never alters them
}
Pipeline = dict[str, Any]  # dvc.yaml, or what it says of one stage
DVC_YAML, SCHEMA, PARAMS = Path("dvc.yaml"), Path("params.schema.json"), Path("params.yaml")
PAGE, METRICS_PAGE = Path("docs/parameters.md"), Path("docs/metrics.md")


def definition(stage: Pipeline) -> Pipeline:
    """What dvc.yaml says of a stage, or of each branch of a stage with `foreach`."""
    found: Pipeline = stage.get("do", stage)
    return found


def branches(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Name of a stage with `foreach` -> section and key of the dictionary or list that names its branches."""
    texts = {name: stage["foreach"] for name, stage in pipeline["stages"].items() if "foreach" in stage}
    return {name: tuple(text.removeprefix("${").removesuffix("}").split(".")) for name, text in texts.items()}


def stage_modules(pipeline: Pipeline) -> dict[str, str]:
    """Stage name -> module, read off the command `python -m <module> ...`."""
    return {name: definition(stage)["cmd"].split()[2] for name, stage in pipeline["stages"].items()}


def code_deps(modules: dict[str, str]) -> dict[str, list[str]]:
    """Stage name -> the files of all project modules that it imports, directly or not, its own first."""
    graph = grimp.build_graph("tasks", include_external_packages=False, cache_dir=None)
    for idle in WITHOUT_INFLUENCE:
        graph.remove_module(idle)
    deps = {}
    for name, module in modules.items():
        closure = graph.find_upstream_modules(module)
        files = [Path(*imported.split(".")).with_suffix(".py").as_posix() for imported in closure]
        deps[name] = [f"{module.replace('.', '/')}.py", *sorted(file for file in files if Path(file).is_file())]
    return deps


def with_code_deps(pipeline: Pipeline) -> Pipeline:
    """The pipeline with every stage's `*.py` deps replaced by the computed ones; in place."""
    for name, files in code_deps(stage_modules(pipeline)).items():
        deps = definition(pipeline["stages"][name])["deps"]
        for index in reversed(range(len(deps))):
            if deps[index].endswith(".py"):
                del deps[index]
        deps.extend(files)
    return pipeline


def params(pipeline: Pipeline) -> dict[str, list[str]]:
    """Stage name -> its `params`: its whole section, but for a branch only its own entry of what names the branches."""
    types, wanted = config_types(pipeline), {name: [name] for name in pipeline["stages"]}
    for name, (section, key) in branches(pipeline).items():
        if section == name:
            fields = types[name].model_fields
            others = [f"{name}.{field}" for field in fields if field != key]
            entry = [f"{name}.{key}.${{key}}"] if get_origin(fields[key].annotation) is dict else []
            wanted[name] = [*entry, *others]
    return wanted


def with_params(pipeline: Pipeline) -> Pipeline:
    """The pipeline with every stage's `params` replaced by the computed ones where they differ; in place."""
    for name, keys in params(pipeline).items():
        stage = definition(pipeline["stages"][name])
        if stage["params"] != keys:
            stage["params"] = keys
    return pipeline


def config_types(pipeline: Pipeline) -> dict[str, type[Config]]:
    """Stage name -> its Config class."""
    return {
        name: get_type_hints(importlib.import_module(module).run)["config"]
        for name, module in stage_modules(pipeline).items()
    }


def schema(pipeline: Pipeline) -> Schema:
    """JSON schema of the whole params.yaml, for editors: one required section a stage, and the seed that sections may share."""
    types = config_types(pipeline)
    sections = {
        name: parameters.describe(schema_of(config_type, f"#/$defs/{name}.{{model}}"), parameters.parts(config_type))
        for name, config_type in types.items()
    }
    seed = {
        "type": "integer",
        "minimum": 0,
        "maximum": 2**32 - 1,
        "description": "The seed of every section that says `*seed`; `posttrain run --seeds 0,1,2` runs several.",
    }
    parts: Schema = {}  # of sections; a reference to one starts at the root, and two sections may have parts of one name
    for name, content in sections.items():
        parts |= {f"{name}.{model}": part for model, part in content.pop("$defs", {}).items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "required": list(sections),
        "properties": {"seed": seed, **sections},
        "$defs": parts,
    }


def explained(pipeline: dict[str, Any]) -> dict[str, tuple[str, ModuleType]]:
    """Stage name -> what dvc.yaml says that it does, and its module, which explains its metrics."""
    return {
        name: (definition(pipeline["stages"][name])["desc"], importlib.import_module(module))
        for name, module in stage_modules(pipeline).items()
    }


def yaml() -> YAML:
    """A round-trip reader and writer that keeps comments, quotes and the layout of dvc.yaml."""
    reader = YAML()
    reader.preserve_quotes = True
    reader.width = 4096
    reader.indent(mapping=2, sequence=4, offset=2)
    return reader


def rewrite() -> None:
    """Write all four files anew."""
    pipeline = yaml().load(DVC_YAML)
    yaml().dump(with_params(with_code_deps(pipeline)), DVC_YAML)
    SCHEMA.write_text(json.dumps(made := schema(pipeline), indent=1) + "\n")
    PAGE.write_text(parameters.page(made, yaml().load(PARAMS)))
    METRICS_PAGE.write_text(metrics.page(explained(pipeline)))


if __name__ == "__main__":
    rewrite()
