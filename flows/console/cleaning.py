"""`posttrain clean` in the terminal: what takes space, what would be removed, what was removed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.lineage.cleaning.removal import Chosen, CleaningRequest
from flows.lineage.cleaning.survey import KEEPERS, Survey

UNKNOWN = "(no run on record)"
WORDS = {"now": "now", "tag": "tags", "branch": "branches", "commit": "older commits", "index": "git's index"}
WORDS |= {"experiment": "experiments", "model": "models", "run": "last runs", "": "nothing"}


def compute_stage_usage(survey: Survey) -> list[dict[str, Any]]:
    """For each stage what its outs take: bytes, objects, the youngest and oldest age in days, and bytes by what keeps
    them first.
    """
    of_stage: dict[str, list[str]] = {}
    for md5 in survey.objects:
        names = sorted(survey.stages.get(md5, ())) or [UNKNOWN]
        of_stage.setdefault(names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more", []).append(md5)
    stage_rows = []
    for stage, members in of_stage.items():
        kept: dict[str, int] = {}
        for md5 in members:
            by = next((kind for kind in KEEPERS if kind in survey.keepers.get(md5, ())), "")
            kept[by] = kept.get(by, 0) + survey.objects[md5].size
        ages = [survey.age(md5) / 86400 for md5 in members]
        size = sum(survey.objects[md5].size for md5 in members)
        row = {"stage": stage, "bytes": size, "objects": len(members), "days": [min(ages), max(ages)], "kept_by": kept}
        stage_rows.append(row)
    return sorted(stage_rows, key=lambda row: -int(row["bytes"]))


def print_cleaning_plan(console: Console, survey: Survey, options: CleaningRequest, chosen: Chosen) -> None:
    """Print what takes space, and what would be removed."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("stage", "size", "files", "age in days", "kept by"):
        table.add_column(heading, justify="right" if heading in ("size", "files") else "left", overflow="fold")
    for row in compute_stage_usage(survey):
        young, old = row["days"]
        ages = f"{young:.0f}" if round(young) == round(old) else f"{young:.0f} to {old:.0f}"
        table.add_row(
            row["stage"], format_bytes(row["bytes"]), f"{row['objects']:,}", ages, _format_keepers(row["kept_by"])
        )
    total = sum(file.size for file in survey.objects.values())
    console.print(f"DVC's cache, {format_bytes(total)} in {len(survey.objects):,} files:", markup=False)
    if survey.objects:
        console.print(table, markup=False)
    for line in _format_storage_lines(survey, options):
        console.print(line, markup=False)
    console.print(_format_removal_summary(chosen, "would be removed"), markup=False)


def format_bytes(count: int) -> str:
    """Bytes as a person reads them."""
    return (
        f"{count / 1e9:,.1f} GB"
        if count >= 1e9
        else f"{count / 1e6:,.1f} MB"
        if count >= 1e5
        else f"{count / 1e3:,.1f} kB"
    )


def format_completed_removal(removed: Chosen) -> str:
    """What was removed."""
    return _format_removal_summary(removed, "removed")


def build_cleaning_document(survey: Survey, chosen: Chosen, removed: Chosen | None) -> Mapping[str, Any]:
    """All of it as plain data."""
    return {
        "cache": str(survey.cache.objects),
        "shared": survey.cache.shared,
        "stages": compute_stage_usage(survey),
        "checkpoints": {file.path: file.size for file in survey.checkpoints},
        "artifacts": sum(file.size for file in survey.artifacts),
        "others": survey.others,
        "would_remove": {
            "objects": [file.md5 for file in chosen.objects],
            "files": [file.path for file in chosen.files],
        },
        "frees": chosen.frees,
        "removed": None if removed is None else len(removed),
    }


def _format_keepers(by: Mapping[str, int]) -> str:
    return ", ".join(f"{WORDS[kind]} {format_bytes(by[kind])}" for kind in (*KEEPERS, "") if kind in by)


def _format_storage_lines(survey: Survey, options: CleaningRequest) -> Iterator[str]:
    old = [file for file in survey.artifacts if not file.kept]
    if survey.artifacts:
        more = f", {_format_total_size(old)} of them of runs that nothing keeps" if old else ""
        hint = "" if options.artifacts or not old else "; --artifacts removes those"
        yield f"files of runs in MLflow: {_format_file_total(survey.artifacts)}{more}{hint}"
    if survey.checkpoints:
        hint = "" if options.checkpoints else "; --checkpoints removes them"
        yield f"checkpoints of stopped stages: {_format_file_total(survey.checkpoints)}{hint}"
    stay = ", ".join(f"{name} {format_bytes(count)}" for name, count in survey.others.items() if count)
    if stay:
        yield f"stays in any case: {stay}"
    if survey.cache.shared:
        why = (
            "what other clones alone need goes too"
            if options.shared_cache
            else "--shared-cache removes from it all the same"
        )
        yield f"the cache {survey.cache.objects} is not in this repository, and others may use it: {why}"
    if survey.cache.remotes:
        yield (
            f"nothing is removed from the remote {', '.join(survey.cache.remotes)}; what was not pushed there is "
            "gone for good"
        )


def _format_file_total(files: Sequence[Any]) -> str:
    return f"{_format_total_size(files)} in {len(files):,} file{'s' * (len(files) != 1)}"


def _format_total_size(files: Iterable[Any]) -> str:
    return format_bytes(sum(file.size for file in files))


def _format_removal_summary(chosen: Chosen, what: str) -> str:
    linked = sum(not file.frees and file.size > 0 for file in chosen.objects)
    note = f"; {linked:,} of them have other names on the disk, and free nothing" if linked else ""
    if not chosen:
        return f"nothing {'to remove' if what != 'removed' else 'was removed'}"
    return f"{what}: {len(chosen):,} file{'s' * (len(chosen) != 1)}, which frees {format_bytes(chosen.frees)}{note}"
