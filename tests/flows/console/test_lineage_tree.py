"""The tree of a lineage: every link has its run, hash, commit and code; a link is shown in full only once."""

from datetime import datetime
from io import StringIO

from flows.console.lineage_tree import tree
from flows.console.summary import Screen
from flows.engine.lineage import Link

RAW = Link("data/raw/gsm8k.jsonl", "0" * 32, note="raw: no stage makes it")
PROBLEMS = Link("data/problems", "1" * 32, "problems", note="the chain breaks here: no finished run", inputs=(RAW,))
SFT = Link(
    path="data/sft",
    hash="2" * 32,
    stage="sft",
    run_id="a" * 32,
    made_at=datetime(2026, 1, 2, 3, 4, 5),
    commit="c" * 40,
    dirty="params.yaml",
    params={"sft.epochs": "3"},
    code={"tasks/language/sft.py": "d" * 32},
    inputs=(PROBLEMS,),
)
REPORT = Link("data/report", "3" * 32, "report", "b" * 32, commit="c" * 40, dirty="no", inputs=(SFT, PROBLEMS))


def test_each_link_is_told_in_full_once() -> None:
    out = StringIO()
    Screen(out, soft_wrap=False).print(tree(REPORT))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        f"data/report  {'3' * 32}",
        f"made by report, run {'b' * 32}",
        f"commit {'c' * 40}",
        f"├── data/sft  {'2' * 32}",
        f"│   made by sft at 2026-01-02 03:04:05, run {'a' * 32}",
        f"│   commit {'c' * 40}, changed: params.yaml",
        "│   code: tasks/language/sft.py dddddddd",
        "│   sft.epochs=3",
        f"│   └── data/problems  {'1' * 32}",
        "│       the chain breaks here: no finished run",
        f"│       └── data/raw/gsm8k.jsonl  {'0' * 32}",
        "│           raw: no stage makes it",
        f"└── data/problems  {'1' * 32}  as above",
    ]
