"""What a section of params.yaml is: a typed Config, and the types that several sections share.

The Configs stand apart from the stages' code, so that the command line checks params.yaml with the same classes as the
stages, and imports nothing else for it.
"""

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError, core_schema

# Names that the user chooses. Files are named after them, so that none may lead out of its folder.
BRANCH = re.compile(r"^[A-Za-z0-9_-]{1,100}$")  # of a stage's branch, as DVC accepts it
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9 %+,.=_-]{0,99}$")  # of anything else
IN_WORDS = {
    BRANCH.pattern: "text of at most 100 letters, digits, _ and -",
    NAME.pattern: "text of a letter or digit, then at most 99 letters, digits, spaces or %+,.=_-",
}
Branch = Annotated[str, Field(pattern=BRANCH.pattern)]
Name = Annotated[str, Field(pattern=NAME.pattern)]
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # characters that no name of a file should have
# bytes of a path, and of a name in it
LONGEST_PATH = 500
LONGEST_NAME = 255
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what every generator takes
Sizes = Annotated[list[Annotated[int, Field(ge=1, le=10**5)]], Field(min_length=1, max_length=100)]  # of layers
Settings = TypeVar("Settings", bound=Any)
Schema = dict[str, Any]  # of JSON Schema, itself JSON
BRANCHES = "branches"  # the section of params.yaml that says what each stage is run for
SAID = object()  # no value of the keys is refused; `posttrain status` says that they do nothing


class _Distinct:
    """Of a list: no item stands in it twice."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {**handler(core), "uniqueItems": True}

    @staticmethod
    def _check(items: list[Hashable]) -> list[Hashable]:
        if len(set(items)) < len(items):
            raise PydanticCustomError("distinct", "expected none twice")
        return items


Distinct = _Distinct()


@dataclass(frozen=True)
class Idle:
    """Keys of a section that do nothing while all keys of `where` have one of their values; `*` stands for every entry.

    With `neutral` any other value is refused, since whoever sets it expects an effect. Without `neutral` no value is
    refused: `posttrain status` names such keys, and so does a change that makes them do nothing.
    """

    keys: tuple[str, ...]
    where: Mapping[str, tuple[object, ...]]  # with `neutral` these keys stand before the idle ones in the section
    neutral: object = SAID

    @property
    def condition(self) -> str:
        """In words: `with loss ipo or simpo`."""
        return "with " + " and ".join(f"{key} {' or '.join(map(str, values))}" for key, values in self.where.items())


def _is_valid_file_path(text: str) -> bool:
    """Whether a file system can have a file of this path, and a line can show it."""
    path = text.encode()
    short = len(path) <= LONGEST_PATH and max(map(len, path.split(b"/"))) <= LONGEST_NAME
    return short and CONTROL.search(text) is None


def _check_local_path(text: str) -> str:
    """The text, if DVC takes it for the path of a file or folder here."""
    try:
        scheme = urlsplit(text).scheme  # by which DVC too knows s3://bucket/folder and such
    except ValueError:  # it begins with //[
        scheme = text
    if not text or scheme or not _is_valid_file_path(text):
        raise ValueError("expected the path of a file or folder on this machine")
    return text


LocalPath = Annotated[str, AfterValidator(_check_local_path)]  # of a dep


def is_path_inside_folder(location: str) -> bool:
    """Whether a place, named from a folder, is in that folder."""
    path = PurePath(location)
    return _is_valid_file_path(location) and not path.is_absolute() and ".." not in path.parts


class Config(BaseModel):
    """One section of params.yaml: frozen, typed, no defaults, unknown keys rejected; `idle` says which keys do nothing
    when.

    A stage that is run several times, once for each data set or policy, names in `branched_by` the field that says for
    which. In params.yaml its value stands in the section `branches`: then a branch depends on its stage's whole
    section, and on its own entry there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    idle: ClassVar[tuple[Idle, ...]] = ()
    branched_by: ClassVar[str] = ""

    @classmethod
    def list_idle_rules(cls) -> list[Idle]:
        """Its own rules and those that it inherits."""
        return [rule for base in cls.__mro__ for rule in vars(base).get("idle", ())]

    @field_validator("*")
    @classmethod
    def _check_idle_keys(cls, value: object, info: ValidationInfo) -> object:
        for rule in cls.list_idle_rules():
            if rule.neutral is SAID or info.field_name not in rule.keys or value == rule.neutral:
                continue
            if all(info.data.get(key, SAID) in values for key, values in rule.where.items()):
                neutral = repr(rule.neutral) if isinstance(rule.neutral, str) else json.dumps(rule.neutral)
                raise ValueError(f"expected {neutral} {rule.condition}")
        return value

    @classmethod
    def parse_section(cls, section: object) -> "Config":
        """The section as it was read from params.yaml; pydantic's ValidationError if it is none."""
        return cls.model_validate_json(json.dumps(section, default=str))


def build_settings(config: Config, kind: type[Settings]) -> Settings:
    """An algorithm's settings, a dataclass, from the keys of the same names in a stage's section."""
    settings: Settings = kind(**{field.name: getattr(config, field.name) for field in fields(kind)})
    return settings


def build_config_schema(config_type: type[Config], ref_template: str = "#/$defs/{model}") -> Schema:
    """A section's JSON schema."""
    schema = config_type.model_json_schema(ref_template=ref_template)
    _restrict_property_names(schema)
    return schema


def _restrict_property_names(part: object) -> None:
    """Have all keys of a dictionary match the pattern for its keys; pydantic's schema would allow others too."""
    for below in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _restrict_property_names(below)
    if isinstance(part, dict) and "patternProperties" in part:
        [(pattern, part["additionalProperties"])] = part.pop("patternProperties").items()
        part["propertyNames"] = {"type": "string", "pattern": pattern, "description": IN_WORDS[pattern]}
