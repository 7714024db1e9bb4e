import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.engine.toy import Toy
from tests.flows.quick_dvc import quick_dvc
from tests.flows.toy_pipeline import make_repository
from tests.flows.unsupervised import without_supervisors


@pytest.fixture(scope="session", autouse=True)
def own_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks of devices of our own: these tests name devices that other processes of the machine may use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSTTRAIN_DEVICES", str(tmp_path_factory.mktemp("devices")))
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    make_repository(root)
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n    check_update = false\n")  # no daemons of dvc
    (root / ".gitignore").write_text("/data/\n/mlruns/\n")
    return root


@pytest.fixture
def plain_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages have no supervisors."""
    without_supervisors(monkeypatch)


QUICK = {"engine", "workers"}  # folders; others choose for themselves


@pytest.fixture
def dvc_memory() -> None:
    """DVC remembers hashes, as it does for users."""


@pytest.fixture(autouse=True)
def quick_toys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC remembers no hashes, but in slow tests and in those that use `dvc_memory`."""
    memory = "dvc_memory" in request.fixturenames or request.node.get_closest_marker("slow")
    if not memory and request.path.parent.name in QUICK:
        quick_dvc(monkeypatch)


@pytest.fixture
def make_toy(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Toy]:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")

    def make(name: str) -> Toy:
        shutil.copytree(template, tmp_path / name)
        return Toy(tmp_path / name)

    return make


@pytest.fixture
def toy(make_toy: Callable[[str], Toy]) -> Toy:
    return make_toy("toy")
