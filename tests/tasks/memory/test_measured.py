"""The peak of SFT's and GRPO's loops on a CPU, as the kernel counted it, against the arithmetic.

The formulas follow from the shapes. Only the share of the heap's holes was measured, on a shape that is not among these
(docs/scaling/memory.md), and the memory of interpreter and libraries is measured in the same process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.memory import terms
from tasks.memory.shapes import Shape
from tests.tasks.memory.saved import workload

ROOT = Path(__file__).parents[3]
TEN = {"width": 320, "layers": 7, "heads": 5, "key_heads": 5, "inner": 853, "vocabulary": 6000}  # 10.6 million weights
FIFTY = {"width": 512, "layers": 12, "heads": 8, "key_heads": 8, "inner": 2048, "vocabulary": 8000}  # 54.4 million
GROUPED = {"width": 640, "layers": 12, "heads": 10, "key_heads": 2, "inner": 1728, "vocabulary": 6000}  # 55.5 million
CASES = [
    pytest.param(stage, model, case, id=f"{stage}-{name}")
    for stage, name, model, case in (
        ("sft", "10M", TEN, (16, 128, 1)),
        ("sft", "10M in parts", TEN, (16, 128, 4)),
        ("sft", "50M", FIFTY, (4, 64, 1)),
        ("sft", "50M in parts", FIFTY, (16, 64, 4)),
        ("sft", "50M grouped", GROUPED, (2, 512, 1)),
        ("grpo", "10M", TEN, (2, 32, 8, 32, 16)),
        ("grpo", "10M in parts", TEN, (2, 128, 8, 96, 8)),
        ("grpo", "50M", FIFTY, (2, 32, 8, 32, 16)),
        ("grpo", "50M grouped, in parts", GROUPED, (4, 64, 4, 32, 8)),
    )
]
NAMES = {
    "sft": ("batch", "length", "accumulate"),
    "grpo": ("prompts", "prompt", "samples", "answer", "micro_batch"),
}
WITHIN = 0.15


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux: its /proc tells the peak of memory")
@pytest.mark.parametrize(("stage", "model", "case"), CASES)
def test_the_peak_is_predicted(stage, model, case):
    asked = {"stage": stage, **model, **dict(zip(NAMES[stage], case, strict=True))}
    shape = Shape(
        "a llama", "llama", model["vocabulary"], model["width"], model["layers"], model["heads"], model["key_heads"],
        model["width"] // model["heads"], model["inner"], True, 2048,
    )  # fmt: skip
    if stage == "sft":
        parts = {"batch": asked["batch"], "accumulate": asked["accumulate"], "answer": asked["length"]}
    else:
        rows = asked["prompts"] * asked["samples"]
        parts = {name: asked[name] for name in ("prompt", "samples", "answer", "micro_batch")}
        parts |= {"batch": rows, "sampled": rows, "whole": False}
    done = subprocess.run(
        [sys.executable, "-m", "tests.tasks.memory.measured", json.dumps(asked)],
        cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    measured = json.loads(done.stdout.splitlines()[-1])
    told = terms.list_memory_terms(workload(stage, shape, device="cpu", **parts), measured["base"])
    predicted, _ = terms.compute_peak_memory(told)
    print(
        f"measured {measured['peak'] / 1e6:.0f} MB, base {measured['base'] / 1e6:.0f}, predicted {predicted / 1e6:.0f}"
    )
    assert predicted == pytest.approx(measured["peak"], rel=WITHIN), told
