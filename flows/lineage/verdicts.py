"""What came of making results again, by their entries of dvc.lock: `verify` notes it, and an audit need not make the
same again.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.engine.dvc_lock import Entry
from flows.engine.dvc_stage import compute_entry_hash

PLACE = Path(".dvc/tmp/posttrain/verdicts.json")


@dataclass(frozen=True)
class ReproductionVerdict:
    """Whether a result was equal to the bit when it was made again, and else its first difference."""

    equal: bool
    path: str = ""
    what: str = ""
    environment: Sequence[str] = ()  # the versions and facts of the machine that were others than on record


def read_reproduction_verdict(root: Path, entry: Entry) -> ReproductionVerdict | None:
    """The newest verdict on the result of this entry; None where it was not made again here."""
    content = _load_verdicts(root).get(compute_entry_hash(entry))
    with suppress(TypeError):
        return ReproductionVerdict(**content) if content is not None else None
    return None


def record_reproduction_verdict(root: Path, entry: Entry, verdict: ReproductionVerdict) -> None:
    """Keep a verdict; a repository that cannot be written to keeps none."""
    content = {**_load_verdicts(root), compute_entry_hash(entry): asdict(verdict)}
    with suppress(OSError):
        target = root / PLACE
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file)
        Path(name).replace(target)


def _load_verdicts(root: Path) -> Mapping[str, Any]:
    try:
        content = json.loads((root / PLACE).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
