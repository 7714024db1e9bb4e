import pandas as pd
import pytest

from benchmarks import process_supervision, result_files, variants

NAMES = [variants.GREEDY, *variants.SAMPLED, *variants.OTHERS]


def measures(right):
    return pd.DataFrame({name: [float(value) for value in right] for name in NAMES})


def test_steps_are_compared_with_right_answers_alone_and_both_with_sft(tmp_path, monkeypatch):
    monkeypatch.setattr(process_supervision, "RESULTS", tmp_path / "results.json")
    alone, steps = (measures([1, 1, 0, 0]), 9.6), (measures([1, 1, 1, 0]), 12.2)
    found = {process_supervision.CONTROL: alone, process_supervision.BY_STEPS: steps}
    process_supervision.save_seed_results(2, found, measures([1, 0, 0, 0]))
    results = result_files.load_result(process_supervision.RESULTS)
    row = results[process_supervision.BY_STEPS]["2"]
    assert result_files.load_single_values(process_supervision.RESULTS)["SFT / 2"]["strict_greedy"] == [1, 0, 0, 0]
    assert row["strict_greedy_over_sft"][0] == pytest.approx(0.5)
    assert row["strict_greedy_over_control"][0] == pytest.approx(0.25)
    lines = process_supervision.render(results).splitlines()[-3:]
    assert [line.split(" | ")[:3] for line in lines] == [
        ["| nothing (SFT)", "2", "25.0 %"],
        ["| right answers", "2", "50.0 %"],
        ["| right answers and steps", "2", "75.0 %"],
    ]
    assert lines[2].endswith("| 12 |")


def test_the_preset_s_settings_are_the_stage_s():
    assert 'grpo.supervision="process"' in process_supervision.list_preset_settings("grpo")
    assert 'reward_model.objective="process"' in process_supervision.list_preset_settings("solutions", "reward_model")
