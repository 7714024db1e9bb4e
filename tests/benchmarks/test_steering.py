"""The benchmark of steering: settings, means over seeds and the page, from results made up here."""

import pytest

from benchmarks import result_files, steering_picture, steering_results
from tasks.language.configs.reinforce import ReinforceConfig


def cell(value, **more):
    return {**{name: [value, value - 0.1, value + 0.1] for name in steering_results.COLUMNS}, **more}


def test_the_settings_are_the_preset_s_with_the_seed():
    pytest.importorskip("tasks.extensions.reviews")
    from benchmarks import steering

    config = steering.build_stage_config(ReinforceConfig, "reinforce", 2, kl_coefficient=0.0)
    assert (config.seed, config.reward, config.baseline, config.kl_coefficient) == (
        2,
        {"outcome": 1.0},
        "running_mean",
        0.0,
    )
    assert steering.build_stage_config(ReinforceConfig, "reinforce", 0).kl_coefficient > 0


def test_a_mean_over_seeds_by_hand():
    """Deviations -0.1, 0 and 0.1: a standard deviation of 0.1, and Student's quantile of two degrees of freedom."""
    found = steering_results.estimate_mean_over_seeds([0.4, 0.5, 0.6])
    half = 4.30265 * 0.1 / 3**0.5
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    assert steering_results.estimate_mean_over_seeds([0.4]).low == 0.4


def test_a_cell_is_kept_at_once_and_the_page_has_every_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(steering_results, "RESULTS", tmp_path / "results.json")
    assert steering_results.load_steering_results() == {}
    steering_results.save_steering_cell("SFT", 0, cell(0.5))
    steering_results.save_steering_cell(
        "PPO, no KL", 0, cell(0.8, commonest_sentence="It was superb.", cpu_seconds=12.4)
    )
    steering_results.save_steering_cell("PPO, no KL", 1, cell(0.9))
    results = result_files.load_result(steering_results.RESULTS)
    assert [*results["PPO, no KL"]] == ["0", "1"]
    lines = steering_results.render(results).splitlines()
    [over] = [line for line in lines if line.startswith("| PPO, no KL | 2 |")]
    assert over.startswith("| PPO, no KL | 2 | 85.0 % [")
    [first] = [line for line in lines if line.startswith("| PPO, no KL | 0 |")]
    assert first.startswith("| PPO, no KL | 0 | 80.0 % [70.0, 90.0] |")
    assert first.endswith("| It was superb. | 12 |")


def test_the_picture_is_drawn_of_what_there_is(tmp_path):
    results = {"SFT": {"0": cell(0.5)}, "GRPO, no KL": {"0": cell(0.9), "1": cell(0.8)}}
    steering_picture.save_steering_picture(results, tmp_path / "one.png")
    steering_picture.save_steering_picture({"SFT": results["SFT"]}, tmp_path / "other.png")
    one, other = ((tmp_path / name).read_bytes() for name in ("one.png", "other.png"))
    assert one.startswith(b"\x89PNG")
    assert one != other
