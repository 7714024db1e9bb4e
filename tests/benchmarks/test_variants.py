import json

import pandas as pd
import pytest

from benchmarks import result_files, variants
from flows.params import editing
from tests import repository
from tests.conftest import SECTIONS
from tests.flows.params.conftest import parsed_once  # noqa: F401  # a fixture

NAMES = [variants.GREEDY, *variants.SAMPLED, *variants.OTHERS]


def measures(greedy):
    """Measures of problems that the greedy answer solves or not; every other metric is half of the greedy one."""
    return pd.DataFrame({name: [value if name == NAMES[0] else value / 2 for value in greedy] for name in NAMES})


def test_a_policy_is_compared_with_sft_problem_by_problem():
    """Of eight problems three are gained and one is lost, so two more are solved, however many are unchanged."""
    sft, policy = measures([1.0, 0, 0, 0, 1, 1, 0, 1]), measures([0.0, 1, 1, 1, 1, 1, 0, 1])
    row = variants.compare_to_sft(policy, sft)
    assert (row["gained"], row["lost"]) == (3, 1)
    mean, low, high = row["strict_greedy_over_sft"]
    assert mean == pytest.approx(2 / 8)
    assert low < mean < high
    assert row["strict_mean_at_8_t0.5_over_sft"][0] == pytest.approx(1 / 8)
    assert row["strict_greedy"] == 6 / 8
    assert variants.compare_to_sft(sft, sft)["strict_greedy_over_sft"] == [0, 0, 0]


def test_the_table_has_what_was_measured_and_says_what_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(variants, "RESULTS", tmp_path / "results/variants.json")
    row = variants.compare_to_sft(measures([1.0, 1, 1, 0]), measures([0.0, 1, 0, 0]))
    variants.save_variant_result(1, "IPO", {**row, "cpu_seconds": 12.3}, measures([1.0, 1, 1, 0]))
    variants.save_variant_result(0, "IPO", row, measures([0.0]))
    text = variants.render(result_files.load_result(variants.RESULTS))
    assert result_files.load_single_values(variants.RESULTS)["IPO / 1"]["strict_greedy"] == [1, 1, 1, 0]
    lines = [line for line in text.splitlines() if line.startswith("| IPO")]
    assert [line.split(" | ")[1] for line in lines] == ["0", "1"]
    assert lines[1].startswith("| IPO | 1 | 75.0 % | 37.5 % | 37.5 % | 0.38 | 0.38 | +50.0 [")
    assert lines[1].endswith("| 12 |")
    missing = "; ".join(name for name in variants.VARIANTS if name != "IPO")
    assert text.endswith(f"Not measured yet: {missing}.\n")


def test_what_a_run_has_at_its_defaults_is_read_and_the_rest_is_made(tmp_path, monkeypatch):
    """The run has SFT's evaluation and DPO. IPO, the same stage with other settings, and GRPO are missing and are
    made.
    """
    monkeypatch.setattr(variants, "RESULTS", tmp_path / "variants.json")
    monkeypatch.setattr(variants, "prepare_variants_clone", lambda seed, folder, given: prepared.append(seed))
    given, folder, prepared, called = tmp_path / "given", tmp_path / "clone", [], []

    def write(data, policy, greedy):
        frame = measures(greedy).rename_axis("problem_id").reset_index().melt("problem_id", var_name="metric")
        for place in (data / "evaluate" / policy, data / "metrics"):
            place.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(data / "evaluate" / policy / "measures.parquet")
        (data / "metrics" / f"{policy}.json").write_text(json.dumps({"loss": sum(greedy)}))

    def call(where, stage):
        called.append((stage, (where / "params.yaml").read_text()))
        if "@" not in stage:
            write(where / "data", stage, [1.0, 1, 1, 1])
        return 7.0

    monkeypatch.setattr(variants, "run_stage_command", call)
    write(given, "sft", [1.0, 0, 0, 0])
    write(given, "dpo", [1.0, 1, 0, 0])
    folder.mkdir()
    repository.write_params(folder)
    variants.run_seed(3, folder, str(given), ["DPO", "IPO", "GRPO"])
    assert prepared == [3]
    assert [stage for stage, _ in called] == ["dpo", "evaluate@dpo", "grpo", "evaluate@grpo"]
    assert ["loss: ipo" in params for _, params in called] == [True, True, False, False]
    kept = result_files.load_result(variants.RESULTS)
    assert {name: of["3"]["strict_greedy"] for name, of in kept.items()} == {
        "SFT": 0.25,
        "DPO": 0.5,
        "IPO": 1,
        "GRPO": 1,
    }
    assert {name: of["3"].get("cpu_seconds") for name, of in kept.items()} == {
        "SFT": None,
        "DPO": None,
        "IPO": 7,
        "GRPO": 7,
    }


@pytest.mark.parametrize("name", list(variants.VARIANTS))
def test_every_variant_is_of_valid_parameters_that_do_something(tmp_path, name):
    repository.write_params(tmp_path)
    stage, settings = variants.VARIANTS[name]
    edits = [editing.parse_setting(text) for text in settings]
    said = editing.edit_params(tmp_path, SECTIONS, edits)
    changed = {".".join(edit.key) for edit in edits}
    idle = [line for line in said if "nothing with" in line]
    assert not any(key in line.split(" do")[0].split(", ") for line in idle for key in changed)
    assert all(edit.key[0] == stage for edit in edits)
    assert stage in SECTIONS
