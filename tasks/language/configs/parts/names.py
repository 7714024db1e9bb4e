"""Names that params.yaml may choose, read off the files that make them: a wrong one is refused before anything is made,
and no list of names changes an out.

A reward of the repository's is a file of tasks/language/rewards/by_name/, whose code counts for the stages that name it
(tasks/code/registries.py). A policy is what a stage trains; such a stage explains its curve in CURVES.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tasks.common.config_faults import format_closest_name_hint
from tasks.language.configs.parts.python_rewards import BY_MODEL, PYTHON_REWARD, is_python_reward

FLOW = Path(__file__).parents[2]
TRAINS = re.compile(r"^CURVES\b", re.MULTILINE)
SUCH_AS = "a function such as rewards/mine.py:politeness"
# The policies that the stage sft_control trains: SFT carried on, to compare policies with.
ControlName = Literal["sft_matched", "sft_flat"]


def list_reward_names() -> list[str]:
    """The rewards, without functions of the user's."""
    return sorted([*BY_MODEL, *(file.stem for file in FLOW.glob("rewards/by_name/*.py") if file.stem != "__init__")])


def list_prompt_reward_names() -> list[str]:
    """What may pay for the answers to a prompt: also `policy`, that of the stage that trains."""
    return ["policy", *list_reward_names()]


def list_policy_names() -> list[str]:
    """The policies that may be evaluated and reported."""
    stages = {file.stem for file in FLOW.glob("*.py") if TRAINS.search(file.read_text())}
    return sorted(stages - {"reward_model", "sft_control"} | {*get_args(ControlName)})


@dataclass(frozen=True)
class OneOf:
    """A text that is one of these names, or with `functions` that of a reward in a file of the user's."""

    names: Callable[[], list[str]]
    functions: bool = False

    def check(self, name: str) -> str:
        """The name; ValueError where nothing is called so."""
        names = self.names()
        if name not in names and not (self.functions and is_python_reward(name)):
            raise ValueError(
                f"expected {' or '.join([*names, *[SUCH_AS] * self.functions])}{format_closest_name_hint(name, names)}"
            )
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        named = {"type": "string", "enum": self.names()}
        function = {"type": "string", "pattern": PYTHON_REWARD.pattern, "description": SUCH_AS}
        return {"type": "string", "anyOf": [named, function]} if self.functions else named


Reward = Annotated[str, OneOf(list_reward_names, functions=True)]
RewardOrPolicy = Annotated[str, OneOf(list_prompt_reward_names, functions=True)]
PolicyName = Annotated[str, OneOf(list_policy_names)]
