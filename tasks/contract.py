"""What is derived from the code: code deps and params in dvc.yaml, params.schema.json, and the pages of docs/parameters
and docs/metrics.

`python -m tasks.contract` rewrites them; a test computes them and fails on a difference. If a stage's deps lacked an
import, a change to that module would not run the stage again.

A stage with `foreach: ${branches.STAGE}` has a branch for each key of that dictionary, or each item of that list. A
branch depends on its own entry alone and on the stage's section: a change to another entry does not run it again.
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from ruamel.yaml import YAML

from tasks import metrics, parameters, reference_pages
from tasks.code import registries, stages
from tasks.common.config import BRANCHES, Config, Schema, build_config_schema
from tasks.reference_pages import DocumentedStage

CODE = "code"  # the stage that writes what code the others are made of
Pipeline = dict[str, Any]  # dvc.yaml, or what it says of one stage
DVC_YAML = Path("dvc.yaml")
SCHEMA = Path("params.schema.json")
PARAMS = Path("params.yaml")
PARAMETER_PAGES = Path("docs/parameters")
METRIC_PAGES = Path("docs/metrics")


def get_stage_definition(stage: Pipeline) -> Pipeline:
    """What dvc.yaml says of a stage, or of each branch of a stage with `foreach`."""
    body: Pipeline = stage.get("do", stage)
    return body


def collect_branch_keys(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Name of a stage with `foreach` -> section and key of the dictionary or list that names its branches, such as
    `branches`, `cql`.
    """
    texts = {name: stage["foreach"] for name, stage in pipeline["stages"].items() if "foreach" in stage}
    return {name: tuple(text.removeprefix("${").removesuffix("}").split(".")) for name, text in texts.items()}


def collect_stage_modules(pipeline: Pipeline) -> dict[str, str]:
    """Stage name -> module, read off the command `python -m <module> ...`; without the stage `code`, which is about
    these.
    """
    commands = {
        name: get_stage_definition(stage)["cmd"].split() for name, stage in pipeline["stages"].items() if name != CODE
    }
    return {name: words[2] for name, words in commands.items()}


def add_code_deps(pipeline: Pipeline) -> Pipeline:
    """The pipeline with data/code/STAGE.json as every stage's only dep that is code, behind the others; in place."""
    for name in collect_stage_modules(pipeline):
        deps = get_stage_definition(pipeline["stages"][name])["deps"]
        if (file := stages.get_stage_code_path(name).as_posix()) not in deps:
            deps.append(file)
    return pipeline


def compute_stage_params(pipeline: Pipeline) -> dict[str, list[str]]:
    """Stage name -> its `params`: its section, and of a branch its own entry in the section `branches`."""
    wanted = {}
    for name, config_type in import_config_types(pipeline).items():
        fields = {*config_type.model_fields}
        field = config_type.branched_by
        has_entries = field and get_origin(config_type.model_fields[field].annotation) is dict
        wanted[name] = [f"{BRANCHES}.{name}.${{key}}"] * bool(has_entries) + [name] * (fields != {field})
    return wanted


def set_stage_params(pipeline: Pipeline) -> Pipeline:
    """The pipeline with every stage's `params` replaced by the computed ones where they differ; in place."""
    for name, keys in compute_stage_params(pipeline).items():
        stage = get_stage_definition(pipeline["stages"][name])
        if stage["params"] != keys:
            stage["params"] = keys
    return pipeline


def set_choice_params(pipeline: Pipeline, values: Mapping[str, Any]) -> Pipeline:
    """The pipeline with the keys below which params.yaml chooses code as the `params` of the stage `code`; in place."""
    keys = [*registries.collect_choices(values)]
    if pipeline["stages"][CODE].get("params") != keys:
        pipeline["stages"][CODE]["params"] = keys
    return pipeline


def import_config_types(pipeline: Pipeline) -> dict[str, type[Config]]:
    """Stage name -> its Config class."""
    return {
        name: get_type_hints(importlib.import_module(module).run)["config"]
        for name, module in collect_stage_modules(pipeline).items()
    }


def build_params_schema(pipeline: Pipeline) -> Schema:
    """JSON schema of the whole params.yaml, for editors: one required section a stage, and the seed that sections may
    share.
    """
    types = import_config_types(pipeline)
    sections = {
        name: parameters.add_schema_descriptions(
            build_config_schema(config_type, f"#/$defs/{name}.{{model}}"),
            parameters.collect_config_classes(config_type),
        )
        for name, config_type in types.items()
    }
    entries: Schema = {"type": "object", "additionalProperties": False, "required": [], "properties": {}}
    entries["description"] = "What stages are run for, once each."
    for name, config_type in types.items():
        if field := config_type.branched_by:
            entries["properties"][name] = sections[name]["properties"].pop(field)
            entries["required"] += [name]
            sections[name]["required"].remove(field)
    seed = {
        "type": "integer",
        "minimum": 0,
        "maximum": 2**32 - 1,
        "description": "The seed of every section that says `*seed`; `posttrain run --seeds 0,1,2` runs several.",
    }
    # of sections; a reference to one starts at the root, and two sections may have parts of one name
    parts: Schema = {}
    for name, content in sections.items():
        parts |= {f"{name}.{model}": part for model, part in content.pop("$defs", {}).items()}
    sections = {name: content for name, content in sections.items() if content["properties"]} | {BRANCHES: entries}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "required": list(sections),
        "properties": {"seed": seed, **sections},
        "patternProperties": {"^x-": {"description": "What sections take in with `<<: *NAME`."}},
        "$defs": parts,
    }


def collect_documented_stages(pipeline: Pipeline) -> dict[str, DocumentedStage]:
    """Stage name -> what its pages in docs/parameters and docs/metrics are made of."""
    branches_of = collect_branch_keys(pipeline)
    return {
        name: DocumentedStage(get_stage_definition(pipeline["stages"][name])["desc"], module, branches_of.get(name))
        for name, module in collect_stage_modules(pipeline).items()
    }


def make_yaml_reader() -> YAML:
    """A round-trip reader and writer that keeps comments, quotes and the layout of dvc.yaml."""
    reader = YAML()
    reader.preserve_quotes = True
    reader.width = 4096
    reader.indent(mapping=2, sequence=4, offset=2)
    return reader


def rewrite_contract_files() -> None:
    """Write all files anew."""
    pipeline = make_yaml_reader().load(DVC_YAML)
    values = make_yaml_reader().load(PARAMS)
    make_yaml_reader().dump(set_choice_params(set_stage_params(add_code_deps(pipeline)), values), DVC_YAML)
    SCHEMA.write_text(json.dumps(made := build_params_schema(pipeline), indent=1) + "\n")
    documented_stages = collect_documented_stages(pipeline)
    reference_pages.replace_reference_pages(
        PARAMETER_PAGES, parameters.render_parameter_pages(made, values, documented_stages)
    )
    reference_pages.replace_reference_pages(METRIC_PAGES, metrics.render_metric_pages(documented_stages))


if __name__ == "__main__":
    rewrite_contract_files()
