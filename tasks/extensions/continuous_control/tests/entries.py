"""What the tests that go through all stages need to know of these methods (tests/extensions.py)."""

CARTPOLE, HOPPER = "CartPole-v1-medium-replay", "Hopper-v5-medium-replay"
SMALL = {
    **{"seeds": [0, 1], "steps": 40, "batch_size": 16, "log_every": 10, "evaluate_every": 2, "evaluate_episodes": 1},
    **{"datasets": ["Hopper-v5-random"], "hidden": [8]},
}
BASE = {
    **{stage: {**SMALL, "warmup": 10} for stage in ("bear", "brac")},
    **dict.fromkeys(("td3_bc", "td3", "rebrac"), SMALL),
}
EXPLORATION = {
    **{"replay": 100000, "warmup": 20, "steps": 2},
    **{"first_epsilon": 1.0, "last_epsilon": 0.2, "last_from": 5000},
}
SHORT = {"seeds": [0], "steps": 10, "log_every": 5}
METRICS = {
    **dict.fromkeys(("bear", "brac", "td3_bc", "rebrac"), SHORT),
    "td3": {**SHORT, "exploration": EXPLORATION},
}
HARD = {  # what a method's paper says of it, and cloning may refute
    "bear": ("BEAR", "BC"),
    "brac": ("BRAC-v", "BC"),
    "td3_bc": ("TD3+BC", "BC"),
    "rebrac": ("ReBRAC", "BC"),
}
UNSUITED = {
    f"branches.td3=[{HOPPER}, {CARTPOLE}]": (
        f"branches.td3.1: expected data of continuous actions, those of {CARTPOLE} are discrete"
    ),
    f"branches.rebrac=[{CARTPOLE}]": (
        f"branches.rebrac.0: expected data of continuous actions, those of {CARTPOLE} are discrete"
    ),
}
SUITED = {f"branches.td3=[{HOPPER}]": True}
