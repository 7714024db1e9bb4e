"""Chains of lineage for tests: one by hand, and any that hypothesis can think of, with paths and texts that mean
harm.
"""

from datetime import datetime

from hypothesis import strategies as st

from flows.lineage.chain import Link

RAW = Link("data/raw/gsm8k.jsonl", "0" * 32, note="raw: no stage makes it")
PROBLEMS = Link("data/problems", "1" * 32, "problems", note="the chain breaks here: no finished run", inputs=(RAW,))
FACTS = {
    "stage": "sft",
    "run_id": "a" * 32,
    "made_at": datetime(2026, 1, 2, 3, 4, 5),
    "commit": "c" * 40,
    "dirty": "params.yaml",
    "params": {"sft.epochs": "3"},
    "code": {"tasks/stage.py": "e" * 32, "tasks/language/sft.py": "d" * 32},
    "code_hash": "f" * 64,
    "environment": {"python": "3.11"},
    "inputs": (PROBLEMS,),
}
SFT = Link("data/sft", "2" * 32, **FACTS)
CURVE = Link("data/curves/sft.csv", "4" * 32, **FACTS)
EVALUATIONS = Link("data/evaluate", "5" * 32, inputs=(SFT, CURVE))
REPORT = Link(
    "data/report",
    "3" * 32,
    "report",
    "b" * 32,
    datetime(2026, 1, 3, 3, 4, 5),
    commit="c" * 40,
    dirty="no",
    inputs=(EVALUATIONS, PROBLEMS),
)

HOSTILE = [
    '"><script>alert(1)</script>',
    "<!--",
    "</style>",
    "{{ 7 * 7 }}",
    'a"]; click a0 call x()',
    "a b/c#d?e%20&amp;",
    "`]-->",
    "\x1b[31mred",
    "line\nbreak",
    "data/ä/…",
    "~3c~",
    "<",
]
TEXTS = st.sampled_from([*HOSTILE, "data/x", "sft", "evaluate@sft", ""])


@st.composite
def chains(draw: st.DrawFn) -> Link:
    """A chain of up to twelve executions and raw files; outputs of one run share all that is known of it."""
    made: list[Link] = []
    for number in range(draw(st.integers(1, 12))):
        path, digest = f"{number}{draw(TEXTS)}", f"{number:02}9{'0' * 29}"
        if not made or draw(st.integers(0, 3)) == 0:
            made.append(Link(path, digest, note="raw: no stage makes it"))
            continue
        inputs = tuple(draw(st.lists(st.sampled_from(made), max_size=4, unique_by=lambda link: link.hash)))
        if inputs and draw(st.integers(0, 5)) == 0:
            made.append(Link(path, digest, inputs=inputs))
            continue
        facts = {
            "stage": draw(TEXTS),
            "run_id": draw(st.sampled_from([f"{number:032x}", None, f'{number}<&"'])),
            "commit": draw(TEXTS),
            "dirty": draw(TEXTS),
            "params": {draw(TEXTS): draw(TEXTS)},
            "code": {draw(TEXTS): "c" * 32},
            "code_hash": f"{number:064x}",
            "inputs": inputs,
        }
        made += [Link(f"{path}{out}", f"{number:02}{out}{'0' * 29}", **facts) for out in range(draw(st.integers(1, 3)))]
    top = tuple(draw(st.lists(st.sampled_from(made), min_size=1, max_size=6, unique_by=lambda link: link.hash)))
    return Link("top", "f" * 32, "report", "f" * 32, inputs=top)


def reachable(link: Link) -> tuple[set[tuple[str, str]], set[str]]:
    """Path and hash of every link, and the id of every recorded run, found by walking the tree."""
    links, runs = {(link.path, link.hash)}, {link.run_id} if link.run_id else set()
    for below in link.inputs:
        inner, its_runs = reachable(below)
        links |= inner
        runs |= its_runs
    return links, runs
