"""A receipt as a statement: these files came out when this command was run again with these inputs.

It is an in-toto Statement v1 with the link predicate (https://in-toto.io/attestation/link/v0.3): the subject is the outs' files, the
materials are the files that went in. A receipt is a stranger's file, so it is parsed strictly: whatever is not expected is refused.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

STATEMENT = "https://in-toto.io/Statement/v1"
LINK = "https://in-toto.io/attestation/link/v0.3"
LARGEST = 2**24  # bytes of a receipt
MOST = 100_000  # files in a statement
CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


class ReceiptError(ValueError):
    """Not a receipt, or a broken one; one line."""


def _inside(name: str) -> str:
    """The path of a file below the repository, as it is written in the only way that is allowed."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or CONTROL.search(name) or name == ".":
        raise ValueError("expected a path within the repository")
    return name


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Digests(_Strict):
    """A file's hashes, in hexadecimal."""

    md5: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Resource(_Strict):
    """A file: in-toto's ResourceDescriptor with a name and hashes."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_inside)]
    digest: Digests


Files = Annotated[list[Resource], Field(max_length=MOST)]


class Byproducts(_Strict):
    """What else is known of the run that was made again."""

    verdict: Literal["equal", "differs"]
    differences: list[str]
    outs: dict[str, str]  # path -> DVC's hash, as recorded
    params: dict[str, Any]
    run_id: str | None
    commit: str | None
    dirty: str | None
    finished: str  # ISO 8601, UTC
    seconds: float


class Link(_Strict):
    """in-toto's link predicate."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    command: list[str]
    materials: Files
    byproducts: Byproducts
    environment: dict[str, str]  # versions of packages and the machine on which it was made again


class Statement(_Strict):
    """in-toto's statement."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[list[Resource], Field(min_length=1, max_length=MOST)]
    predicate_type: Literal["https://in-toto.io/attestation/link/v0.3"] = Field(alias="predicateType")
    predicate: Link

    def text(self) -> bytes:
        """The statement as it is written to a file, and signed."""
        return (json.dumps(self.model_dump(by_alias=True), indent=1, allow_nan=False) + "\n").encode()


def parse(payload: bytes) -> Statement:
    """The statement in these bytes; ReceiptError with the first thing that is not as it must be."""
    content = strict_json(payload)
    try:
        statement = Statement.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "content"
        raise ReceiptError(f"{CONTROL.sub('?', where)[:200]}: {fault['msg']}") from None
    for kind, files in (("subject", statement.subject), ("materials", statement.predicate.materials)):
        if len({file.name for file in files}) != len(files):
            raise ReceiptError(f"{kind}: a file is named twice")
    return statement


def commands(entry: Mapping[str, Any]) -> list[str]:
    """The command of an entry of dvc.lock, which may be several lines."""
    cmd = entry.get("cmd") or []
    return [str(line) for line in cmd] if isinstance(cmd, list) else [str(cmd)]


def plain(value: Any) -> Any:
    """A parameter as JSON has it: an infinite number and a date become texts."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def strict_json(text: bytes) -> Any:
    """JSON in UTF-8 of at most LARGEST bytes, without a key that stands twice and without NaN; ReceiptError otherwise."""

    def once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ReceiptError("a key stands twice in one object")
        return found

    def no_number(name: str) -> float:
        raise ReceiptError(f"{name} is no number in JSON")

    if len(text) > LARGEST:
        raise ReceiptError(f"larger than {LARGEST // 2**20} MiB")
    try:
        return json.loads(text.decode(), object_pairs_hook=once, parse_constant=no_number)
    except ReceiptError:
        raise
    except RecursionError:
        raise ReceiptError("nested too deeply") from None
    except ValueError as error:  # also of UTF-8, and of whole numbers with thousands of digits
        raise ReceiptError(f"not JSON: {error}"[:200]) from None
