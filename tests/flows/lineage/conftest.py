"""Repositories that have run once; each test gets a copy."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.engine.toy import Toy
from tests.flows.lineage import policies
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.policies import Ran
from tests.flows.lineage.quick import quick


@pytest.fixture(autouse=True, scope="package")
def _quick() -> Iterator[None]:
    with quick():
        yield


@pytest.fixture(scope="package")
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


@pytest.fixture(scope="package")
def audited_again(audited_once: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A third pipeline run, with b.beta 0.3; the second one's results are in no commit."""
    return _another_run(audited_once, tmp_path_factory, beta=0.3)


@pytest.fixture(scope="package")
def audited_oft(audited_again: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A fourth one, with b.beta 0.4."""
    return _another_run(audited_again, tmp_path_factory, beta=0.4)


def _another_run(before: Audited, folders: pytest.TempPathFactory, beta: float) -> Audited:
    toy = before.at(folders.mktemp("audited") / "repository")
    toy.change("b", beta=beta)
    toy.pipeline()
    return toy


@pytest.fixture
def audited(audited_once: Audited, tmp_path: Path) -> Audited:
    return audited_once.at(tmp_path / "repository")


@pytest.fixture
def thrice(audited_again: Audited, tmp_path: Path) -> Audited:
    return audited_again.at(tmp_path / "thrice")


@pytest.fixture
def four_times(audited_oft: Audited, tmp_path: Path) -> Audited:
    return audited_oft.at(tmp_path / "four_times")


@pytest.fixture(scope="package")
def policies_once(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Ran:
    root = tmp_path_factory.mktemp("policies") / "repository"
    shutil.copytree(template, root)
    toy = policies.make(Toy(root), empty_mlflow)
    return Ran(toy, *policies.run(toy))


@pytest.fixture(scope="package")
def policies_again(policies_once: Ran, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A second run, with dpo.beta 0.2: `first` and `results` are those of this run."""
    toy = policies_once.at(tmp_path_factory.mktemp("policies") / "repository").toy
    policies.commit(toy.root)
    return Ran(toy, *policies.run(toy, dpo={"beta": 0.2}))


@pytest.fixture
def ran(policies_once: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Two policies that have run once, in the current folder."""
    copied = policies_once.at(tmp_path / "repository")
    monkeypatch.chdir(copied.toy.root)
    return copied


@pytest.fixture
def rerun(policies_again: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The two policies after their second run, in the current folder."""
    copied = policies_again.at(tmp_path / "repository")
    monkeypatch.chdir(copied.toy.root)
    return copied
