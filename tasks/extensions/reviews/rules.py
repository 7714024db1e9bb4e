"""What must fit together between the section `steering` and others (flows/params/rules.py)."""

from collections.abc import Iterator
from typing import Protocol

from tasks.common.config_faults import format_short_value
from tasks.extensions.reviews.configs.steering import SteeringConfig


class KnownModels(Protocol):
    """What the rule asks: the objective of the reward model in a folder, empty where there is none."""

    def objective(self, path: str) -> str: ...


def find_reward_model_faults(run: KnownModels, config: SteeringConfig) -> Iterator[tuple[str, str]]:
    """Steered policies are measured by a reward model whose score is a probability."""
    objective = run.objective(config.reward_model_path)
    if objective != "outcome":
        actual = f"of objective {objective}" if objective else "which holds no model"
        expected = f"expected a reward model of objective outcome, got {format_short_value(config.reward_model_path)}"
        yield "reward_model_path", f"{expected}, {actual}"


RULES = (("steering", find_reward_model_faults),)
