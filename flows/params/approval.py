"""That params.yaml was found right stays known until it, or what it is held against, changes.

To build the stages' Configs costs a tenth of a second, which a run that has nothing to do need not spend.
"""

from hashlib import sha256
from pathlib import Path

from flows.params.files import PARAMS

STAMP = Path(".dvc/tmp/posttrain/params.approved")
RULES = Path(__file__).parent


def known(root: Path) -> bool:
    """Whether this very file passed."""
    try:
        return (root / STAMP).read_text() == _digest(root)
    except (OSError, UnicodeDecodeError):
        return False


def remember(root: Path) -> None:
    """It has passed; where that cannot be written, it is found out again."""
    stamp = root / STAMP
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(_digest(root))
    except OSError:
        return


def _digest(root: Path) -> str:
    """Of params.yaml, of the Configs, and of the code that compares them."""
    files = [root / PARAMS, *sorted(root.glob("tasks/*/configs/*.py")), root / "tasks/common/config.py"]
    digest = sha256()
    for file in filter(Path.is_file, [*files, *sorted(RULES.glob("*.py"))]):
        digest.update(sha256(file.read_bytes()).digest())
    return digest.hexdigest()
