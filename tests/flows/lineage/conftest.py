"""Repositories that have run once; each test gets a copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.engine.toy import Toy
from tests.flows.lineage import audited as audited_toy
from tests.flows.lineage import policies
from tests.flows.lineage.audited import Audited
from tests.flows.lineage.policies import Ran
from tests.flows.lineage.quick import built_once, copy_folder, quick


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with quick():
        yield


@pytest.fixture(scope="session")
def audited_once(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Audited:
    """Two pipeline runs: all stages, and then those that another beta of b concerns."""
    return audited_toy.once(tmp_path_factory, template, empty_mlflow)


@pytest.fixture(scope="session")
def audited_again(audited_once: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A third pipeline run, with b.beta 0.3; the second one's results are in no commit."""
    return audited_toy.again(tmp_path_factory, audited_once, "audited_again", beta=0.3)


@pytest.fixture(scope="session")
def audited_oft(audited_again: Audited, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A fourth one, with b.beta 0.4."""
    return audited_toy.again(tmp_path_factory, audited_again, "audited_oft", beta=0.4)


@pytest.fixture
def audited(audited_once: Audited, tmp_path: Path) -> Audited:
    return audited_once.at(tmp_path / "repository")


@pytest.fixture
def thrice(audited_again: Audited, tmp_path: Path) -> Audited:
    return audited_again.at(tmp_path / "thrice")


@pytest.fixture
def four_times(audited_oft: Audited, tmp_path: Path) -> Audited:
    return audited_oft.at(tmp_path / "four_times")


@pytest.fixture(scope="session")
def policies_once(template: Path, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Ran:
    """Two policies, their evaluations and a report after one run."""

    def build(folder: Path) -> Ran:
        copy_folder(template, folder / "repository")
        toy = policies.make(Toy(folder / "repository"), empty_mlflow)
        return Ran(toy, *policies.run(toy))

    return built_once(tmp_path_factory, "policies_once", build)


@pytest.fixture(scope="session")
def policies_again(policies_once: Ran, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A second run, with dpo.beta 0.2: `first` and `results` are those of this run."""

    def build(folder: Path) -> Ran:
        toy = policies_once.at(folder / "repository").toy
        policies.commit(toy.root)
        return Ran(toy, *policies.run(toy, dpo={"beta": 0.2}))

    return built_once(tmp_path_factory, "policies_again", build)


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
