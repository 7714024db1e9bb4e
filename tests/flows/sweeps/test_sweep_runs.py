"""The runs of a sweep's points are known again, however many other runs have followed."""

import hashlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from flows.lineage import history
from flows.lineage.history import PipelineRun
from flows.params.files import PARAMS
from flows.sweeps import sweep_runs

TEXTS = {"dpo.beta=0.1": "dpo: {beta: 0.1}\n", "dpo.beta=0.2": "dpo: {beta: 0.2}\n"}


AT = datetime(2026, 11, 1)
PLAIN = PipelineRun("run", "dpo ran", "language", "FINISHED", AT, AT, {}, {}, "", "none", "no", {}, {}, {})


def point(number: int, name: str, sweep: str = "sweep") -> PipelineRun:
    pages = {PARAMS: hashlib.sha256(TEXTS[name].encode()).hexdigest()}
    return replace(PLAIN, id=f"{sweep}-{number}", sweep=sweep, point=name, number=str(number), pages=pages)


@pytest.mark.parametrize("later", [0, 1, 2, 40])
def test_a_sweep_is_known_again_after_other_runs(later: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = [point(number, name) for number, name in enumerate(TEXTS, 1)]
    older = [point(number, name, "older") for number, name in enumerate(TEXTS, 1)]
    runs = [*[PLAIN] * later, *reversed(sweep), *older]
    monkeypatch.setattr(history, "load_pipeline_runs", lambda root, limit, flow=None, clone_only=False: runs[:limit])
    names, texts = [*TEXTS], [*TEXTS.values()]
    assert sweep_runs.find_same_sweep_runs(Path(), names, texts) == {1: "sweep-1", 2: "sweep-2"}
    assert sweep_runs.find_same_sweep_runs(Path(), names[:1], texts[:1]) is None
    assert sweep_runs.find_same_sweep_runs(Path(), names, [texts[0], "dpo: {beta: 0.3}\n"]) is None
    assert sweep_runs.find_same_sweep_runs(Path(), names, texts, "accuracy") is None
