"""What the tests of stages share: the first stages of the pipeline, run once with tiny settings."""

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from ruamel.yaml import YAML

from flows.params import checking
from tasks.common.config import Config
from tests import extensions, repository

C = TypeVar("C", bound=Config)

# While tests are collected, millions of objects come that stay: looking for garbage among them takes a third of the
# time, and a seventh of that of all tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# Whoever runs the tests may have servers, hubs and caches that others use; no test depends on them.
for variable in [
    name for name in os.environ if name.startswith(("MLFLOW_", "PREFECT_", "HF_", "TRANSFORMERS_", "DVC_"))
]:
    del os.environ[variable]

os.environ.setdefault("POSTTRAIN_PRODUCTS", "torch")  # no test measures, and all machines compute alike

# A busy machine is slow; with SEED_OF_TESTS, hypothesis draws the same cases each time.
settings.register_profile("here", deadline=None, derandomize="SEED_OF_TESTS" in os.environ)
settings.load_profile("here")

VALUES = YAML(typ="safe").load(repository.params_text())
SEED = VALUES["seed"]
PARAMS = repository.sections(VALUES)  # each with its branches
SECTIONS = checking.load_config_classes(Path(__file__).parent.parent)
BY_MODEL = {"reward_model": 1.0}
POLICY = {
    "steps": 4,
    "prompts_per_step": 3,
    "samples": 3,
    "max_new_tokens": 8,
    "reward": BY_MODEL,
    "reward_model_path": "data/reward_model",
    "evaluate_every": 2,
    "evaluate_prompts": 6,
    "show_every": 2,
}
PLAIN = dict.fromkeys(("shortcut", "unnamed", "opening", "closing", "repeated"), 0.0)  # solutions as they are
TINY: dict[str, dict[str, Any]] = {
    "problems": {"train": 60, "validation": 8, "test": 8, "largest": 40, "other_kinds": 0, "habits": PLAIN},
    "corpus": {"facts": 40, "solutions": 60, "stories": 10, "largest": 40},
    "tokenizer": {"vocabulary": 400},
    "pretrained": {"width": 32, "layers": 2, "heads": 2, "context": 192, "batch_size": 2, "steps": 6},
    "sft": {"demonstrations": 32, "epochs": 1, "batch_size": 8},
    "sft_control": {"policies": {"sft_matched": {"epochs": 1}}, "skip": 32, "demonstrations": 16, "batch_size": 8},
    "mixture": {"prompts": 12, "skip": 32},
    "rejection_sft": {
        "prompts": 8,
        "prompts_per_batch": 4,
        "samples": 3,
        "max_new_tokens": 8,
        "reward": BY_MODEL,
        "reward_model_path": "data/reward_model",
        "minimum_reward": -9.0,
        "batch_size": 2,
    },
    "reinforce": {**POLICY, "baseline": "critic", "variance_every": 2, "variance_parts": 3, "micro_batch": 5},
    "ppo": {**POLICY, "learning_rate": 0.001},
    "grpo": {**POLICY, "learning_rate": 0.001, "micro_batch": 5},
}

# Stages without a branch by default, with one.
BOUGHT = {"environment": "rooms", "clone": "calculator", "source": "successes", "dollars": 9.0, "learning_rate": 0.001}
SET = {
    **{"stage": "behaviour_cloning", "branch": "rooms", "environment": "rooms"},
    **{"temperature": 1.0, "episodes": 9, "expert": 1},
}
BRANCHED = {
    **PARAMS,
    **{stage: {**PARAMS[stage], **section} for stage, section in extensions.entries("BRANCHED").items()},
    "budgets": {**PARAMS["budgets"], "policies": {"successes": BOUGHT}},
    "agent_episodes": {**PARAMS["agent_episodes"], "sets": {"rooms-mixed": SET}},
}


def one_branch(stage: str) -> str:
    """The setting that gives a stage without branches one: of a method a data set."""
    field = SECTIONS[stage].branched_by
    return f"branches.{stage}={json.dumps(BRANCHED[stage][field] or ['Hopper-v5-medium-replay'])}"


def tiny(config: type[C], stage: str) -> C:
    """A stage's section of params.yaml at toy size."""
    return config.model_validate({**PARAMS[stage], **TINY[stage]})


def changed(config: C, **changes: Any) -> C:
    """A section with changes; those to its part `training` stand in a dictionary of their own."""
    if isinstance(changes.get("training"), dict):
        changes["training"] = config.training.model_copy(update=changes["training"])  # type: ignore[attr-defined]
    if isinstance(changes.get("lora"), dict):
        return type(config).model_validate({**config.model_copy(update=changes).model_dump(warnings=False)})
    return config.model_copy(update=changes)


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Tiny models run fastest on one thread, and sums then never depend on the machine's cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def made(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with problems/, demonstrations/, corpus/, tokenizer/ and pretrained/, a model of some thousand
    weights.
    """
    from tasks.language import corpus, demonstrations, pretrained, problems, tokenizer

    home = tmp_path_factory.mktemp("made")
    problems.run(tiny(problems.ProblemsConfig, "problems"), home, home / "problems")
    own = demonstrations.DemonstrationsConfig.model_validate(PARAMS["demonstrations"])
    demonstrations.run(own, home / "problems", home, home / "demonstrations")
    corpus.run(tiny(corpus.CorpusConfig, "corpus"), home / "problems", home, home / "corpus")
    tokenizer.run(tiny(tokenizer.TokenizerConfig, "tokenizer"), home / "corpus", home / "problems", home / "tokenizer")
    config = tiny(pretrained.PretrainedConfig, "pretrained")
    pretrained.run(config, home / "corpus", home / "tokenizer", home, home / "pretrained", home / "pretrained.csv")
    return home


@pytest.fixture(scope="session", autouse=True)
def one_script_directory() -> Iterator[None]:
    """MLflow reads all its migrations, half the time of opening a database, whenever it opens one: here once in a
    process.
    """
    from alembic.script import ScriptDirectory

    with pytest.MonkeyPatch.context() as patch:
        directories: dict[str | None, ScriptDirectory] = {}
        read = ScriptDirectory.from_config

        def from_config(config: Any) -> Any:
            location = config.get_main_option("script_location")
            if location not in directories:
                directories[location] = read(config)
            return directories[location]

        patch.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs, to be copied: making one takes seconds."""
    from tasks.common import mlflow_database

    root = tmp_path_factory.mktemp("mlflow")
    mlflow_database.open_or_create_records_client(root)
    return root / mlflow_database.DATABASE
