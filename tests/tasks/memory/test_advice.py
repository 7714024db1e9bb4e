"""What would make a stage fit: real keys, the first that is enough, and no more than is needed."""

from dataclasses import replace

import pytest

from flows.params import editing
from tasks.memory import advice, shapes, terms
from tasks.memory.workloads import STAGES, MemoryOptions, build_workload
from tests.conftest import PARAMS, SECTIONS

GIVEN = {name: SECTIONS[name].model_validate(PARAMS[name]) for name in (*STAGES, "tokenizer", "preferences")}
MODEL = shapes.estimate_shape_from_size("0.5B")


def work(stage, **options):
    return build_workload(stage, MODEL, GIVEN, MemoryOptions(**options))


def total(stage_work):
    return terms.compute_peak_memory(terms.list_memory_terms(stage_work))[0]


@pytest.mark.parametrize("stage", STAGES)
def test_each_setting_is_one_that_the_section_takes(stage):
    """Every value that advice may name is accepted by the section's own class, as `--set` gives it."""
    asked = work(stage)
    for kind in advice.KINDS:
        for change in kind(asked):
            assert change.settings or change.devices
            for setting in change.settings:
                edit = editing.parse_setting(setting)
                section, *keys = edit.key
                assert section == stage
                values = dict(PARAMS[stage])
                inner = values
                for key in keys[:-1]:
                    inner[key] = dict(inner[key])
                    inner = inner[key]
                assert keys[-1] in inner
                inner[keys[-1]] = edit.value
                SECTIONS[stage].model_validate(values)


@pytest.mark.parametrize("stage", STAGES)
def test_a_setting_does_what_was_counted(stage):
    """The section with the setting in it is planned to the same sum."""
    asked = work(stage)
    for kind in advice.KINDS:
        for change in kind(asked):
            if not change.settings or change.settings[0].startswith(f"{stage}.max_length"):
                continue
            values = {**PARAMS, stage: dict(PARAMS[stage])}
            for setting in change.settings:
                edit = editing.parse_setting(setting)
                inner = values[stage]
                for key in edit.key[1:-1]:
                    inner[key] = dict(inner[key])
                    inner = inner[key]
                inner[edit.key[-1]] = edit.value
            given = {**GIVEN, stage: SECTIONS[stage].model_validate(values[stage])}
            planned = build_workload(stage, MODEL, given, MemoryOptions())
            same = replace(planned, prompt=change.work.prompt)  # which is assumed from the answer's length
            assert total(same) == total(change.work), change.settings


def test_the_first_that_is_enough_comes_first():
    """Smaller passes change memory alone, and so come before an adapter."""
    asked = work("sft", sequence=256)
    half = replace(asked, accumulate=2)
    change, needed = advice.find_fitting_change(asked, int(total(half) / advice.FULL) + 1)
    assert (change.settings, needed) == (("sft.training.accumulate=2",), total(half))
    assert needed == total(change.work)


def test_changes_are_added_up_until_they_are_enough():
    asked = work("sft", sequence=1024)
    small = 5 * 10**9
    change, needed = advice.find_fitting_change(asked, small)
    assert advice.fits_in_memory(needed, small)
    assert needed == total(change.work)
    assert len(change.settings) > 1
    assert sum(setting.startswith("sft.training.accumulate") for setting in change.settings) == 1
    without = replace(change.work, rank=0) if change.work.rank else replace(change.work, checkpointing=False)
    assert not advice.fits_in_memory(total(without), small), "none of them is there for nothing"


def test_nothing_makes_a_model_fit_that_is_too_large():
    huge = build_workload("sft", shapes.estimate_shape_from_size("400B"), GIVEN, MemoryOptions())
    assert advice.find_fitting_change(huge, 10**9) is None


def test_rejection_sft_trains_on_its_batch_size_and_samples_for_its_prompts():
    section = GIVEN["rejection_sft"]
    assert section.batch_size != section.prompts_per_batch
    work = build_workload("rejection_sft", MODEL, GIVEN, MemoryOptions())
    assert (work.batch, work.sampled) == (section.batch_size, section.prompts_per_batch * section.samples)
    assert build_workload("rejection_sft", MODEL, GIVEN, MemoryOptions(batch=3)).batch == 3
