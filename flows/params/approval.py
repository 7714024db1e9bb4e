"""Remembers that params.yaml is valid, until the file, the Configs or the code that checks it change.

Building the stages' Configs costs a tenth of a second, which a run with nothing to do can save.
"""

from hashlib import sha256
from pathlib import Path

from flows.params.files import PARAMS

STAMP = Path(".dvc/tmp/posttrain/params.approved")
RULES = Path(__file__).parent


def is_params_approved(root: Path) -> bool:
    """Whether the file as it stands has passed the checks."""
    try:
        return (root / STAMP).read_text() == _compute_params_digest(root)
    except (OSError, UnicodeDecodeError):
        return False


def record_params_approval(root: Path) -> None:
    """Note that the file has passed; if the note cannot be written, the next run checks again."""
    stamp = root / STAMP
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(_compute_params_digest(root))
    except OSError:
        return


def _compute_params_digest(root: Path) -> str:
    """The digest of params.yaml, the Configs and the code that checks one against the other."""
    patterns = ("tasks/*/configs/*.py", "tasks/extensions/*/configs/*.py", "tasks/extensions/*/rules.py")
    configs = [file for pattern in patterns for file in sorted(root.glob(pattern))]
    files = [root / PARAMS, *configs, root / "tasks/common/config.py"]
    digest = sha256()
    for file in filter(Path.is_file, [*files, *sorted(RULES.glob("*.py"))]):
        digest.update(sha256(file.read_bytes()).digest())
    return digest.hexdigest()
