"""The files that MLflow keeps with a run: in the repository's own folder, or wherever a shared MLflow has them.

Those of a shared one are fetched into a folder of this process when they are first read.
"""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from flows.engine import mlflow_run_lookup
from flows.engine.records.mlflow_remote_reader import SharedReader
from tasks.common import mlflow_address, mlflow_database, mlflow_shared

Listed = dict[str, set[str]]  # run -> its files; what is listed here was asked for in this process


def get_artifact_folder(root: Path, run_id: str) -> Path:
    """The folder of a run's files in the repository's own database."""
    return root / mlflow_database.ARTIFACTS / run_id / "artifacts"


def get_or_fetch_artifact_path(root: Path, run_id: str, name: str) -> Path:
    """Where a file of a run can be read; there is none where the run has no such file."""
    if mlflow_address.find_shared_address(root) is None:
        return get_artifact_folder(root, run_id) / name
    home = _create_download_folder_once()
    path = home / run_id / name
    if not path.exists() and name in _fetch_artifact_names(root, run_id):
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            client = mlflow_database.open_or_create_records_client(root)
            fetched = Path(client.download_artifacts(run_id, name, str(_make_folder(home / ".part"))))
            _make_folder(path.parent)
            fetched.replace(path)
    return path


def save_artifact(root: Path, run_id: str, name: str, content: bytes) -> None:
    """Keep a file with a run."""
    if mlflow_address.find_shared_address(root) is None:
        file = get_artifact_folder(root, run_id) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error(), tempfile.TemporaryDirectory() as beside:
        file = Path(beside, name)
        file.write_bytes(content)
        mlflow_database.open_or_create_records_client(root).log_artifact(run_id, str(file))
    (_create_download_folder_once() / run_id / name).unlink(missing_ok=True)  # it is read back as it came to be there
    _get_listing_cache().pop(run_id, None)


def check_artifacts_reachable(root: Path, run_id: str) -> None:
    """Ask for a run's files, so that a server that does not serve them is known before anything runs."""
    if mlflow_address.find_shared_address(root) is not None:
        _fetch_artifact_names(root, run_id)


def _fetch_artifact_names(root: Path, run_id: str) -> set[str]:
    if run_id not in _get_listing_cache():
        with mlflow_run_lookup.open_records_reader(root) as records:
            assert isinstance(records, SharedReader), "asked only of a shared MLflow"
            uri = records.artifacts(run_id)
            client = records.client
            local_folder = mlflow_shared.parse_local_folder(uri or "mlflow-artifacts:")
            if local_folder is not None and not local_folder.parent.parent.is_dir():
                raise mlflow_shared.UnreachableError(
                    f"the files of run {run_id[:8]} are in {local_folder.parent.parent}, which is not on this machine"
                )
            _get_listing_cache()[run_id] = {file.path for file in client.list_artifacts(run_id)} if uri else set()
    return _get_listing_cache()[run_id]


@cache
def _get_listing_cache() -> Listed:
    return {}


@cache
def _create_download_folder_once() -> Path:
    home = Path(tempfile.mkdtemp(prefix="posttrain-files-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home


def _make_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
