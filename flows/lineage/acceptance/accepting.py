"""Records that stages stay as they are after a change, because a person says so: MLflow first, then DVC, so that a kill
in between leaves DVC's record of before.

What MLflow has of an acceptance that DVC never came to record is found by the next one, which then writes no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from functools import partial
from pathlib import Path

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_changes import find_stale_reason as reason_of
from flows.engine.dvc_lock import get_code_hashes, is_code_path, join_out_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.mlflow_seal import LATER, RECORD
from flows.engine.records import mlflow_artifacts
from flows.lineage.acceptance import acceptance_runs, dvc_entries, file_hashes
from flows.lineage.acceptance.acceptance_runs import AcceptanceStep
from flows.lineage.checks.lock_differences import list_entry_differences
from tasks.common import mlflow_database, run_environment, source_code

LONGEST = 5000  # letters of a tag


@dataclass(frozen=True)
class Versions:
    """Both versions of a module; what cannot be had is None."""

    path: str
    before: bytes | None
    after: bytes | None


def accept_change(root: Path, flow: str, names: Sequence[str], why: str) -> None:
    """Record that a person vouches for what changed in these stages: code, parameters or command, and nothing else.

    PlanError otherwise.
    """
    root = root.absolute()
    with Coordinator(root), dvc_entries.hold_stage_locks(root, names) as held:
        steps = list[AcceptanceStep]()
        changed = list[Versions]()
        for stage in held.stages:
            name = str(stage.name)
            before = held.before(stage)
            for out in stage.outs:
                for path, state in out.status().items():
                    raise PlanError(f"{name}: its out {path} is {state}; only outs as they were recorded can be kept")
            if reason_of(stage) is None:
                raise PlanError(f"{name} is up to date, so there is nothing to accept")
            after = held.after(stage)
            for difference in list_entry_differences(before, after):
                if difference.kind not in ("cmd", "param") and not is_code_path(difference.name):
                    raise PlanError(
                        f"{name}: {difference.label} changed; only code, parameters and the command can be accepted"
                    )
            maker = mlflow_client.find_or_adopt_maker_run(root, name, before)
            paths = [
                path
                for path in {**get_code_hashes(before), **get_code_hashes(after)}
                if get_code_hashes(before).get(path) != get_code_hashes(after).get(path)
            ]
            step = AcceptanceStep(
                "",
                name,
                acceptance_runs.PERSON,
                why,
                run_environment.get_user_name(),
                None,
                before,
                after,
                maker,
                dict.fromkeys(paths, ""),
            )
            steps.append(step)
            old = file_hashes.collect_recorded_contents(
                root,
                partial(held.before, stage),
                {path: get_code_hashes(before)[path] for path in paths if path in get_code_hashes(before)},
            )
            for path in paths:
                new = (root / path).read_bytes() if path in get_code_hashes(after) else None
                changed.append(Versions(path, old.get(path), new))
        _record_acceptance(root, flow, why, steps, list(dict.fromkeys(changed)))
        held.write({step.stage for step in steps})


def _record_acceptance(
    root: Path, flow: str, why: str, steps: Sequence[AcceptanceStep], changed: Sequence[Versions]
) -> None:
    """Write the run of this acceptance, finished and sealed, for the stages that have none yet; and say so at the runs
    of the outs.
    """
    new = [step for step in steps if not _has_run_for_entry(root, step)]
    if not new:
        return
    source = source_code.read_code_state(root)
    when = datetime.now(UTC)
    by = run_environment.get_user_name()
    contents = {
        file_hashes.compute_md5(version): (file.path, version)
        for file in changed
        for version in (file.before, file.after)
        if version is not None
    }
    summary = f"accepted by {by}: {why}"
    tags = {
        **mlflow_client.build_source_tags(source),
        **acceptance_runs.build_acceptance_tags(
            acceptance_runs.PERSON, why, new, {md5: path for md5, (path, _) in contents.items()}
        ),
        "mlflow.user": by,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": "posttrain accept",
        "mlflow.note.content": f"{summary}\n\nStages: {', '.join(step.stage for step in new)}",
    }
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        client = mlflow_client.open_mlflow_client_after_recording(root)
        experiment = mlflow_client.get_or_create_experiment_id(client, root, flow)
        ours = {PREFIX + "engine": "true", **mlflow_database.make_clone_tags(root)}
        run_id = client.create_run(experiment, run_name=summary[:LONGEST], tags=ours).info.run_id
        mlflow_client.set_run_tags(client, run_id, {key: value[:LONGEST] for key, value in tags.items()})
        for md5, (_, content) in contents.items():
            mlflow_artifacts.save_artifact(root, run_id, acceptance_runs.format_version_file_name(md5), content)
        mlflow_artifacts.save_artifact(root, run_id, acceptance_runs.DIFF, _format_unified_diff(changed))
        mlflow_artifacts.save_artifact(
            root, run_id, RECORD, acceptance_runs.encode_acceptance_record(acceptance_runs.PERSON, why, by, when, new)
        )
        mlflow_client.save_patch_artifact(root, run_id, source)
        mlflow_client.seal_run(client, root, run_id)
        client.set_terminated(run_id, "FINISHED")
        for maker in dict.fromkeys(step.maker for step in new if step.maker is not None):
            earlier_notes = client.get_run(maker).data.tags.get(LATER)
            client.set_tag(
                maker, LATER, "; ".join(filter(None, (earlier_notes, f"{summary} ({run_id[:8]})")))[-LONGEST:]
            )


def _has_run_for_entry(root: Path, step: AcceptanceStep) -> bool:
    """Whether some run is found for the new entry already: it was made, or accepted, before."""
    key = compute_run_cache_key(step.after)
    outs = join_out_hashes(step.after)
    return (
        mlflow_run_lookup.find_maker_run(root, key, outs) or mlflow_run_lookup.find_accepted_maker_run(root, key, outs)
    ) is not None


def _format_unified_diff(changed: Sequence[Versions]) -> bytes:
    """All differences as one text."""
    lines = list[str]()
    for file in changed:
        old, new = (
            (content or b"").decode(errors="replace").splitlines(keepends=True) for content in (file.before, file.after)
        )
        lines += unified_diff(old, new, f"a/{file.path}", f"b/{file.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()
