"""Which Prefect server this checkout uses: the configured one, or that of a `posttrain ui` that runs here."""

import json
import os
from pathlib import Path

from flows.engine import guard
from flows.engine.dvc_repository import PlanError
from flows.workers.prefect_api import Api, Away

NONE = "no Prefect server: start `posttrain ui` here, or set PREFECT_API_URL to a server that runs (`prefect server start`)"
NOTE = Path("mlruns/prefect-server.json")  # of a running `posttrain ui`


def configure(root: Path) -> str | None:
    """Set Prefect's variables in the environment, where it is clear which server is meant; its address, or None without one.

    PREFECT_API_URL counts first, then the server of `posttrain ui`, then Prefect's profile.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    if (url := _of_ui(root)) is not None:
        os.environ["PREFECT_API_URL"] = url
        os.environ["PREFECT_CLIENT_CUSTOM_HEADERS"] = json.dumps({guard.HEADER: guard.token(root)})
        return url
    if not _profiles().exists():
        return None
    from prefect.settings import get_current_settings

    settings = get_current_settings().to_environment_variables(exclude_unset=True, include_secrets=True)
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_CLIENT_CUSTOM_HEADERS"):
        if settings.get(name):
            os.environ.setdefault(name, settings[name])
    return os.environ.get("PREFECT_API_URL")


def connect(root: Path) -> Api:
    """A client of the server; PlanError where there is none, or where it does not answer."""
    url = configure(root)
    if url is None:
        raise PlanError(NONE)
    api = Api(url)
    try:
        api.check()
    except PlanError:
        api.close()
        raise
    return api


def _of_ui(root: Path) -> str | None:
    try:
        url = str(json.loads((root / NOTE).read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    api = Api(url, {"PREFECT_CLIENT_CUSTOM_HEADERS": json.dumps({guard.HEADER: guard.token(root)})})
    try:
        api.check()
    except (PlanError, Away):
        return None
    finally:
        api.close()
    return url


def _profiles() -> Path:
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    return Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
