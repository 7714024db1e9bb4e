"""The section `expert_episodes` of params.yaml."""

from pydantic import Field, ValidationInfo, field_validator

from tasks.agents.environments.games import KINDS, SECONDS, is_user_environment, make_game_environment
from tasks.agents.environments.protocol import Setting, SettingError
from tasks.common.config import Branch, Config, LocalPath, Name


class EnvironmentConfig(Config):
    """An environment, and how much of its best play is recorded."""

    # rooms (a text game) | calculator (arithmetic with a tool) | facts (questions with a search tool) | key-to-door |
    # closed-book (questions about what was told) | a class of your own, such as environments/mine.py:Maze
    kind: str
    settings: dict[Name, Setting]  # what the environment takes; what is not named has its default
    seconds: float = Field(gt=0, le=10**6)  # longest time that an environment of your own may take for one answer
    # recorded games of the split `train`, to be cloned; 0 where the environment does not know its best play
    episodes: int = Field(ge=0, le=10**7)
    validation: int = Field(ge=0, le=10**6)  # recorded games of the split `validation`

    @field_validator("kind")
    @classmethod
    def _check_kind_known(cls, kind: str) -> str:
        if kind not in KINDS and not is_user_environment(kind):
            raise ValueError(f"expected {', '.join(KINDS)} or a class such as environments/mine.py:Maze")
        return kind

    @field_validator("settings")
    @classmethod
    def _check_settings_accepted(cls, settings: dict[str, Setting], info: ValidationInfo) -> dict[str, Setting]:
        if (kind := info.data.get("kind")) and not is_user_environment(kind):
            try:
                make_game_environment(kind, settings, SECONDS)
            except SettingError as error:
                raise ValueError(str(error).partition(", got")[0]) from None  # the caller adds the value
        return settings


class ExpertEpisodesConfig(Config):
    """Which environments there are."""

    branched_by = "environments"

    environments: dict[Branch, EnvironmentConfig] = Field(min_length=1)  # environments by a name of your own
    # file or folder of the environments of your own, a dep of the stages that play; environments/none where there are
    # none
    environment_files: LocalPath
    # seed of the first game; each next one has one more. Games of every split are drawn from here on, by what they open
    # with
    seed: int = Field(ge=0, lt=10**9)
