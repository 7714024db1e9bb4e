"""`posttrain run --pool`, `worker` and `workers` without a server: one line that says what lacks."""

from pathlib import Path

import pytest

from flows.orchestration import server_keeper
from flows.params import checking, rules
from tests.flows.toy_pipeline import TYPES, call, make_pipeline


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Prefect server is configured anywhere."""
    for name in ("PREFECT_API_URL", "PREFECT_CLIENT_CUSTOM_HEADERS", "POSTTRAIN_POOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(tmp_path / "profiles.toml"))
    monkeypatch.setattr(checking, "load_config_classes", lambda root: TYPES)
    monkeypatch.setattr(rules, "RULES", [])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two stages ask for a GPU, one of them for a pool."""
    root = make_pipeline(tmp_path / "toy")
    text = (root / "dvc.yaml").read_text()
    for name, resources in (("sft", "{gpu: 1, pool: big}"), ("dpo", "{gpu: 1}")):
        text = text.replace(f"    params: [{name}]", f"    meta: {{resources: {resources}}}\n    params: [{name}]")
    (root / "dvc.yaml").write_text(text)
    return root


NO_SERVER = (
    "no Prefect server: start `posttrain ui` here, or set PREFECT_API_URL to a server that runs (`prefect "
    "server start`)"
)


def test_a_pool_on_the_command_line_needs_a_server(root: Path) -> None:
    assert call(root, "run", "--pool", "gpu") == (2, "", f"posttrain: --pool gpu: {NO_SERVER}\n")
    assert not (root / "mlruns/logs").exists(), "nothing ran"


def test_a_pool_of_dvc_yaml_without_a_server_runs_here_and_says_so(root: Path) -> None:
    code, out, error = call(root, "run", "--dry-run")
    assert (code, error) == (0, "")
    assert out.splitlines()[0] == "no Prefect server is configured, so the stages of pool big run on this machine"


def test_a_server_that_does_not_answer_is_told_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    code, out, error = call(root, "run")
    assert (code, out) == (2, "")
    assert error.startswith("posttrain: Prefect's server does not answer: http://127.0.0.1:9/api (ConnectError")
    assert not (root / "mlruns/logs").exists(), "nothing ran"


@pytest.mark.parametrize("arguments", [["worker", "--pool", "gpu"], ["workers"]])
def test_workers_need_a_server(root: Path, arguments: list[str]) -> None:
    assert call(root, *arguments) == (2, "", f"posttrain: {NO_SERVER}\n")


def test_the_server_of_a_ui_that_was_killed_is_none(root: Path) -> None:
    (root / "mlruns").mkdir()
    (root / server_keeper.NOTE).write_text('{"url": "http://127.0.0.1:9/api", "port": 9, "process": 1}')
    assert call(root, "workers") == (2, "", f"posttrain: {NO_SERVER}\n")


@pytest.mark.parametrize(("pool", "problem"), [("5", "got 5"), ("[gpu]", "got \\['gpu'\\]")])
def test_a_pool_that_is_no_name(root: Path, pool: str, problem: str) -> None:
    text = (root / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(text.replace("pool: big", f"pool: {pool}"))
    code, _, error = call(root, "run")
    assert code == 2
    assert "dvc.yaml: stage 'sft': meta.resources.pool: expected the name of a work pool" in error
