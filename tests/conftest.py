"""What the tests of stages share: the first stages of the pipeline, run once with tiny settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

TINY = {
    "problems": {
        "seed": 0,
        "source": "generated",
        "path": "data/raw/problems",
        "hub_id": "",
        "hub_config": "",
        "hub_revision": "",
        "train": 60,
        "validation": 8,
        "test": 8,
        "one_step": 0.6,
        "two_steps": 0.3,
        "three_steps": 0.1,
        "largest": 40,
    },
    "corpus": {"seed": 0, "facts": 40, "solutions": 60, "stories": 10, "largest": 40},
    "tokenizer": {"vocabulary": 400},
    "pretrained": {
        "seed": 0,
        "init": "scratch",
        "path": "data/raw/models",
        "hub_id": "",
        "hub_revision": "",
        "width": 32,
        "layers": 2,
        "heads": 2,
        "context": 96,
        "initializer_range": 0.05,
        "batch_size": 4,
        "steps": 6,
        "optimizer": "muon",
        "learning_rate": 0.004,
        "weight_decay": 0.0,
        "clip": 1.0,
    },
    "sft": {
        "seed": 0,
        "demonstrations": 32,
        "epochs": 1,
        "batch_size": 8,
        "optimizer": "muon",
        "learning_rate": 0.002,
        "weight_decay": 0.0,
        "clip": 1.0,
    },
}


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
    """A folder with problems/, corpus/, tokenizer/ and pretrained/, a model of some thousand weights."""
    from tasks.language import corpus, pretrained, problems, tokenizer

    home = tmp_path_factory.mktemp("made")
    problems.run(problems.ProblemsConfig(**TINY["problems"]), home, home / "problems")
    corpus.run(corpus.CorpusConfig(**TINY["corpus"]), home / "problems", home / "corpus")
    tokenizer.run(
        tokenizer.TokenizerConfig(**TINY["tokenizer"]), home / "corpus", home / "problems", home / "tokenizer"
    )
    pretrained.run(
        pretrained.PretrainedConfig(**TINY["pretrained"]),
        home / "corpus",
        home / "tokenizer",
        home,
        home / "pretrained",
        home / "pretrained.csv",
    )
    return home


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs, to be copied: making one takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path
