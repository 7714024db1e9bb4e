"""The names of rewards that params.yaml may use: a wrong one ends a stage before anything is made, and so no list of names changes an out.

A reward of the repository's is a file of tasks/language/rewards/by_name/, whose code counts for the stages that name it (tasks/code/chosen.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tasks.common.config_faults import closest
from tasks.language.configs.parts.python_rewards import BY_MODEL, PYTHON_REWARD, is_python

FOLDER = Path(__file__).parents[2] / "rewards/by_name"
SUCH_AS = "a function such as rewards/mine.py:politeness"


def reward_names() -> list[str]:
    """All but functions of the user's."""
    return sorted([*BY_MODEL, *(file.stem for file in FOLDER.glob("*.py") if file.stem != "__init__")])


@dataclass(frozen=True)
class RewardName:
    """A text that is the name of a reward, or one of `others`."""

    others: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """What it may be, besides a function of the user's."""
        return [*self.others, *reward_names()]

    def check(self, name: str) -> str:
        """The name; ValueError where nothing is called so."""
        if not is_python(name) and name not in (names := self.names()):
            raise ValueError(f"expected {' or '.join([*names, SUCH_AS])}{closest(name, names)}")
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        function = {"type": "string", "pattern": PYTHON_REWARD.pattern, "description": SUCH_AS}
        return {"type": "string", "anyOf": [{"type": "string", "enum": self.names()}, function]}


Reward = Annotated[str, RewardName()]
RewardOrPolicy = Annotated[str, RewardName(("policy",))]
