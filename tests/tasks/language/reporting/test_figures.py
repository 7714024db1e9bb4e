"""What the report's figures show, and what a reader is told of them."""

import re

import numpy as np
import pandas as pd

from tasks.common import plots
from tasks.common.estimates import Estimate
from tasks.language.reporting import figures
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.scoreboard import Results

HALF = {"strict_greedy": Estimate(0.5, 0.4, 0.6), "gold_greedy": Estimate(0.3, 0.2, 0.4)}
CURVE = pd.DataFrame(
    {
        "step": range(1, 21),
        "reward": np.linspace(0, 1, 20),
        "eval_accuracy": np.repeat([0.1, 0.2, 0.3, 0.4], 5),
        "grad_variance/none": np.repeat([4.0, 3.0, 2.0, 1.0], 5),
        "grad_variance/critic": np.repeat([3.0, 2.0, 1.0, 0.5], 5),
    }
)


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_the_first_figure_shows_differences_of_methods_and_controls():
    change = {name: Difference(Estimate(0.072, 0.01, 0.13), None, 0.02) for name in HALF}
    names = ("pretrained", "sft", "more", "dpo")
    results = Results(
        dict.fromkeys(names, HALF), "sft", {}, dict.fromkeys(("pretrained", "more", "dpo"), change), ("more",)
    )
    [drawn] = figures.render_change_overview(results).values()
    found = texts(drawn)
    assert {"more, control", "dpo", "difference to sft, points", "right answers", "gold answers", "+7.2"} <= {*found}
    assert "pretrained" not in found, "it did not start from the baseline"
    assert not figures.render_change_overview(Results({"sft": HALF}, "sft", {}, {}))


def test_copies_of_a_measurement_are_drawn_once(monkeypatch):
    """Of 20 steps the gradient's variance and the validation problems are measured at four: four dots, and no running
    mean over copies.
    """
    drawn, curve = [], plots._draw_curve

    def draw(axis, steps, values, colour, label, dots=False):
        drawn.append((steps.tolist(), values.tolist(), dots))
        curve(axis, steps, values, colour, label, dots)

    monkeypatch.setattr(plots, "_draw_curve", draw)
    plots.render_metric_curves(CURVE, "curves")
    figures.render_learning_panels({"grpo": CURVE})
    assert [(len(values), dots) for _, values, dots in drawn] == [
        *[(20, False), (4, True), (4, True), (4, True)],  # all curves: reward, accuracy, the two variances
        *[(20, False), (4, True)],  # those that are unfolded
    ]
    assert drawn[2] == ([1, 6, 11, 16], [4.0, 3.0, 2.0, 1.0], True)


def test_each_curve_says_how_it_was_sampled():
    found = figures.format_learning_captions({"grpo": CURVE}, {"grpo": 0.7})
    assert found.keys() == figures.render_learning_panels({"grpo": CURVE}).keys()
    assert all("at temperature 0.7" in caption for caption in found.values())
    unknown = figures.format_learning_captions({"grpo": CURVE}, {})
    assert not [caption for caption in unknown.values() if "temperature" in caption or "{" in caption]
    assert len({*found.values()}) == len(found)
