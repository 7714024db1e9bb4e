"""A receipt is held against the files and the record that are here; a stranger's receipt can do no harm."""

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.engine.dvc_repository import PlanError
from flows.lineage import verifying
from flows.lineage.receipts import checking, envelope
from flows.lineage.receipts.checking import Check
from tests.flows.engine.toy import Toy
from tests.flows.lineage.receipts.test_envelope import keys

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def made(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which a stage `t` ran on a folder of `a` and a raw file, with the receipt of `t`."""
    home = tmp_path_factory.mktemp("receipts")
    shutil.copytree(template, home / "toy")
    toy = Toy(home / "toy")
    toy.write("raw.txt", "raw")
    toy.stage("a", cmd="mkdir -p data/a/b && echo 1 > data/a/x && echo 2 > data/a/b/y")
    toy.stage(
        "t", cmd="mkdir data/t && cp -r data/a data/t/ && echo t > data/t/model", deps=["work.py", "data/a", "raw.txt"]
    )
    toy.params["t"] = {"rate": 0.5, "none": None}
    toy.save()
    toy.run()
    found = verifying.verify(toy.root, verifying.wanted(toy.root, "t"), lambda line: None, lambda *steps: None)
    assert found.verdict == "equal"
    private, _ = keys(home)
    keys(home, name="other")
    verifying.write_receipt(toy.root, found, None, home / "plain.json")
    verifying.write_receipt(toy.root, found, private, home / "signed.json")
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "home", symlinks=True))


def check(home: Path, receipt: str = "plain.json", key: str | None = None) -> Check:
    return checking.check(home / "toy", home / receipt, home / key if key else None)


def tampered(home: Path, change: Change) -> Check:
    content = json.loads((home / "plain.json").read_text())
    change(content)
    (home / "tampered.json").write_text(json.dumps(content))
    return check(home, "tampered.json")


def test_a_receipt_that_holds(home: Path) -> None:
    found = check(home)
    assert (found.faults, found.signature, found.stage) == ([], "none", "t")
    statement = json.loads((home / "plain.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/link/v0.3"
    assert [file["name"] for file in statement["subject"]] == ["data/t/a/b/y", "data/t/a/x", "data/t/model"]
    assert {file["name"] for file in statement["predicate"]["materials"]} == {
        "work.py",
        "raw.txt",
        "data/a/x",
        "data/a/b/y",
    }
    assert statement["predicate"]["byproducts"]["params"] == {"params.yaml": {"t": {"rate": 0.5, "none": None}}}


def test_the_signature_is_told_plainly(home: Path) -> None:
    assert check(home, "signed.json", "key.pub").signature.startswith("right, of SHA256:")
    wrong = check(home, "signed.json", "other.pub")
    assert wrong.signature == "wrong"
    assert wrong.faults[0].startswith("signature: not of SHA256:")
    unchecked = check(home, "signed.json")
    assert "not checked" in unchecked.signature
    assert not unchecked.faults
    none = check(home, "plain.json", "key.pub")
    assert none.signature == "none"
    assert none.faults[0].startswith("signature: there is none")


def test_a_signed_receipt_that_was_changed(home: Path) -> None:
    content = json.loads((home / "signed.json").read_text())
    statement = json.loads(base64.b64decode(content["payload"]))
    statement["predicate"]["byproducts"]["commit"] = "f" * 40
    content["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    (home / "signed.json").write_text(json.dumps(content))
    assert check(home, "signed.json", "key.pub").signature == "wrong"
    assert not check(home, "signed.json").faults, "without the key nobody can tell"


def _subject(**digest: str) -> Change:
    return lambda content: content["subject"][2]["digest"].update(digest)


def _material(content: dict[str, Any]) -> None:
    content["predicate"]["materials"][1]["digest"]["md5"] = "0" * 32


TAMPERED: dict[str, tuple[Change, str]] = {
    "a digest": (_subject(sha256="0" * 64), "data/t/model: the cache has other bytes under its MD5"),
    "both digests": (_subject(sha256="0" * 64, md5="0" * 32), "data/t/model: has other bytes here"),
    "a file less": (lambda c: c["subject"].pop(), "data/t/model: dvc.lock has"),
    "a material": (_material, "as one of the deps"),
    "no materials": (lambda c: c["predicate"]["materials"].clear(), "as one of the deps"),
    "the command": (lambda c: c["predicate"]["command"].append("x"), "command: dvc.lock has another"),
    "a parameter": (
        lambda c: c["predicate"]["byproducts"]["params"]["params.yaml"]["t"].update(rate=1),
        "parameters: dvc.lock has others",
    ),
    "an out": (
        lambda c: c["predicate"]["byproducts"]["outs"].update({"data/t": "0" * 32}),
        "outs: dvc.lock has others",
    ),
    "the stage": (lambda c: c["predicate"].update(name="a"), "command: dvc.lock has another"),
    "an unknown stage": (lambda c: c["predicate"].update(name="\x1b[2J"), "neither dvc.lock nor MLflow"),
    "the verdict": (lambda c: c["predicate"]["byproducts"].update(verdict="differs"), "what was made again differed"),
    "a difference": (lambda c: c["predicate"]["byproducts"]["differences"].append("x"), "says equal, and names"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_each_part_of_a_changed_receipt_is_caught(home: Path, name: str) -> None:
    change, said = TAMPERED[name]
    found = tampered(home, change)
    assert [fault for fault in found.faults if said in fault], found.faults
    assert all(fault.isprintable() for fault in found.faults)


def test_files_come_from_the_workspace_else_from_the_cache(home: Path) -> None:
    (home / "toy/data/t/model").chmod(0o644)
    (home / "toy/data/t/model").write_text("changed")
    shutil.rmtree(home / "toy/data/a")
    found = check(home)
    assert found.faults == []
    assert "files: 2 in the workspace and 1 in the cache have the receipt's hashes" in found.found
    shutil.rmtree(home / "toy/.dvc/cache/files")
    lost = check(home)
    assert [fault.split(":")[0] for fault in lost.faults] == ["data/t/model"]
    assert any("cannot be listed" in line for line in lost.found)


def test_a_stage_that_has_run_anew_since(home: Path) -> None:
    toy = Toy(home / "toy")
    toy.stages = json.loads(toy.read("dvc.yaml"))["stages"]
    toy.params = json.loads(toy.read("params.yaml"))
    toy.set(t={"rate": 1})
    toy.run()
    assert check(home).faults == ["parameters: dvc.lock has others"]


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "data/../../secret", ".", "", "data//t", "data/t/", "a\\b", "a\0b", "./x", "x" * 5000],
)
def test_a_path_that_is_not_one_of_the_repository_is_refused(home: Path, name: str) -> None:
    (home / "secret").write_text("secret")
    for kind in ("subject", "materials"):

        def change(content: dict[str, Any], kind: str = kind) -> None:
            files = content["subject"] if kind == "subject" else content["predicate"]["materials"]
            files[0]["name"] = name

        [fault] = tampered(home, change).faults
        assert fault.startswith("not a receipt: ")
        assert "\n" not in fault


def test_links_and_pipes_are_not_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "secret").write_text("secret")
    (home / "toy/link").symlink_to(home / "secret")
    (home / "toy/folder").symlink_to(home)
    os.mkfifo(home / "toy/pipe")
    read: list[Path] = []
    real = checking.digests.of_file
    monkeypatch.setattr(checking.digests, "of_file", lambda file: read.append(file) or real(file))
    for name in ("link", "folder/secret", "pipe", "x" * 300, "data"):
        found = tampered(home, lambda content, name=name: content["subject"][0].update(name=name))
        assert found.faults
    assert not [file for file in read if file.name in ("secret", "link", "pipe")]
    assert any(file.name == "model" for file in read), "the others are"


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda c: c.update(predicateType="https://slsa.dev/provenance/v1"),
        lambda c: c.update(subject=[]),
        lambda c: c.update(more=1),
        lambda c: c["subject"].append(c["subject"][0]),
        lambda c: c["subject"][0]["digest"].pop("sha256"),
        lambda c: c["subject"][0]["digest"].update(sha256="0" * 63 + "\n"),
        lambda c: c["subject"][0]["digest"].update(md5="A" * 32),
        lambda c: c["predicate"].pop("byproducts"),
        lambda c: c["predicate"]["byproducts"].update(verdict="perfect"),
        lambda c: c["predicate"]["byproducts"].update(seconds="1"),
        lambda c: c["predicate"].update(command="rm -r /"),
    ],
)
def test_other_forms_are_refused(home: Path, change: Change) -> None:
    [fault] = tampered(home, change).faults
    assert fault.startswith("not a receipt: ")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\0" * 100, b"[" * 10**6, b" " * (2**24 + 1), b'{"a":' + b"9" * 5000 + b"}"]
)
def test_files_that_are_no_receipt(home: Path, content: bytes) -> None:
    (home / "hostile").write_bytes(content)
    [fault] = check(home, "hostile").faults
    assert fault.startswith("not a receipt: ")
    assert len(fault) < 400


def test_a_receipt_or_key_that_is_not_there(home: Path) -> None:
    with pytest.raises(PlanError, match="expected a receipt"):
        check(home, "nothing.json")
    with pytest.raises(PlanError, match="expected a public key"):
        check(home, "signed.json", "nothing.pub")
    assert envelope.fingerprint_of(home / "key.pub") != envelope.fingerprint_of(home / "other.pub")
