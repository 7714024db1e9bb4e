"""Where MLflow's records are: this repository's own database, or the server or database that MLFLOW_TRACKING_URI names.

The latter may be shared by many clones, so that each has an identity by which it knows its own runs. An address may
hold a password: what a person sees of it is `public`, and `clean` takes it out of whatever an error says.
"""

import fcntl
import os
import re
from pathlib import Path

VARIABLE = "MLFLOW_TRACKING_URI"
OWN = Path("mlruns/mlflow.db")  # the repository's own database
CLONE = Path(".dvc/tmp/posttrain/clone")
SERVERS = ("http://", "https://")
DATABASES = ("postgresql://", "postgresql+", "sqlite:///")
SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING")
ADDRESSES = (VARIABLE, "PREFECT_API_URL")
USER_INFO = re.compile(r"(?<=://)[^/@\s'\"]+@")
IN_QUERY = re.compile(r"(?i)\b(password|passwd|token|api_key)=[^&\s'\"]+")
SHORTEST = 4  # letters of a secret that is blotted out wherever it stands; a shorter one is part of many words


class AddressError(Exception):
    """MLFLOW_TRACKING_URI names nothing that MLflow's records can be in; one line for a person."""


def find_shared_address(root: Path) -> str | None:
    """MLflow's address where it is elsewhere; None where MLFLOW_TRACKING_URI is unset or names this repository's own
    database.

    AddressError where it is neither a tracking server nor a database that MLflow is used with here.
    """
    address = os.environ.get(VARIABLE, "").strip()
    if not address:
        return None
    if address.startswith("sqlite:///"):
        if "?" in address:  # what is looked at first must be the file that MLflow opens
            raise AddressError(
                f"{VARIABLE}: {redact_address(address)}: expected the path of a file alone, without '?' and options"
            )
        file = (root / address.removeprefix("sqlite:///")).resolve()
        return None if file == (root / OWN).resolve() else f"sqlite:///{file}"
    if not address.startswith((*SERVERS, *DATABASES)):
        kinds = "http://, https://, postgresql:// or sqlite:///"
        raise AddressError(f"{VARIABLE}: {redact_address(address)}: expected an address that begins with {kinds}")
    return address


def is_server_address(address: str) -> bool:
    """Whether it is a tracking server's, which keeps the files of runs too, and not a database's."""
    return address.startswith(SERVERS)


def describe_records_address() -> str:
    """What messages call the place of MLflow's records."""
    try:
        return redact_address(find_shared_address(Path()) or str(OWN))
    except AddressError:
        return VARIABLE


def redact_address(address: str) -> str:
    """An address as it may be shown: without user, password, query and fragment."""
    return USER_INFO.sub("", re.split(r"[?#]", address, maxsplit=1)[0])


def redact_secrets(text: str) -> str:
    """A text without the passwords and tokens of MLflow's and Prefect's addresses."""
    for secret in sorted(_collect_secrets(), key=len, reverse=True):
        text = text.replace(secret, "***")
    return IN_QUERY.sub(r"\1=***", USER_INFO.sub("***@", text))


def _collect_secrets() -> set[str]:
    from urllib.parse import unquote, urlsplit  # `posttrain runs` needs neither

    secrets = {os.environ.get(name, "") for name in SECRETS}
    secrets |= {part for name in SECRETS[3:] for part in os.environ.get(name, "").split(":", 1)[1:]}
    for name in ADDRESSES:
        try:
            written = urlsplit(os.environ.get(name, "")).password or ""
        except ValueError:
            continue
        secrets |= {written, unquote(written)}
    return {secret for secret in secrets if len(secret) >= SHORTEST}


def load_or_create_clone_id(root: Path) -> str:
    """The random identity of this clone, made on first use.

    It holds as long as its file does: a copy of the folder has another file, and gets an identity of its own.
    """
    file = root / CLONE
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.seek(0)
        identity, _, inode = held.read().strip().partition(" ")
        if not identity or inode != str(os.fstat(held.fileno()).st_ino):
            identity = os.urandom(16).hex()
            held.truncate(0)
            held.write(f"{identity} {os.fstat(held.fileno()).st_ino}\n")
    return identity
