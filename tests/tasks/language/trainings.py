"""All stages of the language flow that train, at the tests' tiny size: `TRAININGS[stage](home, out, **changes)`.

`home` holds what the stages read (fixtures `ready` and `preferences`); the stage writes out/model and out/curve.csv.
"""

from functools import partial

from tests.tasks import policies
from tests.tasks.language import test_dpo, test_pretrained, test_reward_model, test_reward_objectives, test_sft
from tests.tasks.language.test_reward_objectives import BY_LOG_PROBABILITIES

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
# Settings that meet what is particular to a divided model; PRECISE ones in fp32.
PRECISE = {
    "sft-muon": lambda home, out: test_sft.tune(home, out, training={"optimizer": "muon"}),
    "dpo-checkpointing": lambda home, out: test_dpo.fit(
        home, home / "preferences", out, epochs=1, training={"gradient_checkpointing": True, "accumulate": 2}
    ),
    "reward_model-head": lambda home, out: test_reward_model.fit(
        home,
        home / "preferences",
        out,
        epochs=1,
        kind="head",
        likelihood=0.0,
        training={"gradient_checkpointing": True},
    ),
    "grpo-best": lambda home, out: policies.train("grpo", home, out, keep="best", evaluate_every=1, aggregation="bnpo"),
}
ROUNDED = {
    f"{stage}-bf16": lambda home, out, stage=stage: TRAININGS[stage](home, out, training={"precision": "bf16"})
    for stage in ("sft", "reward_model")
}
ROUNDED["grpo-sampler"] = lambda home, out: policies.train("grpo", home, out, sampler_precision="bf16")
# Variants of the stages for tests with several processes: `IN_RANKS[name](home, out)`.
IN_RANKS = {
    "pretrained": lambda home, out: test_pretrained.pretrain(home, out, batch_size=3),
    "sft": lambda home, out: test_sft.tune(home, out, batch_size=7, training={"accumulate": 2}),
    "sft-packed": lambda home, out: test_sft.tune(home, out, packing=True, max_length=250, batch_size=2),
    "dpo": lambda home, out: test_dpo.fit(home, home / "preferences", out, epochs=1, prompts_per_batch=7),
    "reward_model": lambda home, out: test_reward_model.fit(
        home, home / "preferences", out, epochs=1, prompts_per_batch=7, corrupted=0.5
    ),
    **{
        f"reward_model-{objective}": lambda home, out, objective=objective: test_reward_objectives.learn(
            home, out, objective, epochs=1, prompts_per_batch=7, training={"accumulate": 2}
        )
        for objective in ("ranking", "outcome", "process")
    },
    "reward_model-process-log_probability": lambda home, out: test_reward_objectives.learn(
        home, out, "process", epochs=1, prompts_per_batch=7, training={"accumulate": 2}, **BY_LOG_PROBABILITIES
    ),
    **{stage: lambda home, out, stage=stage: policies.train(stage, home, out, **FULL[stage]) for stage in FULL},
    "rejection_sft": lambda home, out: policies.train("rejection_sft", home, out, prompts=7),
}
