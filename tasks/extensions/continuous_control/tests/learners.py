"""What the tests that go through all learners need to know of these (tests/tasks/offline)."""

from tasks.extensions.continuous_control import bear, brac, rebrac, td3, td3_bc
from tests.tasks.offline.critics import CRITICS

BEAR = {
    "lam": 0.75,
    "target_samples": 3,
    "kernel": "laplacian",
    "bandwidth": 1.0,
    "mmd_samples": 3,
    "threshold": 0.1,
    "multiplier_learning_rate": 0.1,
}
WARMUP = {"warmup": 2}
TWIN = {**CRITICS, "noise": 0.2, "noise_clip": 0.5, "policy_every": 2}
EXPLORATION = {
    **{"replay": 40, "warmup": 9, "steps": 2},
    **{"first_epsilon": 0.5, "last_epsilon": 0.5, "last_from": 9},
}
ONLINE = {
    **TWIN,
    "variants": {"TD3": {"relabel": "none"}},
    "relabelled": 1,
    "exploration": EXPLORATION,
    "exploration_noise": 0.2,
}
REGULARISED = {**TWIN, "policy_beta": 0.1, "critic_beta": 0.1, "layer_norm": True}
STAGES = {  # run, Config, the section without what all learners have, and the variant's name
    "brac": (brac.run, brac.BracConfig, {**CRITICS, **WARMUP, "alpha": 0.1}, "BRAC-v"),
    "bear": (bear.run, bear.BearConfig, {**CRITICS, **WARMUP, **BEAR}, "BEAR"),
    "td3_bc": (td3_bc.run, td3_bc.Td3BcConfig, {**TWIN, "alpha": 2.5}, "TD3+BC"),
    "td3": (td3.run, td3.Td3Config, ONLINE, "TD3"),
    "rebrac": (rebrac.run, rebrac.RebracConfig, REGULARISED, "ReBRAC"),
}
DISCRETE = {"brac": True}  # those that learn discrete actions too
OWN = {"td3": {"variants": {"TD3": {"relabel": "none"}}}}
RELABELLED = {
    "td3": (
        "reach",
        {"variants": {"TD3": {"relabel": "episode"}}, "exploration": {**EXPLORATION, "warmup": 60, "replay": 200}},
    ),
}
