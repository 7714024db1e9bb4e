"""A lineage laid flat: every artifact and every run of it once, sorted, named by ids that stay the same from one
question to the next.

The chain is a tree in which shared inputs come again and again; a graph, a page and a program that reads JSON need each
of them once. The JSON of `posttrain lineage X --json` is

    {"of": ID, "artifacts": [{"id", "path", "hash", "stage", "run", "raw", "note", "parts"}],
     "runs": [{"id", "recorded", "stage", "started", "commit", "dirty", "params", "code", "code_hash", "environment",
     "inputs", "outs", "accepted", "elsewhere"}]}

An artifact's id is PATH@HASH. A run's id is the one in MLflow; an execution that MLflow has no record of gets an id
made from what is known of it, and `recorded` is false. `run` is null for raw data. `inputs`, `outs`, `parts` and `of`
hold ids of artifacts. `parts` are the outputs that make up a folder which a stage read as one input. `accepted` says
what of the run's code was accepted since, `elsewhere` who made a run that is not in MLflow here and whose record came
with its result, or nothing. `started` is local time in ISO 8601, `code` is path -> md5.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flows.lineage.chain import Link

CLEAN = (None, "no", "unknown")  # what `dirty` says where no changed file is known


@dataclass(frozen=True)
class Artifact:
    """A file or folder with a hash: the output of a run, or raw data."""

    id: str
    path: str
    hash: str
    stage: str | None  # None for what no stage makes
    run: str | None
    raw: bool
    note: str  # where the chain ends or breaks: why
    parts: tuple[str, ...]


@dataclass(frozen=True)
class StageExecution:
    """One run of a stage: what went into it and what of this lineage came out."""

    id: str
    recorded: bool
    stage: str
    started: str | None
    commit: str | None
    dirty: str | None
    params: Mapping[str, str]
    code: Mapping[str, str]
    code_hash: str
    environment: Mapping[str, str]
    inputs: tuple[str, ...]
    outs: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    elsewhere: str = ""


@dataclass(frozen=True)
class Document:
    """A whole lineage by id, sorted by id. `of` is the artifact that was asked for."""

    of: str
    artifacts: Mapping[str, Artifact]
    runs: Mapping[str, StageExecution]

    def json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "of": self.of,
            "artifacts": [asdict(artifact) for artifact in self.artifacts.values()],
            "runs": [asdict(run) for run in self.runs.values()],
        }

    def group_readers_by_artifact(self) -> dict[str, list[str]]:
        """Artifact -> what was made from it: the ids of runs that read it, and of the folders that it is a part of."""
        readers: dict[str, list[str]] = {name: [] for name in self.artifacts}
        for run in self.runs.values():
            for need in run.inputs:
                readers[need].append(run.id)
        for artifact in self.artifacts.values():
            for part in artifact.parts:
                readers[part].append(artifact.id)
        return readers


def flatten_lineage(link: Link) -> Document:
    """The document of a chain."""
    links = {format_artifact_id(node): node for node in iterate_links(link)}
    made_by = {artifact: build_run_id(node) for artifact, node in links.items() if node.stage is not None}
    outs: dict[str, list[str]] = {}
    for artifact, run in made_by.items():
        outs.setdefault(run, []).append(artifact)
    return Document(
        format_artifact_id(link),
        {artifact: _build_artifact(links[artifact], made_by.get(artifact)) for artifact in sorted(links)},
        {run: _build_stage_execution(run, links, outs[run]) for run in sorted(outs)},
    )


def iterate_links(link: Link) -> Iterator[Link]:
    """Each link of a chain once, the one asked for first."""
    seen = {format_artifact_id(link)}
    waiting = [link]
    while waiting:
        node = waiting.pop()
        yield node
        for below in node.inputs:
            if format_artifact_id(below) not in seen:
                seen.add(format_artifact_id(below))
                waiting.append(below)


def format_artifact_id(link: Link) -> str:
    """The id of an artifact."""
    return f"{link.path}@{link.hash}"


def build_run_id(link: Link) -> str:
    """The id of the run that made an output; where none is on record, one made from its stage, inputs and code."""
    if link.run_id is not None:
        return link.run_id
    identity = [link.stage, sorted(map(format_artifact_id, link.inputs)), link.code_hash or format_artifact_id(link)]
    return f"unrecorded-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]}"


def replace_control_characters(text: str) -> str:
    """The text without control characters, which could give a terminal orders; a path may hold any."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def format_page_anchor(kind: str, identifier: str) -> str:
    """A node's id in the page, `run-ID` or `artifact-PATH@HASH`, which can stand in an address as it is.

    Characters that mean something in an address are written as ~hexadecimal~.
    """
    return f"{kind}-" + re.sub(r"[^A-Za-z0-9/@._-]", lambda match: f"~{ord(match[0]):x}~", identifier)


def _build_artifact(link: Link, run: str | None) -> Artifact:
    parts = tuple(sorted(map(format_artifact_id, link.inputs))) if link.stage is None else ()
    raw = link.stage is None and not parts
    return Artifact(format_artifact_id(link), link.path, link.hash, link.stage, run, raw, link.note, parts)


def _build_stage_execution(identifier: str, links: Mapping[str, Link], outs: list[str]) -> StageExecution:
    link = links[outs[0]]
    return StageExecution(
        identifier,
        link.run_id is not None,
        link.stage or "",
        link.made_at.isoformat(timespec="seconds") if link.made_at else None,
        link.commit,
        link.dirty,
        dict(sorted(link.params.items())),
        dict(sorted(link.code.items())),
        link.code_hash,
        dict(sorted(link.environment.items())),
        tuple(sorted(map(format_artifact_id, link.inputs))),
        tuple(sorted(outs)),
        next((links[out].accepted for out in outs if links[out].accepted), ()),
        link.elsewhere,
    )
