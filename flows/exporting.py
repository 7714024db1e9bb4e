"""A stage's model as a folder of its own, with a model card that says how it was made: all of it, or nothing."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows import stage_outputs
from flows.engine.dvc_lock import get_entry_hashes, read_lock_entries
from flows.engine.dvc_repository import PlanError
from flows.engine.plan import plan_stages
from flows.lineage.chain import Link, trace_lineage
from flows.params.files import parse_yaml_text, read_text
from flows.web import model_card, policy_card
from flows.web.model_card import Card, Made


def export_model(root: Path, model: str, target: Path) -> list[str]:
    """Write the model of a stage, or of a stage's folder, to `target`; returns remarks on what the card cannot say.

    PlanError if `target` is not empty, if no stage made the model, if it was changed since, or if it cannot be loaded.
    """
    target = target.resolve()  # where a link leads
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PlanError(f"{target}: not empty; expected a folder to make, or an empty one")
    if owned := next(
        (path for path in _collect_pipeline_paths(root) if target.is_relative_to(root.resolve() / path)), None
    ):
        raise PlanError(f"{target}: within {owned}, which belongs to the pipeline; expected a folder of its own")
    source = stage_outputs.resolve_checkpoint_folder(root, model)
    link = trace_lineage(root, str(root / source))
    acts = _is_offline_policy(root / source)
    if link.stage is None or not (link.path == source.as_posix() or (acts and source.is_relative_to(link.path))):
        raise PlanError(f"{source}: no stage's model; expected a stage, or the folder that it makes")
    if changed := stage_outputs.list_altered_outputs(root, link.stage):
        raise PlanError(
            f"{changed[0]}: not as {link.stage} made it, so a model card would not be true; run {link.stage} again"
        )
    [reason] = [stage.reason for stage in plan_stages(root, [link.stage]) if stage.name == link.stage]
    remarks = [f"{link.stage} is out of date ({reason}); the card says so"] if reason else []
    evaluation = _find_returns_stage(root, link) if acts else f"evaluate@{link.stage}"
    evaluated = _is_evaluation_current(root, evaluation, link)
    files = [stage_outputs.get_metrics_file(root, name) for name in (link.stage, *[evaluation] * evaluated)]
    with _create_folder_atomically(target) as folder:
        facts = _copy_and_check_model(
            root, source, folder, files, "tasks.offline.policies.export" if acts else "tasks.export"
        )
        if facts["kind"] in ("policy", "acting") and not evaluated:
            remarks.append(f"the card has no evaluation: {evaluation} has not run on this model")
        if acts and facts["missing"]:
            remarks.append(
                f"ONNX is left out: {', '.join(facts['missing'])} are not installed (pip install "
                f"{' '.join(facts['missing'])})"
            )
        numbers = {file.stem: json.loads((root / file).read_text()) for file in files}
        if acts:  # a number for each variant
            variant = next(iter(source.relative_to(link.path).parts), "")
            numbers = {name: by_variant.get(variant, {}) for name, by_variant in numbers.items()}
        card = Card(
            name=target.name,
            stage=link.stage,
            link=link,
            facts=facts,
            made=list(_iterate_lineage_outputs(root, link)),
            metrics=numbers[link.stage],
            evaluation=numbers.get(evaluation),
            evaluated_with=stage_outputs.load_recorded_params(root, evaluation),
            out_of_date=reason,
        )
        render_card = policy_card.render_policy_card if acts else model_card.render_model_card
        (folder / "README.md").write_text(render_card(card))
    return remarks


def _is_offline_policy(folder: Path) -> bool:
    """Whether a checkpoint is an offline policy, by its config.json; whoever loads it says what else may be wrong."""
    try:
        return "spaces" in json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, TypeError):
        return False


def _find_returns_stage(root: Path, link: Link) -> str:
    """The stage that measures an offline stage's policies."""
    reads = (
        name
        for name, entry in read_lock_entries(root).items()
        if name.startswith("returns@") and link.path in get_entry_hashes(entry, "deps")
    )
    return next(reads, "returns")


def _is_evaluation_current(root: Path, evaluation: str, link: Link) -> bool:
    """Whether an evaluation has run on this very model, and its result is as it was recorded."""
    entry = read_lock_entries(root).get(evaluation, {})
    return (
        bool(entry)
        and get_entry_hashes(entry, "deps").get(link.path) == link.hash
        and not stage_outputs.list_altered_outputs(root, evaluation)
    )


def _collect_pipeline_paths(root: Path) -> set[str]:
    """What stages have read or made, where another file would be a change."""
    return {
        path
        for entry in read_lock_entries(root).values()
        for kind in ("deps", "outs")
        for path in get_entry_hashes(entry, kind)
    }


def _copy_and_check_model(root: Path, source: Path, folder: Path, files: list[Path], module: str) -> dict[str, Any]:
    """Have a child, which may import torch, copy and try the model; returns what it says of it."""
    command = [sys.executable, "-m", module, str(source), str(folder)]
    done = subprocess.run(
        [*command, "--explain", *map(str, files)], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PlanError((done.stderr.strip().splitlines() or [f"{source}: cannot be exported"])[-1])
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def _iterate_lineage_outputs(root: Path, link: Link) -> Iterator[Made]:
    """Every output that the model was made from, each after those that it was made from itself, the model last."""
    entries = read_lock_entries(root)
    described = parse_yaml_text(read_text(root / "dvc.yaml"), "dvc.yaml")["stages"]
    seen: set[tuple[str, str]] = set()

    def walk(link: Link) -> Iterator[Made]:
        if (link.path, link.hash) in seen:
            return
        seen.add((link.path, link.hash))
        for below in link.inputs:
            yield from walk(below)
        params: Mapping[str, Any] = link.params
        if link.stage and get_entry_hashes(entries.get(link.stage, {}), "outs").get(link.path) == link.hash:
            params = stage_outputs.load_recorded_params(root, link.stage)  # with their types; those in MLflow are texts
        stage = described.get((link.stage or "").partition("@")[0], {})
        yield Made(link, str(stage.get("do", stage).get("desc", "")), params)

    return walk(link)


@contextmanager
def _create_folder_atomically(target: Path) -> Iterator[Path]:
    """A folder beside `target` that takes its place at the end, and is gone after an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield folder
        mask = os.umask(0)
        os.umask(mask)
        folder.chmod(0o777 & ~mask)
        folder.replace(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
