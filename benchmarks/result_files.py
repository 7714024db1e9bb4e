"""Result files: what a benchmark measured, at which commit, on which processor, with its values and a hash.

A file of benchmarks/results holds

    commit        the commits that were measured; `unknown`, with a `reason`, where nobody wrote them down
    processor     the processors that measured
    per_problem   the single values behind the result (by problem, or by repetition), packed; or `not kept`
    result        what the benchmark's page is made of
    sha256        the hash of all of that, as JSON with sorted keys

so that a number on a page can be traced to the code that it was measured on, and its interval computed again from
`values`. Benchmarks write them; `python -m benchmarks.claims --write` then makes the pages of them.
"""

import base64
import hashlib
import json
import platform
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[1]
FOLDER = "benchmarks/results"
UNKNOWN = "unknown"
NOT_KEPT = "not kept"
FIELDS = {"commit", "processor", "per_problem", "result", "sha256"}


def load_result(path: Path, default: Any = None) -> Any:
    """The result in a file; `default`, if there is one, where the file does not exist."""
    return json.loads(path.read_text())["result"] if default is None or path.exists() else default


def load_single_values(path: Path) -> dict[str, Any]:
    """The single values behind a result; none where they were not kept."""
    packed = json.loads(path.read_text())["per_problem"] if path.exists() else NOT_KEPT
    return {} if packed == NOT_KEPT else json.loads(zlib.decompress(base64.b85decode(packed)))


def write_result(path: Path, result: Any, single: Mapping[str, Any] | None = None, *, adds: bool = False) -> None:
    """Write a result that was measured at this clone's commit on this machine.

    `single` are the values behind it. With `adds` the result contains the one that the file has: its commits,
    processors and values stay.
    """
    earlier = json.loads(path.read_text()) if adds and path.exists() else {}
    packed = {**load_single_values(path), **(single or {})} if adds else single
    content = {
        "commit": _join_distinct_parts(" ", earlier.get("commit"), describe_commit()),
        "processor": _join_distinct_parts("; ", earlier.get("processor"), describe_processor()),
        "per_problem": pack_values(packed) if packed else NOT_KEPT,
        "result": result,
    }
    if "reason" in earlier:
        content["reason"] = earlier["reason"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, "sha256": hash_content(content)}, indent=1, ensure_ascii=False) + "\n")


def pack_values(single: Mapping[str, Any]) -> str:
    """Values as text: JSON, compressed, in base 85."""
    return base64.b85encode(zlib.compress(json.dumps(single, separators=(",", ":")).encode(), 9)).decode()


def hash_content(content: Mapping[str, Any]) -> str:
    """The SHA-256 of a file's content but for its hash."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def load_problem_values(evaluation: Path, *metrics: str) -> dict[str, list[float]]:
    """The values of an evaluation's metrics, one for each problem in the order of their ids."""
    long = pd.read_parquet(evaluation / "measures.parquet")
    wide = long.pivot(index="problem_id", columns="metric", values="value")
    return {name: [float(f"{value:.6g}") for value in wide[name]] for name in metrics}


def describe_commit() -> str:
    """This clone's commit, with a plus sign where the code was changed since."""
    changed = _run_git(ROOT, "status", "--porcelain", "--", "tasks", "flows", "params.yaml", "dvc.yaml")
    return (_run_git(ROOT, "rev-parse", "HEAD") or UNKNOWN) + ("+" if changed else "")


def describe_processor() -> str:
    """The processor's name, with family and model: a name alone can stand for several generations."""
    info = Path("/proc/cpuinfo")
    facts: dict[str, str] = {}
    for line in info.read_text().splitlines() if info.exists() else []:
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    name = facts.get("model name", platform.machine())
    return f"{name}, family {facts['cpu family']}, model {facts['model']}" if "cpu family" in facts else name


def find_result_file_faults(root: Path) -> Iterator[str]:
    """A line for each result file that is not sealed, or whose commit is not in the history of a clone that has all of
    it.
    """
    history = None
    if _run_git(root, "rev-parse", "--is-shallow-repository") == "false":
        history = (_run_git(root, "rev-list", "HEAD") or "").split()
    for path in sorted((root / FOLDER).rglob("*.json")):
        name = path.relative_to(root)
        content = json.loads(path.read_text())
        if missing := sorted(FIELDS - {*content}):
            yield f"{name}: has no {', '.join(missing)}"
            continue
        if content["sha256"] != hash_content(content):
            yield f"{name}: was changed: its sha256 is not that of its content"
        for word in content["commit"].split():
            if word == UNKNOWN:
                if not content.get("reason"):
                    yield f"{name}: its commit is unknown, for no reason"
            elif history is not None and not any(full.startswith(word.removesuffix("+")) for full in history):
                yield f"{name}: commit {word} is not in the history"


def _join_distinct_parts(separator: str, *parts: str | None) -> str:
    return separator.join(dict.fromkeys(word for part in parts if part for word in part.split(separator)))


def _run_git(root: Path, *words: str) -> str | None:
    """What git prints; None where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
