"""Checks a receipt without running anything: its signature, its form, its files and its inputs against what is here.

A receipt may say anything. What is read on its word are files below the repository that are no links, and objects of DVC's cache by
their hash.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine.dvc_lock import hashes
from flows.engine.dvc_repository import PlanError
from flows.lineage import cached, record
from flows.lineage.receipts import envelope, statement
from flows.lineage.receipts.statement import LARGEST, ReceiptError, Resource, Statement
from flows.lineage.record import Record
from flows.lineage.reproduction import digests


@dataclass
class Check:
    """What was found. The receipt holds where there are no faults."""

    receipt: Path
    signature: str = ""  # in words: right, wrong, none, not checked
    stage: str = ""
    found: list[str] = field(default_factory=list)  # what is as the receipt says
    faults: list[str] = field(default_factory=list)


def check(root: Path, file: Path, key: Path | None) -> Check:
    """Check the receipt; PlanError where the file or the public key cannot be read."""
    found = Check(file)
    text = _read(file)
    try:
        opened = envelope.open_receipt(text)
        _check_signature(found, opened, key)
        told = statement.parse(opened.payload)
    except ReceiptError as error:
        found.faults.append(f"not a receipt: {error}")
        return found
    found.stage = told.predicate.name
    _check_verdict(found, told)
    if told.predicate.byproducts.verdict == "equal":
        _check_files(root, found, told)
        _check_record(root, found, told)
    return found


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            return content.read(LARGEST + 1)
    except OSError as error:
        raise PlanError(f"{file}: {error.strerror}; expected a receipt that `posttrain verify` wrote") from None


def _check_signature(found: Check, opened: envelope.Opened, key: Path | None) -> None:
    names = ", ".join(name or "a key without a name" for name, _ in opened.signatures)
    if key is None:
        found.signature = f"signed ({names}), not checked: give the public key with --key" if names else "none"
    elif not names:
        envelope.fingerprint_of(key)
        found.signature = "none"
        found.faults.append(f"signature: there is none, so {key} cannot have signed it")
    elif envelope.signed_by(opened, key):
        found.signature = f"right, of {envelope.fingerprint_of(key)}"
    else:
        found.signature = "wrong"
        found.faults.append(
            f"signature: not of {envelope.fingerprint_of(key)}, or the receipt was changed after it was signed"
        )


def _check_verdict(found: Check, told: Statement) -> None:
    byproducts = told.predicate.byproducts
    if byproducts.verdict == "equal":
        found.found.append(f"verdict: equal to the bit, {byproducts.finished}")
        if byproducts.differences:
            found.faults.append("verdict: says equal, and names differences")
    else:
        first = next(iter(byproducts.differences), "no difference is named")
        found.faults.append(f"verdict: what was made again differed: {_plain(first)}")


def _check_files(root: Path, found: Check, told: Statement) -> None:
    """The subject: each file as it is in the workspace, else in the cache."""
    places = {"workspace": 0, "cache": 0}
    for file in told.subject:
        where = _place(root, file)
        if where in places:
            places[where] += 1
        else:
            found.faults.append(f"{file.name}: {where}")
    counted = " and ".join(f"{count} in the {place}" for place, count in places.items() if count)
    if counted:
        found.found.append(f"files: {counted} have the receipt's hashes")


def _place(root: Path, file: Resource) -> str:
    """`workspace` or `cache`, where the file is as the receipt says, else what is wrong."""
    here = _own_file(root, file.name)
    if here is not None and _matches(here, file):
        return "workspace"
    kept = cached.path(root, file.digest.md5)
    if kept is not None and _matches(kept, file):
        return "cache"
    if kept is not None:
        return "the cache has other bytes under its MD5"
    missing = "is not here" if here is None else f"has other bytes here than the receipt's ({file.digest.md5})"
    return f"{missing}, and the cache does not have it"


def _own_file(root: Path, name: str) -> Path | None:
    """A file of the repository that is reached without a link and is neither a folder nor a device."""
    file = root / name
    try:
        return file if file.resolve() == root.resolve() / name and file.is_file() else None
    except OSError:  # a name that is too long for the file system
        return None


def _matches(file: Path, told: Resource) -> bool:
    if not os.access(file, os.R_OK):
        return False
    digest = digests.of_file(file)
    return digest.md5 == told.digest.md5 and digest.sha256 == told.digest.sha256


def _check_record(root: Path, found: Check, told: Statement) -> None:
    """What went in and came out, the command and the parameters, against the record of the run here."""
    of, where = _record(root, told)
    if of is None:
        found.faults.append(f"{_plain(told.predicate.name)}: {where}")
        return
    link, before = told.predicate, len(found.faults)
    if statement.commands(of.entry) != link.command:
        found.faults.append(f"command: {where} has another")
    if statement.plain(of.entry.get("params", {})) != link.byproducts.params:
        found.faults.append(f"parameters: {where} has others")
    if hashes(of.entry, "outs") != link.byproducts.outs:
        found.faults.append(f"outs: {where} has others")
    for kind, told_files in (("deps", link.materials), ("outs", told.subject)):
        expected, unknown = _expected(root, of, kind)
        said = {file.name: file.digest.md5 for file in told_files}
        names = [name for name in {**expected, **said} if expected.get(name) != said.get(name)]
        names = [name for name in names if not any(name == path or name.startswith(f"{path}/") for path in unknown)]
        if names:
            found.faults.append(
                f"{names[0]}: {where} has {expected.get(names[0], 'no such file')} as one of the {kind}"
            )
        found.found += [f"{path}: its files cannot be listed, the cache does not have the folder" for path in unknown]
    if len(found.faults) == before:
        found.found.append(f"inputs: {len(link.materials)} files, command and parameters are those of {where}")


def _record(root: Path, told: Statement) -> tuple[Record | None, str]:
    """The record that the receipt speaks of: its run, else the stage in dvc.lock; and how to call it."""
    link = told.predicate
    if link.byproducts.run_id:
        try:
            of = record.of_run(root, link.byproducts.run_id)
        except PlanError:
            pass
        else:
            if of.stage == link.name:
                return of, f"run {of.run_id}"
            return None, f"the receipt's run was one of {of.stage}"
    now = record.now(root)
    return now.get(
        link.name
    ), "dvc.lock" if link.name in now else "neither dvc.lock nor MLflow has a record of this stage"


def _expected(root: Path, of: Record, kind: str) -> tuple[Mapping[str, str], list[str]]:
    """File -> MD5 by the record, and the folders whose files are not known here."""
    expected, unknown = dict[str, str](), list[str]()
    for path, md5 in hashes(of.entry, kind).items():
        try:
            listed = cached.files(root, md5)
        except PlanError:
            if not digests.has(root / path, md5):
                unknown.append(path)
                continue
            listed = {name: digest.md5 for name, digest in digests.of_path(root / path).items()}
        expected |= {f"{path}/{name}" if name else path: of_file for name, of_file in listed.items()}
    return expected, unknown


def _plain(text: str) -> str:
    """A stranger's text without control characters, shortened."""
    return "".join(char if char.isprintable() else "?" for char in text)[:300]
