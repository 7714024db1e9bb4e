"""What would make a stage fit: changes are tried one after another, each with the sum that it leads to.

Those come first that change memory and time alone; then those that change what is computed or learned. Where no single
one is enough they are added up in the same order, and those are left out again that are not needed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tasks.memory import terms
from tasks.memory.workloads import PAIRWISE, TRAINED_BY_REWARD, Shard, Workload

FULL = 0.9  # share of a device that may be planned for; the rest is for its driver, and for pieces that fit nothing
RANK = 16
DEVICES = (2, 4, 8)
LENGTHS = {"pretrained": "context", "sft": "max_length", "reward_model": "max_length", "dpo": "max_length"}


class Change(NamedTuple):
    """A stage after changes, and how to make them: values of params.yaml, and devices."""

    settings: tuple[str, ...]
    work: Workload
    devices: str = ""


Kind = Callable[[Workload], Iterator[Change]]


def fits_in_memory(total: int, memory: int) -> bool:
    """Whether a sum can be planned for on a device of so many bytes."""
    return total <= FULL * memory


def find_fitting_change(work: Workload, memory: int, base: int = 0) -> tuple[Change, int] | None:
    """The first change, or else the first sum of changes, that fits, with its bytes; None where nothing here is
    enough.
    """

    def total(change: Change) -> int:
        return terms.compute_peak_memory(terms.list_memory_terms(change.work, base))[0]

    def enough(change: Change) -> bool:
        return fits_in_memory(total(change), memory)

    for kind in KINDS:
        for change in kind(work):
            if enough(change):
                return change, total(change)
    strengths: dict[Kind, int] = {}
    for kind in KINDS:
        before = _apply_changes(work, strengths)
        with_this = {**strengths, kind: len([*kind(before.work)]) - 1}
        if with_this[kind] >= 0 and total(_apply_changes(work, with_this)) < total(before):
            strengths = with_this
        if enough(_apply_changes(work, strengths)):
            weakest = _minimize_changes(strengths, lambda tried: enough(_apply_changes(work, tried)))
            return _apply_changes(work, weakest), total(_apply_changes(work, weakest))
    return None


def _apply_changes(work: Workload, strengths: Mapping[Kind, int]) -> Change:
    """The changes of these kinds, each in this of its strengths, one behind the other."""
    made = Change((), work)
    for kind, strength in strengths.items():
        options = [*kind(made.work)]
        if options:
            added = options[min(strength, len(options) - 1)]
            made = Change((*made.settings, *added.settings), added.work, added.devices or made.devices)
    return made


def _minimize_changes(strengths: Mapping[Kind, int], enough: Callable[[Mapping[Kind, int]], bool]) -> dict[Kind, int]:
    """The same without what is not needed: those that change most are left out, or made weaker, first."""
    kept = dict(strengths)
    for kind in reversed(KINDS):
        if kind not in kept:
            continue
        without = {other: strength for other, strength in kept.items() if other is not kind}
        if enough(without):
            kept = without
        else:
            kept[kind] = next(strength for strength in range(kept[kind] + 1) if enough({**kept, kind: strength}))
    return kept


def _propose_smaller_passes(work: Workload) -> Iterator[Change]:
    """More parts of the batch, up to single sequences, or single prompts with all answers that are compared."""
    least = work.samples if work.stage in PAIRWISE else 1
    rows = work.rows
    stage = work.stage
    while work.trained and rows > least:
        rows = max(least, rows // 2)
        if stage in TRAINED_BY_REWARD:
            yield Change((f"{stage}.micro_batch={rows}",), replace(work, micro_batch=rows))
        else:
            parts = -(-work.batch // (work.devices * rows))
            changed = replace(work, accumulate=parts, micro_batch=None)
            yield Change((f"{stage}.training.accumulate={parts}",), changed)


def _propose_fewer_sampled_prompts(work: Workload) -> Iterator[Change]:
    """Fewer prompts that are answered side by side, in stages that only sample."""
    prompts = work.batch // work.samples
    while not work.trained and prompts > 1:
        prompts //= 2
        changed = replace(work, batch=prompts * work.samples, sampled=prompts * work.samples)
        yield Change((f"{work.stage}.batch_size={prompts}",), changed)


def _propose_checkpointing(work: Workload) -> Iterator[Change]:
    if work.trained and not work.checkpointing:
        setting = f"{work.stage}.training.gradient_checkpointing=true"
        yield Change((setting,), replace(work, checkpointing=True))


def _propose_mixed_precision(work: Workload) -> Iterator[Change]:
    if work.trained and work.precision == "fp32":
        yield Change((f"{work.stage}.training.precision=bf16",), replace(work, precision="bf16"))


def _propose_pure_bf16(work: Workload) -> Iterator[Change]:
    if work.trained and work.precision in ("fp32", "bf16"):
        yield Change((f"{work.stage}.training.precision=pure_bf16",), replace(work, precision="pure_bf16"))


def _propose_lora(work: Workload) -> Iterator[Change]:
    if work.trained and not work.rank and work.stage != "pretrained":
        dropout = "dropout: 0.0, " if work.stage in ("sft", "rejection_sft", "reward_model") else ""
        adapter = f"{{rank: {RANK}, alpha: {2 * RANK}, {dropout}targets: all-linear, merge: true}}"
        yield Change((f"{work.stage}.lora={adapter}",), replace(work, rank=RANK))


def _propose_shorter_sequences(work: Workload) -> Iterator[Change]:
    """Half the length, and a quarter of it: of whole sequences, or of the answers that are sampled."""
    for share in (2, 4):
        prompt = work.prompt
        answer = max(1, work.answer // share)
        if work.stage in LENGTHS:
            prompt //= share
        value = prompt + answer if work.stage in LENGTHS else answer
        setting = f"{work.stage}.{LENGTHS.get(work.stage, 'max_new_tokens')}={value}"
        yield Change((setting,), replace(work, prompt=prompt, answer=answer))


def _propose_more_devices(work: Workload) -> Iterator[Change]:
    """They divide the batch; then the optimizer's moments as well; then the whole model."""
    possible: tuple[Shard, ...] = ("", "optimizer", "model") if not work.rank else ("", "optimizer")
    for shard in possible[possible.index(work.shard) :] if work.trained else possible[:1]:
        for devices in DEVICES:
            if devices > work.devices:
                note = f"on {devices} devices{f' that divide the {shard} (shard: {shard})' if shard else ''}"
                yield Change((), replace(work, devices=devices, shard=shard), note)


KINDS: tuple[Kind, ...] = (
    _propose_smaller_passes,
    _propose_fewer_sampled_prompts,
    _propose_checkpointing,
    _propose_mixed_precision,
    _propose_lora,
    _propose_shorter_sequences,
    _propose_more_devices,
    _propose_pure_bf16,
)
