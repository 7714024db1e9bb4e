"""Where MLflow is by MLFLOW_TRACKING_URI, what of an address is shown, and by what a clone knows its own runs."""

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.common import mlflow_address
from tasks.common.mlflow_address import AddressError

LETTERS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20)


def test_unset_and_its_own_database_are_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given_address in ("", "  ", f"sqlite:///{tmp_path}/mlruns/mlflow.db", "sqlite:///mlruns/mlflow.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", given_address)
        assert mlflow_address.find_shared_address(tmp_path) is None
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert mlflow_address.find_shared_address(tmp_path) is None
    assert mlflow_address.describe_records_address() == "mlruns/mlflow.db"


def test_an_address_elsewhere_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (
        "http://host:5000",
        "https://u:p@host/mlflow",
        "postgresql://u:p@host/db",
        "postgresql+psycopg2://h/d",
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert mlflow_address.find_shared_address(tmp_path) == address
        assert mlflow_address.is_server_address(address) == address.startswith("http")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///beside/of.db")
    assert mlflow_address.find_shared_address(tmp_path) == f"sqlite:///{tmp_path}/beside/of.db"


@pytest.mark.parametrize(
    "address", ["./mlruns", "databricks", "file:///x", "host:5000", "mysql://u:secret99@h/d", "sqlite://"]
)
def test_anything_else_is_one_line(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(
        AddressError, match=r"^MLFLOW_TRACKING_URI: .*: expected an address that begins with http://"
    ) as caught:
        mlflow_address.find_shared_address(tmp_path)
    assert "secret99" not in str(caught.value)
    assert mlflow_address.describe_records_address() == "MLFLOW_TRACKING_URI"


@given(user=LETTERS, password=LETTERS)
def test_no_part_of_a_user_or_password_is_shown(user: str, password: str) -> None:
    """Quoted as an address has it; whatever an error says of it, raw or quoted, is blotted out."""
    safe = quote(password, safe="")
    address = f"postgresql://{quote(user, safe='')}:{safe}@host:5432/runs?sslmode=require&password={safe}"
    assert mlflow_address.redact_address(address) == "postgresql://host:5432/runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        for text in (
            f"cannot reach {address}",
            f"wrong password {password} for x",
            f"password={safe}",
            f"it was {safe}.",
        ):
            cleaned = mlflow_address.redact_secrets(text)
            assert password not in cleaned
            assert safe not in cleaned
        assert mlflow_address.redact_secrets("nothing of it") == "nothing of it"


def test_tokens_and_prefect_s_keys_are_blotted_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok3n-made-up")
    monkeypatch.setenv("PREFECT_API_KEY", "pnu_made_up")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "somebody:an0ther")
    monkeypatch.setenv("PREFECT_API_URL", "http://me:h1dden@[::1]:4200/api")
    said = "tok3n-made-up, pnu_made_up, somebody:an0ther, an0ther, h1dden at http://you:them@host/x"
    assert mlflow_address.redact_secrets(said) == "***, ***, ***, ***, *** at http://***@host/x"


def test_a_clone_keeps_its_identity_and_a_copy_gets_another(tmp_path: Path) -> None:
    first, moved, copied = (tmp_path / name for name in ("first", "moved", "copied"))
    first.mkdir()
    identity = mlflow_address.load_or_create_clone_id(first)
    assert len(identity) == 32
    assert mlflow_address.load_or_create_clone_id(first) == identity
    first.rename(moved)
    assert mlflow_address.load_or_create_clone_id(moved) == identity
    shutil.copytree(moved, copied)
    assert mlflow_address.load_or_create_clone_id(copied) != identity
    assert mlflow_address.load_or_create_clone_id(copied) == mlflow_address.load_or_create_clone_id(copied)
    (moved / mlflow_address.CLONE).write_text("torn")
    assert mlflow_address.load_or_create_clone_id(moved) not in (
        "torn",
        identity,
        mlflow_address.load_or_create_clone_id(copied),
    )
