"""Which Prefect server the workers of this checkout use: the configured one, or the repository's own while it runs."""

import os
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.orchestration import server
from flows.workers.prefect_api import Api

NONE = (
    "no Prefect server: start `posttrain ui` here, or set PREFECT_API_URL to a server that runs (`prefect "
    "server start`)"
)

_used: list[server.Server] = []  # the repository's own, which stays as long as this process


def configure_prefect_environment(root: Path) -> str | None:
    """Set Prefect's variables in the environment, where it is clear which server is meant; its address, or None without
    one.

    PREFECT_API_URL counts first, then the repository's own server, then Prefect's profile.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    if server.is_server_answering(root):
        _used.append(server.Server(root))
        os.environ.update(server.build_client_environment(root))
        return os.environ["PREFECT_API_URL"]
    if not _get_profiles_path().exists():
        return None
    from prefect.settings import get_current_settings

    settings = get_current_settings().to_environment_variables(exclude_unset=True, include_secrets=True)
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_CLIENT_CUSTOM_HEADERS"):
        if settings.get(name):
            os.environ.setdefault(name, settings[name])
    return os.environ.get("PREFECT_API_URL")


def connect_to_prefect(root: Path) -> Api:
    """A client of the server; PlanError where there is none, or where it does not answer."""
    url = configure_prefect_environment(root)
    if url is None:
        raise PlanError(NONE)
    api = Api(url)
    try:
        api.check()
    except PlanError:
        api.close()
        raise
    return api


def _get_profiles_path() -> Path:
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    return Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
