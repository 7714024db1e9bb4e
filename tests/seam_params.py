"""The params at which tests/test_seams.py runs every stage: smaller than in preset tiny, or such that more keys have an
effect.

Of a dictionary whose keys the user chooses, only the first entry is changed.
"""

from typing import Any

from tests import extensions
from tests.tasks.agents import small

POLICY = {
    "steps": 3,
    "prompts_per_step": 3,
    "samples": 3,
    "max_new_tokens": 8,
    "evaluate_every": 2,
    "evaluate_prompts": 4,
}
BY_MODEL = {
    "reward": {"reward_model": 1.0, "rubric": 1.0},
    "reward_model_path": "data/reward_model",
}
LEARNER = {"seeds": [0, 1], "steps": 40, "batch_size": 16, "log_every": 10, "evaluate_every": 2, "evaluate_episodes": 1}
DISCRETE, CONTINUOUS = "CartPole-v1-replay", "Hopper-v5-random"
TRAINING = {"id": None, "medium": 0.5, "evaluate_every": 1, "learning_rate": 0.005, "gamma": 0.99, "entropy": 0.0}
Q = {"hidden": [8], "target_every": 5, "learning_rate": 0.01}
TUNING = {"after": 5, "steps": 1, "replay": 100, "share": 0.5}
RECORDED = {"location": None, "steps": None}
BASE: dict[str, dict[str, Any]] = {
    **extensions.entries("BASE"),
    "problems": {"train": 80, "validation": 8, "test": 40, "other_kinds": 2},
    "corpus": {"facts": 60, "solutions": 60, "stories": 10},
    "tokenizer": {"vocabulary": 330},
    "pretrained": {"width": 16, "layers": 1, "heads": 2, "context": 256, "batch_size": 4, "steps": 6},
    "sft": {"demonstrations": 40, "batch_size": 8},
    "sft_control": {
        "policies": {"sft_matched": {"epochs": 1}, "sft_flat": {"epochs": 1}},
        "skip": 40,
        "demonstrations": 30,
        "batch_size": 8,
    },
    "responses": {"skip": 40, "prompts": 16, "samples": 3, "max_new_tokens": 8, "batch_size": 8},
    "preferences": {
        "temperature": 2.0,
        "tie_margin": 0.1,
        "strengths": {"slightly": 0.5, "better": 2.0, "significantly": 4.0},
    },
    "solutions": {"prompts": 4, "samples": 2, "max_new_tokens": 8, "batch_size": 4},
    "reward_model": {"prompts_per_batch": 4},
    "dpo": {"prompts_per_batch": 4, "learning_rate": 0.001},
    "mixture": {"prompts": 12, "skip": 40, "path": "data/raw/problems"},
    "rejection_sft": {
        **BY_MODEL,
        **{"prompts": 6, "prompts_per_batch": 4, "samples": 3, "max_new_tokens": 8},
        **{"minimum_reward": -99.0, "batch_size": 2},
    },
    "reinforce": {
        **POLICY,
        **BY_MODEL,
        "learning_rate": 0.01,
        **{"variance_every": 2, "variance_parts": 3, "micro_batch": 5},
    },
    "ppo": {**POLICY, **BY_MODEL, "learning_rate": 0.01, "micro_batch": 2},
    "grpo": {**POLICY, **BY_MODEL, "learning_rate": 0.01, "updates": 2, "micro_batch": 5},
    "evaluate": {
        "problems": 32,  # of fewer than 30 nothing is tested
        **{"samples": 2, "pass_at": [1, 2], "max_new_tokens": 8, "batch_size": 16},
        **{"validation_problems": 4, "validation_samples": 2},
    },
    "behaviour": {
        "environments": {
            "CartPole-v1": {"steps": 3072, **TRAINING},
            "graph": {"steps": 0, **TRAINING},
            "Hopper-v5": {"steps": 0, **TRAINING},
        },
        "hidden": [16],
    },
    "transitions": {
        "datasets": {
            DISCRETE: {**RECORDED, "environment": "CartPole-v1", "source": "medium-replay", "episodes": 12},
            "graph-12": {**RECORDED, "environment": "graph", "source": "random", "episodes": 12},
            CONTINUOUS: {**RECORDED, "environment": "Hopper-v5", "source": "random", "episodes": 6},
        },
        "references": {"CartPole-v1": {"minimum": 10.0, "maximum": 200.0}},
    },
    "bc": {**LEARNER, "datasets": [DISCRETE], "hidden": [8], "shares": {"BC": 0.6}},
    "dqn": {**LEARNER, **Q, "datasets": [DISCRETE]},
    "cql": {**LEARNER, **Q, "datasets": [DISCRETE, CONTINUOUS], "fine_tuning": {**TUNING, "epsilon": 0.1}},
    "awr": {**LEARNER, "datasets": [DISCRETE], "hidden": [8], "refresh_every": 10},
    "iql": {**LEARNER, "datasets": [DISCRETE], "hidden": [8], "fine_tuning": TUNING},
    "decision_transformer": {
        **LEARNER,
        "datasets": {DISCRETE: {"targets": [20, 10], "scale": 10, "context": 2, "steps": None}},
        **{"width": 8, "layers": 1, "warmup": 5},
        "text": {"path": "data/corpus", "rows": 2, "length": 16},
        "synthetic": {"states": 10, "steps": 5, "rows": 2, "length": 8, "learning_rate": 0.001},
    },
    "returns": {
        "gamma": 0.5,  # windows of 20 steps: three are done before the steps are used up
        "fitted_q": {
            **{"most_steps": 100, "seeds": 1, "tolerance": 1000.0, "batch_size": 16, "hidden": [8]},
            **{"learning_rate": 0.001, "target_rate": 0.1},
        },
    },
    "offline_report": {
        "policies": {
            f"bc-{DISCRETE}": {"method": "bc", "dataset": DISCRETE},
            f"dqn-{DISCRETE}": {"method": "dqn", "dataset": DISCRETE},
            "tabular_q-graph-12": {"method": "tabular_q", "dataset": "graph-12"},
        },
        "expectations": [{"dataset": DISCRETE, "higher": "DQN", "lower": "BC"}],
    },
    "expert_episodes": {"environments": {"rooms": small.ROOMS, "large": small.ROOMS}},
    "behaviour_cloning": {**small.MODEL, "sizes": {"large": {"width": 64, "layers": 1, "heads": 2}}},
    "agents": {**small.SHORT, "policies": {"ppo": small.PPO, "reinforce": small.ENTRY}},
    "budgets": {
        **small.BUDGETS,
        "policies": {
            "one": small.BOUGHT,
            **{source: {**small.BOUGHT, "source": source} for source in ("demonstrations", "comparisons", "rewards")},
        },
    },
    "agent_episodes": {"sets": {"mixed": small.MIXED}, "max_action_tokens": 8, "least": 2, "features": 16},
    "agent_returns": {"games": 4, "max_action_tokens": 8},
    "agents_report": {
        "policies": small.MEASURED,
        "expectations": [{"higher": "reinforce", "lower": "clone", "by": "return"}],
    },
}
