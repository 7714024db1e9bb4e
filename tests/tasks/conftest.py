import subprocess
from pathlib import Path

import pytest

from tests.conftest import tiny
from tests.tasks import forks


@pytest.fixture(autouse=True)
def train_on_one_thread(one_thread: None) -> None:
    """Run all tests below on one thread, since many of them train."""


@pytest.fixture(autouse=True)
def forked_templates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chat templates are rendered in a fork: the process of its own that a stage starts spends seconds on imports."""
    if not request.node.get_closest_marker("slow"):
        forks.render_templates(monkeypatch)


@pytest.fixture
def templates_in_a_process(forked_templates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a stage."""
    monkeypatch.setattr("tasks.common.model_files.subprocess", subprocess)


@pytest.fixture(scope="session")
def ready(made: Path) -> Path:
    """`made` with mixture/ and an untrained reward_model/, whose scores differ, which is enough for the tests."""
    import torch

    from tasks.algorithms.language.reward_model import initialise_head
    from tasks.common import models
    from tasks.language import mixture
    from tasks.language.rewards import reward_model_files

    mixture.run(tiny(mixture.MixtureConfig, "mixture"), made / "problems", made, made / "mixture")
    words = models.load_tokenizer(made / "pretrained")
    scorer = reward_model_files.load_classifier(made / "pretrained", new=["score.weight"])
    scorer.config.pad_token_id = words.pad_token_id
    initialise_head(scorer, torch.Generator().manual_seed(0))
    models.save_model(scorer, words, made / "reward_model")
    return made
