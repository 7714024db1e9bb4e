import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.engine.toy import Toy
from tests.flows.lineage import policies
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.policies import Ran


@pytest.fixture(scope="session")
def audited_once(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Audited:
    """Two pipeline runs: all stages, and then those that another beta of b concerns."""
    root = tmp_path_factory.mktemp("audited") / "repository"
    shutil.copytree(template, root)
    toy = Audited.build(root, empty_mlflow)
    assert {result.state for result in toy.pipeline().values()} == {"ran"}
    toy.change("b", beta=0.2)
    toy.commit()
    states = {name: result.state for name, result in toy.pipeline().items()}
    assert (states["b"], states["c"], states["evaluate@b"]) == ("ran", "up-to-date", "ran")
    return toy


@pytest.fixture
def audited(audited_once: Audited, tmp_path: Path) -> Audited:
    return audited_once.at(tmp_path / "repository")


@pytest.fixture(scope="session")
def policies_once(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Ran:
    root = tmp_path_factory.mktemp("policies") / "repository"
    shutil.copytree(template, root)
    toy = policies.make(Toy(root), empty_mlflow)
    return Ran(toy, *policies.run(toy))


@pytest.fixture
def ran(policies_once: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Two policies that have run once, in the current folder."""
    found = policies_once.at(tmp_path / "repository")
    monkeypatch.chdir(found.toy.root)
    return found


@pytest.fixture(autouse=True, scope="session")
def _python_here() -> Iterator[None]:
    """Stages call `python`."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{before}"
    yield
    os.environ["PATH"] = before
