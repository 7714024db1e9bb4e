"""One Prefect server for all tests of this process, so that none of their runs has to start one."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from flows.orchestration import server


@cache
def variables() -> dict[str, str]:
    """The environment variables with which a run uses it."""
    root = Path(tempfile.mkdtemp(prefix="posttrain-prefect-"))
    own = server.Server(root)

    def end() -> None:
        own.close()
        server.stop(root)
        shutil.rmtree(root, ignore_errors=True)

    atexit.register(end)
    own.wait()
    return {**server.environ(root), "PREFECT_HOME": str(root / "home")}
