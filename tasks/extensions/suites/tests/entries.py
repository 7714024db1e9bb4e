"""What the tests that go through all stages need to know of `benchmarks` and its pages (tests/extensions.py)."""

import json

CELL = {"policy": "sft", "suite": "gsm8k", "revision": None, "shots": 0, "samples": 0}
BRANCHED = {
    "benchmarks": {"cells": {"sft-gsm8k": CELL}},
    "benchmark_pages": {"comparisons": {"all": {"cells": ["sft-gsm8k"], "baseline": "sft"}}},
}
BASE = {
    "benchmarks": {
        "cells": {"sft-gsm8k": {**CELL, "samples": 2}, "sft-arc": {**CELL, "suite": "arc_easy"}},
        **{"problems": 6, "pass_at": [1, 2], "max_new_tokens": 8, "batch_size": 4},
    },
    "benchmark_pages": {"comparisons": {"all": {"cells": ["sft-gsm8k", "sft-arc"], "baseline": "sft"}}},
}
ONE_BRANCH = {"benchmarks": "sft-gsm8k"}
VALUES = {"benchmarks.cells.*.suite": "gsm8k-lm-eval"}
ELSEWHERE = {
    "benchmarks.cells.*.revision": ("needs a network", "tasks/extensions/suites/tests/test_reading.py"),
    "benchmarks.strip_thinking": (
        "a model this small does not think",
        "tasks/extensions/suites/tests/test_answering.py",
    ),
    "benchmark_pages.comparisons.*.baseline": ("needs two policies", "tasks/extensions/suites/tests/test_pages.py"),
}
METRICS = {"benchmarks": {"problems": 1, "max_new_tokens": 4}}
# Files of data/raw, without .jsonl -> their lines.
ROWS = [json.dumps({"question": f"Ada has {n} pens. How many?", "answer": f"{n}\n#### {n}"}) for n in range(40)]
ANSWERS = {"text": ["in a box", "here"], "label": ["A", "B"]}
CHOICES = [json.dumps({"question": f"Where is {n}?", "choices": ANSWERS, "answerKey": "A"}) for n in range(4)]
RAW = {"suites/gsm8k/test": ROWS, "suites/gsm8k/train": ROWS[:2], "suites/arc/easy_test": CHOICES}
