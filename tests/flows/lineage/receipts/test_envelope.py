"""Signatures: what is signed, by which keys, and everything that must not count as signed."""

import base64
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption

from flows.engine.dvc_repository import PlanError
from flows.lineage.receipts import envelope
from flows.lineage.receipts.statement import ReceiptError

PRIVATE, PUBLIC = serialization.PrivateFormat, serialization.PublicFormat
FORMS = {
    "pem": (Encoding.PEM, PRIVATE.PKCS8, PUBLIC.SubjectPublicKeyInfo),
    "ssh": (Encoding.PEM, PRIVATE.OpenSSH, PUBLIC.OpenSSH),
}


def keys(folder: Path, form: str = "pem", name: str = "key") -> tuple[Path, Path]:
    """Files with a new private key and its public key."""
    key, (encoding, private, public) = Ed25519PrivateKey.generate(), FORMS[form]
    files = folder / name, folder / f"{name}.pub"
    files[0].write_bytes(key.private_bytes(encoding, private, NoEncryption()))
    text = Encoding.OpenSSH if form == "ssh" else Encoding.PEM
    files[1].write_bytes(key.public_key().public_bytes(text, public))
    return files


def test_the_encoding_that_is_signed():
    assert envelope.encoding(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"
    assert envelope.encoding("ä".encode()).endswith(b" 2 \xc3\xa4"), "bytes are counted, not letters"


@pytest.mark.parametrize("form", FORMS)
def test_right_wrong_and_none(tmp_path, form):
    private, public = keys(tmp_path, form)
    _, other = keys(tmp_path, form, "other")
    sealed = envelope.open_receipt(envelope.seal(b'{"a": 1}', private))
    assert sealed.payload == b'{"a": 1}'
    assert envelope.signed_by(sealed, public)
    assert not envelope.signed_by(sealed, other)
    assert [name for name, _ in sealed.signatures] == [envelope.fingerprint_of(public)]
    plain = envelope.open_receipt(b'{"a": 1}')
    assert (plain.payload, plain.signatures) == (b'{"a": 1}', ())
    assert not envelope.signed_by(plain, public)


def test_the_signature_is_over_the_encoding_and_the_key_has_the_name_that_ssh_gives_it(tmp_path):
    private, public = keys(tmp_path, "ssh")
    content = json.loads(envelope.seal(b"{}", private))
    key = serialization.load_ssh_public_key(public.read_bytes())
    key.verify(base64.b64decode(content["signatures"][0]["sig"]), b"DSSEv1 28 application/vnd.in-toto+json 2 {}")
    done = subprocess.run(["ssh-keygen", "-l", "-f", public], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        assert content["signatures"][0]["keyid"] in done.stdout


def test_a_changed_payload_or_a_moved_signature_does_not_count(tmp_path):
    private, public = keys(tmp_path)
    content = json.loads(envelope.seal(b'{"a": 1}', private))
    changed = {**content, "payload": base64.b64encode(b'{"a": 2}').decode()}
    assert not envelope.signed_by(envelope.open_receipt(json.dumps(changed).encode()), public)
    raw = serialization.load_pem_private_key(private.read_bytes(), None).sign(b'{"a": 1}')
    unencoded = {**content, "signatures": [{"sig": base64.b64encode(raw).decode()}]}
    assert not envelope.signed_by(envelope.open_receipt(json.dumps(unencoded).encode()), public)
    several = {**content, "signatures": [{"sig": base64.urlsafe_b64encode(raw).decode()}, *content["signatures"]]}
    assert envelope.signed_by(envelope.open_receipt(json.dumps(several).encode()), public), "one of them is enough"


@pytest.mark.parametrize(
    "change",
    [
        {"payloadType": "text/plain"},
        {"payload": 5},
        {"payload": "not base64!"},
        {"payload": None},
        {"signatures": []},
        {"signatures": [{"sig": "AAAA"}] * 17},
        {"signatures": ["AAAA"]},
        {"signatures": {"sig": "AAAA"}},
        {"signatures": [{"sig": 1}]},
        {"signatures": [{"sig": "AAAA", "keyid": "\x1b[31m"}]},
        {"signatures": [{"sig": "AAAA", "cert": "x"}]},
        {"more": 1},
    ],
)
def test_other_envelopes_are_refused(change):
    content = {"payloadType": envelope.TYPE, "payload": "e30=", "signatures": [{"sig": "AAAA", "keyid": ""}]}
    assert envelope.open_receipt(json.dumps(content).encode()).payload == b"{}"
    with pytest.raises(ReceiptError):
        envelope.open_receipt(json.dumps(content | change).encode())


@pytest.mark.parametrize("text", [b"[]", b"", b"\xff", b'{"payload": 1, "payload": 2}', b"[" * 100_000, b"NaN"])
def test_files_that_are_no_receipt(text):
    with pytest.raises(ReceiptError):
        envelope.open_receipt(text)


def test_keys_that_are_none(tmp_path):
    private, public = keys(tmp_path)
    key = Ed25519PrivateKey.generate()
    locked, curve, empty = tmp_path / "locked", tmp_path / "curve", tmp_path / "empty"
    locked.write_bytes(key.private_bytes(Encoding.PEM, PRIVATE.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(PlanError, match="without a passphrase"):
        envelope.check_private(locked)
    curve.write_bytes(generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PRIVATE.PKCS8, NoEncryption()))
    empty.write_bytes(b"")
    for file in (curve, empty, public, tmp_path / "nothing", tmp_path):
        with pytest.raises(PlanError, match="expected a private key of Ed25519"):
            envelope.check_private(file)
    opened = envelope.open_receipt(envelope.seal(b"{}", private))
    for file in (curve, empty, private, tmp_path / "nothing"):
        with pytest.raises(PlanError, match="expected a public key of Ed25519"):
            envelope.signed_by(opened, file)
