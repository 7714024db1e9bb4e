"""What `posttrain merge-runs` took from another clone, and what it did not, in a terminal."""

from collections.abc import Iterator, Sequence

from flows.lineage.merging.runs import Merged

SHOWN = 5  # of a run's differences, and of the files that were left out
UNITS = ("bytes", "KB", "MB", "GB")


def lines(merged: Merged, dry_run: bool) -> Iterator[str]:
    """One line for each kind of thing; nothing that was left out goes unsaid."""
    taken, stages = "would take" if dry_run else "took", len(merged.taken) - merged.pipelines
    if merged.taken:
        yield f"{taken} {_many(len(merged.taken), 'run')} from {merged.origin}: {merged.pipelines} of a pipeline, {stages} of stages"
    else:
        yield f"{taken} no run from {merged.origin}"
    if merged.files:
        yield f"{taken} {_many(merged.files, 'file')} of runs, {_size(merged.size)}"
    if merged.experiments:
        yield f"{taken} {_many(len(merged.experiments), 'experiment')} that no run had here: {', '.join(merged.experiments)}"
    if merged.versions:
        models = "; ".join(_versions(merged.versions))
        yield f"{taken} {_many(len(merged.versions), 'version')} of models: {models}"
    if merged.same:
        yield f"{_many(merged.same, 'run')} {_is(merged.same)} here already"
    if merged.running:
        yield f"{_many(len(merged.running), 'run')} {_is(len(merged.running))} still running there, or killed: not taken"
    for run_id, differing in merged.differing.items():
        more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        yield f"{run_id} has another content there, and stays as it is here: {', '.join(differing[:SHOWN])}{more}"
    for name, why in merged.refused.items():
        yield f"{name} was refused: {why}"
    for path in [*merged.left_out][:SHOWN]:
        yield f"{path} was not copied: {merged.left_out[path]}"
    if len(merged.left_out) > SHOWN:
        yield f"{len(merged.left_out) - SHOWN} more files were not copied"
    if merged.unknown:
        yield f"{_many(merged.unknown, 'logged model')} of MLflow: not taken, only runs and registered models are"


def _versions(found: Sequence[tuple[str, int, int]]) -> Iterator[str]:
    """Each model with the numbers of its versions, there and, where that is another one, here."""
    for model in dict.fromkeys(name for name, _, _ in found):
        numbers = [
            f"{there} as {here}" if here != there else str(there) for name, there, here in found if name == model
        ]
        if len(numbers) > SHOWN:
            numbers[SHOWN - 1 : -1] = ["..."]
        yield f"{model} {', '.join(numbers)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count != 1)


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _size(size: float) -> str:
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} {UNITS[-1]}"
