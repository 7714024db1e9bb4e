"""What a report's page says of its run above the fold: put at its markers, and taken off again by an audit."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import PlannedStage, StageResult
from flows.web import run_head
from flows.web.run_head import (
    compute_core_seconds,
    extract_params_sections,
    format_gain_spread,
    format_run_title,
    hash_params_without_seeds,
    insert_marker_texts,
    remove_marker_texts,
    render_cost_table,
    render_paragraphs,
)

PAGE = "<h1>x</h1>\n<!-- posttrain:title -->\nsentence\n<!-- posttrain:draws -->\n<!-- posttrain:costs -->\nend"
PARAMS = {
    "sft": {"seed": 0, "epochs": 2, "parts": [{"seed": 3, "x": 1}]},
    "grpo": {"seed": 0, "steps": 44},
    "report": {"seed": 0, "policies": ["pretrained", "sft", "more", "grpo"], "baseline": "sft", "controls": ["more"]},
}


@given(st.dictionaries(st.sampled_from(["title", "draws", "costs", "other"]), st.text(alphabet="ab<&\n", max_size=9)))
def test_what_is_filled_can_be_taken_off(texts):
    filled = insert_marker_texts(PAGE, texts)
    assert remove_marker_texts(filled) == PAGE
    assert all(text in filled for name, text in texts.items() if name != "other")


def test_a_paragraph_is_text_and_not_markup():
    assert render_paragraphs({"title": "a <b> & c", "draws": ""}, "html") == {
        "title": '<p class="note">a &lt;b&gt; &amp; c</p>',
        "draws": "",
    }


@pytest.fixture
def record(monkeypatch):
    """The record of the report's run."""
    from datetime import datetime

    def get(root, run_id):
        if run_id != "r1":
            raise PlanError("no such run")
        tags = {
            "posttrain.git_commit": "0123456789abcdef",
            "posttrain.git_dirty": "params.yaml",
            "posttrain.env.cpu": "EPYC",
        }
        return mlflow_run_lookup.Run("r1", datetime(2026, 3, 4), tags, {})

    monkeypatch.setattr(mlflow_run_lookup, "get_finished_run", get)


def test_the_title_is_of_the_run_that_made_the_report(record):
    params = {"pretrained": {"init": "scratch", "layers": 4, "width": 128}}
    made = [StageResult("sft", "ran", mlflow_run_id="r0"), StageResult("report", "up-to-date", mlflow_run_id="r1")]
    assert format_run_title(Path(), "report", made, params) == (
        "a model of 4 layers of width 128, trained from scratch · commit 0123456789 with changes in params.yaml · "
        "EPYC · 2026-03-04"
    )
    hub = {"pretrained": {"init": "hub", "hub_id": "Qwen/Qwen2.5-0.5B"}}
    assert format_run_title(Path(), "report", made, hub).startswith("Qwen/Qwen2.5-0.5B · commit")
    assert format_run_title(Path(), "report", [StageResult("report", "ran")], params) == "", "no record, no line"


def test_core_seconds_are_a_trainings_own_and_with_all_that_it_needs():
    needs = {"data": (), "pretrained": ("data",), "sft": ("pretrained",), "grpo": ("sft",), "evaluate@sft": ("sft",)}
    needs |= {"evaluate@grpo": ("grpo", "sft"), "control@more": ("sft",), "evaluate@more": ("control@more", "sft")}
    needs |= {"report": ("evaluate@sft", "evaluate@grpo", "evaluate@more")}
    cores = {"pretrained": 2}
    planned = [PlannedStage(name, None, ups, cores.get(name, 1), 0) for name, ups in needs.items()]
    results = [StageResult(name, "ran", mlflow_run_id=f"run-{name}") for name in needs]
    seconds = {f"run-{name}": 10.0 for name in needs}
    assert compute_core_seconds(planned, results, seconds) == [
        *(("sft", 10.0, 40.0), ("grpo", 10.0, 50.0), ("more", 10.0, 50.0))
    ]
    del seconds["run-sft"]
    assert compute_core_seconds(planned, results, seconds) == [], "what is not on record is not added up"


def test_costs_are_a_table_in_both_pages():
    rows = [("sft", 140.4, 1600.0)]
    assert "<tr><th>sft</th><td>140</td><td>1,600</td></tr>" in render_cost_table(rows, "html")
    assert "| sft | 140 | 1,600 |" in render_cost_table(rows, "md")
    assert render_cost_table([], "html") == render_cost_table([], "md") == ""


def test_draws_differ_in_their_seeds_alone():
    other = json.loads(json.dumps(PARAMS).replace('"seed": 0', '"seed": 7').replace('"seed": 3', '"seed": 8'))
    assert hash_params_without_seeds(PARAMS, ["sft", "grpo"]) == hash_params_without_seeds(
        other, ["grpo", "sft", "absent"]
    )
    other["grpo"]["steps"] = 45
    assert hash_params_without_seeds(PARAMS, ["sft", "grpo"]) != hash_params_without_seeds(other, ["sft", "grpo"])


def test_the_spread_over_measured_draws_of_these_params_is_quoted(tmp_path):
    """Against the better control of each draw: +2 points and -4."""
    sections = ["sft", "grpo", "report"]
    measured = {
        "params_hash": hash_params_without_seeds(PARAMS, ["sft", "grpo"]),
        "draws": [
            {
                "draw": seed,
                **{name: {"strict_greedy": value} for name, value in zip(("sft", "more", "grpo"), values, strict=True)},
            }
            for seed, values in enumerate([(0.7, 0.8, 0.82), (0.8, 0.7, 0.76)])
        ],
    }
    file = tmp_path / run_head.DRAWS
    assert format_gain_spread(tmp_path, PARAMS, sections) == ""
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"result": measured}))
    assert format_gain_spread(tmp_path, PARAMS, sections) == (
        "Over 2 measured draws of these params, against the better control: grpo -1.0 points on average "
        "(-4.0 to +2.0, standard deviation 4.2)."
    )
    assert format_gain_spread(tmp_path, {**PARAMS, "grpo": {"steps": 1}}, sections) == "", "other params"


def test_only_the_flows_own_sections_are_shown():
    text = "# a file\nseed: &seed 0  # shared\n\nsft:\n  epochs: 1\n# Offline\nbc:\n  x: 1\n\nreport:\n  - a\n"
    assert (
        extract_params_sections(text, ["sft", "report"])
        == "seed: &seed 0  # shared\n\nsft:\n  epochs: 1\nreport:\n  - a\n"
    )
    assert extract_params_sections('{"sft": {"epochs": 1}}', ["sft"]) == '{"sft": {"epochs": 1}}', "not in block style"
