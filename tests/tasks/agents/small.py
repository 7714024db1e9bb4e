"""The agents flow at toy size, for tests."""

from pathlib import Path

from tasks.agents import agent_episodes, agent_returns, agents, behaviour_cloning, budgets, expert_episodes
from tests.conftest import PARAMS

ROOMS = {
    "kind": "rooms",
    "settings": {"rooms": 3, "doors": 1, "turns": 6, "shaping": 0.3},
    "seconds": 10.0,
    "episodes": 24,
    "validation": 6,
}
CALCULATOR = {"kind": "calculator", "settings": {"hardest": 1}, "seconds": 10.0, "episodes": 24, "validation": 6}
NONE = Path("environments/none")  # no environments of the user's
MODEL = {
    "vocabulary": 400,
    "width": 32,
    "layers": 1,
    "heads": 2,
    "context": 256,
    "epochs": 12,
    "learning_rate": 0.01,
    "batch_size": 8,
}
SHORT = {"seeds": [0], "steps": 2, "games": 3, "episodes": 2, "max_action_tokens": 8, "micro_batch": 2, "iterations": 3}
ENTRY = {
    "environment": "rooms",
    "clone": "rooms",
    "credit": "to_go",
    "over": "turns",
    "baseline": "mean",
    "standardized": True,
    "lam": 0.9,
    "update": "plain",
    "learning_rate": 0.001,
}
KINDS = {
    "reinforce": {},
    "total": {"credit": "total", "baseline": "none", "standardized": False},
    "grpo": {"credit": "to_go", "baseline": "group", "update": "clip"},
    "one-step actor-critic": {"credit": "advantage", "baseline": "none", "lam": 0.0},
    "q actor-critic": {"credit": "q", "baseline": "mean"},
    "ppo": {"credit": "advantage", "over": "tokens", "baseline": "none", "update": "clip"},
    "trpo": {"credit": "advantage", "baseline": "none", "update": "trust_region"},
}
KILLED = ["ppo", "trpo"]  # kinds of which a training is killed
SEEDS = {"ppo": [0, 1]}  # kinds of which more than one seed is trained
PPO = {**ENTRY, "credit": "advantage", "baseline": "none", "update": "clip"}
BOUGHT = {"environment": "rooms", "clone": "rooms", "source": "successes", "dollars": 120.0, "learning_rate": 0.001}
BUDGETS = {
    "teacher": "large",
    "prices": {"demonstration": 10.0, "teacher": 10.0, "comparison": 5.0, "reward": 5.0},
    "seeds": [0],
    "games": 3,
    "episodes": 2,
    "max_action_tokens": 8,
    "epochs": 3,
    "batch_size": 2,
}
MIXED = {
    "stage": "behaviour_cloning",
    "branch": "rooms",
    "environment": "rooms",
    "temperature": 1.0,
    "episodes": 12,
    "expert": 8,
}
MEASURED = {
    "clone": {"stage": "behaviour_cloning", "branch": "rooms", "environment": "rooms"},
    **{name: {"stage": "agents", "branch": name, "environment": "rooms"} for name in ("reinforce", "ppo")},
}


def record(root, environment=ROOMS):
    """Record an expert; the folder of its episodes."""
    section = {**PARAMS["expert_episodes"], "environments": {"rooms": environment}}
    expert_episodes.run(expert_episodes.ExpertEpisodesConfig.model_validate(section), NONE, root / "episodes/rooms")
    return root / "episodes/rooms"


def clone(root, episodes, **changes):
    """Clone it; the folder of the model."""
    section = {**PARAMS["behaviour_cloning"], **MODEL, **changes, "path": str(changes.get("path", "none"))}
    config = behaviour_cloning.BehaviourCloningConfig.model_validate(section)
    raw = changes.get("path", root)
    behaviour_cloning.run(config, episodes, raw, root / "clones/rooms")
    return root / "clones/rooms"


def train(root, policy, recorded, entry=(), **changes):
    """Train an agent; its folder and the stage's metrics."""
    section = {**PARAMS["agents"], **SHORT, **changes, "policies": {"one": {**ENTRY, **dict(entry)}}}
    out = root / "agents/one"
    return out, agents.run(agents.AgentsConfig.model_validate(section), policy, recorded, NONE, out)


def train_kind(root, policy, recorded, kind):
    """Train an agent of this kind in fewer games; its folder and the stage's metrics."""
    seeds = SEEDS.get(kind, [0])
    return train(root, policy, recorded, KINDS[kind], seeds=seeds, games=2, iterations=2, max_action_tokens=5)


def measure(policies, recorded, out, **changes):
    """Measure what is in `policies`; the stage's metrics."""
    section = {**PARAMS["agent_returns"], "games": 5, "max_action_tokens": 8, **changes}
    return agent_returns.run(agent_returns.AgentReturnsConfig.model_validate(section), policies, recorded, NONE, out)


def buy(root, policy, teacher, recorded, entry=(), **changes):
    """Train on what a budget buys; the folder and the stage's metrics."""
    section = {**PARAMS["budgets"], **BUDGETS, **changes, "policies": {"one": {**BOUGHT, **dict(entry)}}}
    out = root / "budgets/one"
    return out, budgets.run(budgets.BudgetsConfig.model_validate(section), policy, teacher, recorded, NONE, out)


def as_data(policy, recorded, out, entry=(), **changes):
    """Write a data set for the offline flow into `out`; the stage's metrics."""
    sets = {out.name: {**MIXED, **dict(entry)}}
    section = {**PARAMS["agent_episodes"], "max_action_tokens": 8, "features": 16, "least": 1, **changes, "sets": sets}
    config = agent_episodes.AgentEpisodesConfig.model_validate(section)
    return agent_episodes.run(config, policy, recorded, NONE, out)
