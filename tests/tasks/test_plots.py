import re

import numpy as np
import pandas as pd

from tasks.algorithms.estimates import Estimate
from tasks.plots import calibration, curves, scatter

FRAME = pd.DataFrame(
    {
        "step": range(1, 41),
        "loss": np.linspace(2, 1, 40),
        "logps/chosen": np.linspace(-9, -8, 40),
        "logps/rejected": np.linspace(-9, -12, 40),
    }
)


def texts(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_chosen_and_rejected_share_a_panel():
    found = texts(curves(FRAME, "dpo"))
    assert [text for text in found if re.match("[a-z]", text)] == ["loss", "logps", "chosen", "rejected"]


def test_equal_numbers_are_equal_bytes_without_a_date():
    assert curves(FRAME, "dpo") == curves(FRAME.copy(), "dpo")
    assert curves(FRAME, "dpo") != curves(FRAME.assign(loss=1.0), "dpo")
    assert not re.search(r"20\d\d-\d\d|<dc:date>|<\?xml", curves(FRAME, "dpo"))


def test_ids_carry_the_plots_name_and_every_reference_is_met():
    one, two = curves(FRAME, "one"), curves(FRAME, "two")
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (one, two)]
    assert not ids[0] & ids[1]
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', one))
    assert used
    assert used <= ids[0]


def test_scatter_names_every_policy():
    points = {
        name: (Estimate(kl, kl - 1, kl + 1), Estimate(0.5, 0.4, 0.7)) for name, kl in {"sft": 0, "dpo": 300}.items()
    }
    assert {"sft", "dpo", "KL", "reward"} <= set(texts(scatter(points, "KL", "reward", "points")))


def test_calibration_draws_a_point_a_row():
    frame = pd.DataFrame({"predicted": [0.2, 0.8], "observed": [0.3, 0.7], "pairs": [5.0, 50.0]})
    collection = (
        calibration(frame, "calibration").partition('id="calibration-PathCollection_1"')[2].partition("<g id")[0]
    )
    assert collection.count("<path ") == 2
