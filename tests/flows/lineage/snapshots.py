"""Records of stages, written by hand."""

from typing import Any

from flows.lineage.execution_record import ExecutionRecord


def made(
    stage: str,
    deps: dict[str, str] | None = None,
    outs: dict[str, str] | None = None,
    params: dict[str, Any] | None = None,
    cmd: str = "run",
    **more: Any,
) -> ExecutionRecord:
    """The record of a stage that read `deps` and made `outs`, paths with their hashes; one out by its name if none is
    given.
    """
    outs = {f"data/{stage}": f"{stage}-1"} if outs is None else outs
    listed = {
        kind: [{"path": path, "md5": md5} for path, md5 in of.items()]
        for kind, of in (("deps", deps or {}), ("outs", outs))
    }
    return ExecutionRecord(stage, {"cmd": cmd, "params": {"params.yaml": params or {}}, **listed}, **more)


def snapshot(*records: ExecutionRecord) -> dict[str, ExecutionRecord]:
    return {record.stage: record for record in records}
