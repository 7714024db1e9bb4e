"""The offline report where the same variants were measured on several data sets."""

import re

import numpy as np
import pytest

from tasks.offline import offline_report
from tasks.offline.configs.offline_report import OfflineReportConfig
from tasks.offline.offline_report import run
from tasks.offline.reporting import aggregates
from tests.tasks.offline import test_offline_report as one

POLICIES = {
    "bc-lander": ("bc", "LunarLander-v3-medium", {"BC": (60.0, 5.0), "10%BC": (95.0, 30.0)}, []),
    "bc-hopper": ("bc", "Hopper-v5-medium-expert", {"BC": (1300.0, 300.0), "10%BC": (3100.0, 40.0)}, []),
}


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(one, "POLICIES", POLICIES)
    monkeypatch.setattr(aggregates, "RESAMPLES", 200)
    for panels in ("_build_learning_curve_panels", "_build_fitted_q_panels"):  # of each data set by itself
        monkeypatch.setattr(offline_report, panels, lambda *_: [])
    for name in POLICIES:
        one.measure(np.random.default_rng(0), name, tmp_path / "returns" / name)
    policies = {name: {"method": method, "dataset": data} for name, (method, data, *_) in POLICIES.items()}
    config = OfflineReportConfig(policies=policies, selected={}, best_by="score", expectations=[])
    run(config, tmp_path / "returns", tmp_path / "out")
    return tmp_path / "out"


def test_they_are_put_together_in_both_pages(out):
    html, markdown = ((out / f"offline_report.{kind}").read_text() for kind in ("html", "md"))
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "LunarLander-v3-medium, Hopper-v5-medium-expert together" in text
    assert one.Page(html).open == []
    [row] = re.findall(r"^\| 10%BC \| .*\(.* to .*\) \| .* \| (\S+) \((\S+) to (\S+)\) \|$", markdown, re.MULTILINE)
    assert row[0] == "0.97", "one pair of nine is as good on the one, all are better on the other: (8.5 / 9 + 1) / 2"
    assert re.search(r"^\| BC \| .* \|  \|$", markdown, re.MULTILINE), "none beside itself"
    assert "![share of runs above each score]" in markdown
    assert (out / "profiles.svg").is_file()
