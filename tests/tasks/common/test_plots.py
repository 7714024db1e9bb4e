import re

import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import Estimate
from tasks.common.plots import (
    Panel,
    count_legend_columns,
    render_calibration_plot,
    render_category_intervals,
    render_lines_with_levels,
    render_metric_curves,
    render_scatter_plot,
    render_small_multiples,
)

FRAME = pd.DataFrame(
    {
        "step": range(1, 41),
        "loss": np.linspace(2, 1, 40),
        "logps/chosen": np.linspace(-9, -8, 40),
        "logps/rejected": np.linspace(-9, -12, 40),
    }
)


@pytest.fixture(scope="module")
def drawn():
    """The curves of one training."""
    return render_metric_curves(FRAME, "dpo")


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_chosen_and_rejected_share_a_panel(drawn):
    found = texts(drawn)
    assert [text for text in found if re.match("[a-z]", text)] == ["loss", "logps", "chosen", "rejected"]


def test_equal_numbers_are_equal_bytes_without_a_date(drawn):
    assert drawn == render_metric_curves(FRAME.copy(), "dpo")
    assert drawn != render_metric_curves(FRAME.assign(loss=1.0), "dpo")
    assert not re.search(r"20\d\d-\d\d|<dc:date>|<\?xml", drawn)


def test_ids_carry_the_plots_name_and_every_reference_is_met(drawn):
    one, two = drawn, render_metric_curves(FRAME, "two")
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, two)]
    assert not ids[0] & ids[1]
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', one))
    assert used
    assert used <= ids[0]


def test_scatter_names_every_policy():
    points = {
        name: (Estimate(kl, kl - 1, kl + 1), Estimate(0.5, 0.4, 0.7)) for name, kl in {"sft": 0, "dpo": 300}.items()
    }
    assert {"sft", "dpo", "KL", "reward"} <= set(texts(render_scatter_plot(points, "KL", "reward", "points")))


def test_levels_draw_a_line_with_intervals_a_label_and_the_heights():
    lines = {name: [(0.0, Estimate(0.5, 0.4, 0.6)), (1.0, Estimate(0.3, 0.2, 0.4))] for name in ("sft", "dpo")}
    svg = render_lines_with_levels(lines, {"vote": 0.6}, "temperature", "accuracy", "lines")
    assert {"sft", "dpo", "vote", "temperature", "accuracy"} <= set(texts(svg))
    assert "vote" not in texts(render_lines_with_levels(lines, {}, "temperature", "accuracy", "lines"))


def test_calibration_draws_a_point_a_row():
    frame = pd.DataFrame({"predicted": [0.2, 0.8], "observed": [0.3, 0.7], "pairs": [5.0, 50.0]})
    collection = (
        render_calibration_plot(frame, "calibration")
        .partition('id="calibration-PathCollection_1"')[2]
        .partition("<g id")[0]
    )
    assert collection.count("<path ") == 2


def panel(title, lines, **levels):
    return Panel(title, lines, levels)


def test_several_panels_share_one_legend_and_one_colour_a_label():
    one = panel("one", {"BC": [([1, 2], [3, 4]), ([1, 2], [5, 6])]}, best=7)
    two = panel("two", {"DT": [([1, 2], [3, 4])], "BC": [([1, 2], [0, 1])]}, best=5)
    svg = render_small_multiples([one, two], "steps", "score", "learning")
    found = texts(svg)
    for text in ("one", "two", "BC", "DT", "best"):
        assert found.count(text) == 1
    assert found.count("steps") == 2
    assert len(re.findall(r"stroke: #0072b2", svg, re.I)) == 6  # BC: 2 seeds and a mean, 1 seed and a mean, the legend


def test_seeds_that_share_no_steps_have_no_mean():
    apart = panel("one", {"BC": [([1, 2], [3, 4]), ([1, 2, 3], [5, 6, 7])]})
    assert len(re.findall(r"stroke: #0072b2", render_small_multiples([apart], "steps", "score", "learning"), re.I)) == 3


def test_claims_far_beyond_the_truth_are_drawn_to_another_scale():
    def heights(svg):
        return [
            float(y) for y in re.findall(r'<use xlink:href="[^"]+" x="[^"]+" y="([^"]+)" style="fill: #0072b2', svg)
        ]

    def drawn(*claims):
        truths = [float(place) for place in range(1, len(claims) + 1)]
        return heights(
            render_small_multiples([panel("one", {"Q": [(truths, claims)]})], "x", "y", "beliefs", diagonal=True)
        )

    bottom, middle, top, _ = drawn(1.0, 2.0, 9.0)
    assert (bottom - middle) / (bottom - top) == pytest.approx(1 / 8, abs=0.02)
    bottom, middle, top, _ = drawn(1.0, 2.0, 9000.0)
    assert (bottom - middle) / (bottom - top) > 0.02  # on an even scale it would be 1 of 9,000


def test_categories_stand_in_their_order_from_the_top():
    values = {"significantly": Estimate(0.8, 0.7, 0.9), "slightly": Estimate(0.6, 0.5, 0.7)}
    svg = render_category_intervals(values, "share", "strengths", level=0.5)
    heights = [float(re.search(rf' y="([\d.]+)"[^>]*>{name}</text>', svg)[1]) for name in values]
    assert heights[0] < heights[1]
    assert "share" in texts(svg)


def test_a_legend_is_no_wider_than_its_figure():
    assert count_legend_columns(["BC", "DQN", "CQL"]) == 3
    assert count_legend_columns(["BC"]) == 1
    assert count_legend_columns(["short"] * 20) == 8
    assert count_legend_columns(["a name of twenty-five letters"] * 8) == 3
    assert count_legend_columns(["x" * 200] * 3) == 1
