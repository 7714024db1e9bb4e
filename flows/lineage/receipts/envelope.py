"""A signed receipt: a DSSE envelope (https://github.com/secure-systems-lab/dsse, protocol 1.0.2) with Ed25519 signatures.

Signed is not the text of the payload alone but its pre-authentication encoding, which covers the payload's type too.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.engine.dvc_repository import PlanError
from flows.lineage.receipts.statement import ReceiptError, strict_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

TYPE = "application/vnd.in-toto+json"
MOST = 16  # signatures in an envelope
LARGEST_KEY = 2**16  # bytes of a key file
PRIVATE = "expected a private key of Ed25519 without a passphrase, in PEM or as ssh-keygen writes it"
PUBLIC = "expected a public key of Ed25519, in PEM or as ssh-keygen writes it (id_ed25519.pub)"


@dataclass(frozen=True)
class Opened:
    """The payload of a receipt's file, and for a signed one the signatures with the names of their keys."""

    payload: bytes
    signatures: tuple[tuple[str, bytes], ...] = ()


def seal(payload: bytes, key: Path) -> bytes:
    """The payload in an envelope that is signed with the private key in a file; PlanError where that is no such key."""
    private = _private(key)
    signature = {"keyid": fingerprint(private.public_key()), "sig": _base64(private.sign(encoding(payload)))}
    envelope = {"payloadType": TYPE, "payload": _base64(payload), "signatures": [signature]}
    return (json.dumps(envelope, indent=1) + "\n").encode()


def open_receipt(text: bytes) -> Opened:
    """The payload of an envelope, or of a file that is a statement itself; ReceiptError for anything else."""
    content = strict_json(text)
    if not isinstance(content, Mapping):
        raise ReceiptError("expected a JSON object")
    if "payload" not in content:
        return Opened(text)
    if content.keys() != {"payloadType", "payload", "signatures"} or content["payloadType"] != TYPE:
        raise ReceiptError(f"not a DSSE envelope with the payload type {TYPE}")
    signatures = content["signatures"]
    if not isinstance(signatures, list) or not 0 < len(signatures) <= MOST:
        raise ReceiptError(f"signatures: expected 1 to {MOST}")
    return Opened(_decoded(content["payload"], "payload"), tuple(_signature(each) for each in signatures))


def signed_by(opened: Opened, key: Path) -> bool:
    """Whether one of the signatures is of this public key; PlanError where the file holds no such key."""
    from cryptography.exceptions import InvalidSignature

    public = _public(key)
    for _, signature in opened.signatures:
        try:
            public.verify(signature, encoding(opened.payload))
        except InvalidSignature:
            continue
        return True
    return False


def encoding(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding (PAE) of the payload."""
    return b"DSSEv1 %d %s %d %s" % (len(TYPE), TYPE.encode(), len(payload), payload)


def fingerprint(key: "Ed25519PublicKey") -> str:
    """The key's name as `ssh-keygen -l` shows it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    blob = base64.b64decode(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1])
    return "SHA256:" + _base64(hashlib.sha256(blob).digest()).rstrip("=")


def fingerprint_of(key: Path) -> str:
    """The same of the public key in a file."""
    return fingerprint(_public(key))


def check_private(key: Path) -> None:
    """PlanError where the file holds no private key; asked before a long run, not after it."""
    _private(key)


def _private(file: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = _read(file, PRIVATE)
    load: Any = serialization.load_ssh_private_key if b"OPENSSH" in text else serialization.load_pem_private_key
    key = _loaded(load, text, file, PRIVATE, None)
    if not isinstance(key, Ed25519PrivateKey):
        raise PlanError(f"{file}: {PRIVATE}")
    return key


def _public(file: Path) -> "Ed25519PublicKey":
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    text = _read(file, PUBLIC)
    if b"PRIVATE KEY" in text:
        raise PlanError(f"{file}: a private key; {PUBLIC}")
    load: Any = serialization.load_pem_public_key if b"-----BEGIN" in text else serialization.load_ssh_public_key
    key = _loaded(load, text, file, PUBLIC)
    if not isinstance(key, Ed25519PublicKey):
        raise PlanError(f"{file}: {PUBLIC}")
    return key


def _loaded(load: Any, text: bytes, file: Path, expected: str, *password: None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(text, *password)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a passphrase
        raise PlanError(f"{file}: {expected}") from None


def _read(file: Path, expected: str) -> bytes:
    try:
        if file.stat().st_size > LARGEST_KEY:
            raise PlanError(f"{file}: {expected}")
        return file.read_bytes()
    except OSError as error:
        raise PlanError(f"{file}: {error.strerror}; {expected}") from None


def _signature(entry: Any) -> tuple[str, bytes]:
    if not isinstance(entry, Mapping) or not {"sig"} <= entry.keys() <= {"sig", "keyid"}:
        raise ReceiptError("signatures: expected objects with sig and keyid")
    name = entry.get("keyid", "")
    if not isinstance(name, str) or not name.isprintable() or len(name) > 200:
        raise ReceiptError("signatures: keyid: expected a short text")
    return name, _decoded(entry["sig"], "sig")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decoded(text: Any, what: str) -> bytes:
    """Base64 in either alphabet, as DSSE has it."""
    try:
        return base64.b64decode(str.translate(text, {ord("-"): "+", ord("_"): "/"}), validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ReceiptError(f"{what}: expected base64") from None
