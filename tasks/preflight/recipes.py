"""The parameters with which a run uses a file of the user's, by what the file is."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.agents.configs.user_environment_names import find_environment_class_fault
from tasks.common.errors import DataError
from tasks.language.configs.parts.python_rewards import (
    find_reward_function_fault,
    is_python_reward,
    parse_python_file,
)
from tasks.language.data import problem_forms
from tasks.language.data.rows import Row, list_data_files, read_file

ROW_KINDS = ("chats", "pairs", "test", "prompts", "problems", "text")
MOST_VALIDATION = 500  # problems held out of the training problems, at most
OF_FILE = {"hub_config": None, "hub_revision": None, "hub_split": None, "weight": 1.0, "reward": "policy"}
AGENT = {"credit": "advantage", "over": "turns", "baseline": "none", "standardized": True, "lam": 0.95,
         "update": "clip", "learning_rate": 0.0004}  # fmt: skip
Settings = list[tuple[tuple[str, ...], Any]]


class Recipe(NamedTuple):
    """What a file is, why, and how a run uses it."""

    path: str
    kind: str
    reason: str
    preset: str  # laid over params.yaml before the settings; empty: none
    settings: Settings  # keys of params.yaml, with their values
    target: str  # the flow or stage to run; empty: that of the other files


def build_rows_recipe(path: Path, kind: str, reason: str, rows: Sequence[Row]) -> Recipe:
    """The recipe for a file or folder of rows."""
    name = path.as_posix()
    if kind == "chats":
        return Recipe(name, kind, reason, "chat", [(("demonstrations", "path"), name)], "language")
    if kind == "pairs":
        return Recipe(name, kind, reason, "pairs", [(("preferences", "path"), name)], "language")
    if kind in ("test", "text"):
        section = {"test": "evaluate", "text": "corpus"}[kind]
        return Recipe(name, kind, reason, "", [((section, "source"), "files"), ((section, "path"), name)], "language")
    if kind == "problems":
        return Recipe(name, kind, reason, "", _list_problem_settings(path), "language")
    dataset = {"name": path.stem, "source": "file", "location": "", **OF_FILE}
    settings: Settings = [(("mixture", "path"), name), (("mixture", "datasets"), [dataset])]
    if reward := _choose_reward(rows):
        settings.append((("grpo", "reward"), {reward: 1.0}))
        reason += f"; reward {reward}"
    return Recipe(name, kind, reason, "", settings, "grpo")


def _list_problem_settings(path: Path) -> Settings:
    """SFT learns the first half of the training problems, and the policies the other half."""
    files = [file for file in list_data_files(path) if file.stem == "train"] if path.is_dir() else []
    if not files:
        raise DataError(f"{path}: expected a folder with a train and a test file of problems")
    count = len(problem_forms.parse_problems(read_file(files[0])))
    validation = min(MOST_VALIDATION, count // 10)
    half = (count - validation) // 2
    if half < 1 or validation < 1:
        raise DataError(f"{files[0]}: {count} problems; expected at least 10, to train and to validate on")
    return [
        (("problems", "source"), "files"),
        (("problems", "path"), path.as_posix()),
        (("problems", "validation"), validation),
        (("sft", "demonstrations"), half),
        *[((section, "skip"), half) for section in ("sft_control", "responses", "mixture")],
    ]


def _choose_reward(rows: Sequence[Row]) -> str:
    """The reward that the rows have the columns for; empty for none."""
    if all("instruction_id_list" in row.values for row in rows):
        return "constraints"
    if all("tests" in row.values or "test_list" in row.values for row in rows):
        return "code"
    problems = problem_forms.parse_problems(rows)
    return "verifiable" if all(row["answer"] for row in problems) else ""


def build_python_recipe(path: Path, kind: str) -> Recipe:
    """The recipe for a reward or an environment in Python, which is parsed and not run."""
    name = path.as_posix()
    if kind:
        raise DataError(f"{name}: a file of Python is a reward or an environment; expected no --as")
    body, fault = parse_python_file(Path(), name)
    if fault:
        raise DataError(fault)
    classes = [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    environments = [
        node
        for node in classes
        if _has_play_methods(body, node) and not find_environment_class_fault(Path(), f"{name}:{node}")
    ]
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    rewards = [node for node in functions if not find_reward_function_fault(Path(), f"{name}:{node}")]
    if environments:
        return _build_environment_recipe(path, environments[0], _has_best_action(body, environments[0]))
    if not rewards:
        expected = "def my_reward(prompts, responses, **columns), or a class with reset(seed) and step(action)"
        raise DataError(f"{name}: defines {', '.join([*functions, *classes]) or 'nothing'}; expected {expected}")
    reward = f"{name}:{rewards[0]}"
    if not is_python_reward(reward):
        raise DataError(f"{name}: a reward; expected it below rewards/: cp {name} rewards/{path.name}")
    others = f" ({', '.join(rewards[1:])} not used)" if rewards[1:] else ""
    settings: Settings = [(("grpo", "reward"), {reward: 1.0}), (("grpo", "reward_files"), name)]
    return Recipe(name, "reward", f"function {rewards[0]}{others}", "", settings, "grpo")


def _list_methods(body: Sequence[ast.stmt], name: str) -> set[str]:
    nodes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
    return {inner.name for inner in nodes[0].body if isinstance(inner, ast.FunctionDef)}


def _has_play_methods(body: Sequence[ast.stmt], name: str) -> bool:
    return {"reset", "step"} <= _list_methods(body, name)


def _has_best_action(body: Sequence[ast.stmt], name: str) -> bool:
    return "best_action" in _list_methods(body, name)


def _build_environment_recipe(path: Path, class_name: str, expert: bool) -> Recipe:
    """The class is learned alone, by cloning its best play where it has one, and by PPO."""
    file = path.as_posix()
    if not file.startswith("environments/"):
        raise DataError(f"{file}: an environment; expected it below environments/: cp {file} environments/{path.name}")
    name = path.stem.replace("_", "-")
    agent = f"{name}-ppo"
    entry = {"kind": f"{file}:{class_name}", "settings": {}, "seconds": 10.0}
    entry |= {"episodes": 40, "validation": 20} if expert else {"episodes": 0, "validation": 0}
    clone = {"stage": "behaviour_cloning", "branch": name, "environment": name}
    learner = {"stage": "agents", "branch": agent, "environment": name}
    settings: Settings = [
        (("expert_episodes", "environment_files"), file),
        (("branches", "expert_episodes"), {name: entry}),
        (("branches", "agents"), {agent: {"environment": name, "clone": name, **AGENT}}),
        (("agents_report", "policies"), {f"{name}-clone": clone, agent: learner}),
        (("agents_report", "expectations"), [{"higher": agent, "lower": f"{name}-clone", "by": "return"}]),
    ]
    play = "whose best_action is cloned first" if expert else "without best_action, so that nothing is cloned"
    return Recipe(file, "environment", f"class {class_name}, {play}", "", settings, "agents")


def build_model_recipe(path: Path) -> Recipe:
    """The flow starts from a model in Hugging Face layout."""
    name = path.as_posix()
    settings: Settings = [(("pretrained", "init"), "directory"), (("pretrained", "path"), name)]
    return Recipe(name, "model", "folder with config.json", "", settings, "")


def start_agents_from_model(recipe: Recipe) -> Recipe:
    """The recipe of a model from which agents start, and not the language flow."""
    settings: Settings = [(("behaviour_cloning", "init"), "directory"), (("behaviour_cloning", "path"), recipe.path)]
    return recipe._replace(settings=settings)


def has_expert(recipe: Recipe) -> bool:
    """Whether an environment's best play is cloned."""
    entries = dict(recipe.settings)["branches", "expert_episodes"]
    return all(entry["episodes"] for entry in entries.values())


def build_episodes_recipe(path: Path) -> Recipe:
    """Recorded episodes of offline reinforcement learning."""
    raise DataError(f"{path}: recorded episodes; expected the parameters of docs/your_own_data.md (Offline data sets)")
