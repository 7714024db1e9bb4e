import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

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


EXTENSIONS = "extensions"
REMEMBERING = {"agents", "language", "test_seeds.py", EXTENSIONS}  # elsewhere in tests/tasks reading itself is tested


@pytest.fixture(scope="session")
def reading_once() -> list[tuple[ModuleType, str, Callable[..., Any]]]:
    """What `remembered_files` puts in place of functions that read; it remembers for all tests of this process."""
    from tests.tasks import read_again

    return read_again.replacements()


@pytest.fixture(scope="module", autouse=True)
def remembered_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same table is validated once, and a model of the same files is copied: that saves a third of a short
    training.
    """
    with pytest.MonkeyPatch.context() as patch:
        home = Path(__file__).parent
        below = request.path.relative_to(home).parts[0] if request.path.is_relative_to(home) else EXTENSIONS
        if below in REMEMBERING:
            for module, name, function in request.getfixturevalue("reading_once"):
                patch.setattr(module, name, function)
        yield


@pytest.fixture
def templates_in_a_process(forked_templates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a stage."""
    monkeypatch.setattr("tasks.common.model_files.subprocess", subprocess)


@pytest.fixture(scope="session")
def ready(made: Path) -> Path:
    """`made` with mixture/ and an untrained reward_model/, whose scores differ, which is enough for the tests."""
    import torch

    from tasks.algorithms.language.reward_model import initialise_score_head
    from tasks.common import models
    from tasks.language import mixture
    from tasks.language.rewards import reward_model_files

    mixture.run(tiny(mixture.MixtureConfig, "mixture"), made / "problems", made, made / "mixture")
    words = models.load_tokenizer(made / "pretrained")
    scorer = reward_model_files.load_classifier(made / "pretrained", new=["score.weight"])
    scorer.config.pad_token_id = words.pad_token_id
    initialise_score_head(scorer, torch.Generator().manual_seed(0))
    models.save_model(scorer, words, made / "reward_model")
    return made
