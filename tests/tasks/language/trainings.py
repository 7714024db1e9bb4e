"""All stages of the language flow that train, at the tests' tiny size: `TRAININGS[stage](home, out, **changes)`.

`home` holds what the stages read (fixtures `ready` and `preferences`); the stage writes out/model and out/curve.csv.
"""

from functools import partial

from tests.tasks import policies
from tests.tasks.language import test_dpo, test_pretrained, test_reward_model, test_sft

TRAININGS = {
    "pretrained": lambda home, out, **changes: test_pretrained.pretrain(home, out, **changes),
    "sft": lambda home, out, **changes: test_sft.tune(home, out, **changes),
    "reward_model": lambda home, out, **changes: test_reward_model.fit(home, home / "preferences", out, **changes),
    "dpo": lambda home, out, **changes: test_dpo.fit(home, home / "preferences", out, **changes),
    **{stage: partial(policies.train, stage) for stage in policies.STAGES},
}
# Settings with which a stage uses all the models that it can.
FULL = {
    "reinforce": {"baseline": "critic"},
    "grpo": {"beta": 0.1, "updates": 2},
    "ppo": {"epochs": 1, "minibatches": 2},
}
