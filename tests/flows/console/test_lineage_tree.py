"""The tree of a lineage: short, with one line a link that fits a narrow terminal, or with all that is known of each
link.
"""

from datetime import datetime
from io import StringIO

from hypothesis import given, settings

from flows.console.lineage_tree import build_lineage_tree, format_compact_lineage
from flows.console.summary import PlainConsole
from flows.lineage.chain import Link
from flows.lineage.document import replace_control_characters
from tests.flows.lineage.links import CURVE, PROBLEMS, RAW, SFT, chains, reachable

REPORT = Link("data/report", "3" * 32, "report", "b" * 32, commit="c" * 40, dirty="no", inputs=(SFT, PROBLEMS))
WIDE = Link(
    "data/report",
    "3" * 32,
    "report",
    "b" * 32,
    datetime(2026, 1, 3, 9, 0),
    "e" * 40,
    "no",
    code={"report.py": "1" * 32},
    code_hash="9" * 64,
    inputs=(CURVE, SFT, PROBLEMS, RAW),
)


def test_each_link_is_told_in_full_once() -> None:
    out = StringIO()
    PlainConsole(out, soft_wrap=False).print(build_lineage_tree(REPORT))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        f"data/report  {'3' * 32}",
        f"made by report, run {'b' * 32}",
        f"commit {'c' * 40}",
        f"├── data/sft  {'2' * 32}",
        f"│   made by sft at 2026-01-02 03:04:05, run {'a' * 32}",
        f"│   commit {'c' * 40}, changed: params.yaml",
        "│   code: tasks/stage.py eeeeeeee, tasks/language/sft.py dddddddd",
        "│   sft.epochs=3",
        f"│   └── data/problems  {'1' * 32}",
        "│       the chain breaks here: no finished run",
        f"│       └── data/raw/gsm8k.jsonl  {'0' * 32}",
        "│           raw: no stage makes it",
        f"└── data/problems  {'1' * 32}  as above",
    ]


def test_one_line_a_link_in_columns() -> None:
    assert [line.plain for line in format_compact_lineage(WIDE, 200)] == [
        "data/report             33333333  report  2026-01-03 09:00  bbbbbbbb  eeeeeee        99999999 1 file",
        "├ data/curves/sft.csv   44444444  sft     2026-01-02 03:04  aaaaaaaa  ccccccc dirty  ffffffff 2 files",
        "│ └ as below: data/problems",
        "├ data/sft              22222222  sft     2026-01-02 03:04  aaaaaaaa  ccccccc dirty  ffffffff 2 files",
        "├ data/problems         11111111  the chain breaks here: no finished run",
        "│ └ as below: data/raw/gsm8k.jsonl",
        "└ data/raw/gsm8k.jsonl  00000000  raw: no stage makes it",
    ]


def test_a_break_raw_data_and_changed_code_have_their_colours() -> None:
    styles = {
        (line.plain[span.start : span.end], str(span.style))
        for line in format_compact_lineage(WIDE, 200)
        for span in line.spans
    }
    assert (PROBLEMS.note, "bold red") in styles
    assert (RAW.note, "green") in styles
    assert ("ccccccc dirty", "yellow") in styles


def test_in_a_narrow_terminal_what_all_lines_say_is_told_once() -> None:
    told = [
        line.plain
        for line in format_compact_lineage(Link(**{**vars(WIDE), "commit": "c" * 40, "dirty": "params.yaml"}), 80)
    ]
    assert told[:3] == [
        "every output: commit ccccccc dirty",
        "data/report             33333333  2026-01-03 09:00  bbbbbbbb  99999999 1 file",
        "├ data/curves/sft.csv   44444444  2026-01-02 03:04  aaaaaaaa  ffffffff 2 files",
    ]
    same_day = Link(**{**vars(WIDE), "commit": "c" * 40, "dirty": "params.yaml", "made_at": SFT.made_at})
    told = [line.plain for line in format_compact_lineage(same_day, 70)]
    assert told[0] == "every output: commit ccccccc dirty, made on 2026-01-02"
    assert max(len(line) for line in told[1:] if "breaks" not in line) <= 70
    told = [line.plain for line in format_compact_lineage(WIDE, 80)]
    assert "ccccccc dirty" in told[1], "what differs stays in its lines"


def test_a_stage_that_the_path_does_not_name_stays_in_a_narrow_terminal() -> None:
    branch = Link("data/evaluate/dpo", "1" * 32, "evaluate@dpo", "a" * 32)
    other = Link("data/figures", "1" * 32, "evaluate@dpo", "b" * 32)
    [first, second] = format_compact_lineage(Link(**{**vars(branch), "inputs": (other,)}), 20)[-2:]
    assert "evaluate@dpo" not in first.plain
    assert "evaluate@dpo" in second.plain


def test_names_that_do_not_fit_go_on_in_the_next_line_below_the_first() -> None:
    raw = [Link(f"data/raw/file_number_{number}", f"{number}" * 32) for number in range(4)]
    one = Link("data/a", "a" * 32, "a", "a" * 32, inputs=tuple(raw))
    told = [
        line.plain for line in format_compact_lineage(Link("data/b", "b" * 32, "b", "b" * 32, inputs=(*raw, one)), 60)
    ]
    assert told[-3:] == [
        "  └ as above: data/raw/file_number_0,",
        "              data/raw/file_number_1,",
        "              data/raw/file_number_2, data/raw/file_number_3",
    ] or told[-2:] == [
        "  └ as above: data/raw/file_number_0, data/raw/file_number_1,",
        "              data/raw/file_number_2, data/raw/file_number_3",
    ]


@settings(max_examples=25, deadline=None)
@given(chains())
def test_every_link_has_one_line_and_nothing_gives_the_terminal_orders(link: Link) -> None:
    told = [line.plain for line in format_compact_lineage(link, 200)]
    links, _ = reachable(link)
    assert all(letter.isprintable() for line in told for letter in line)
    lines = [
        line for line in told if not line.lstrip("│├└ ").startswith(("as above: ", "as below: ", "every output: "))
    ]
    assert len([line for line in lines if line[:1] != " " or line.strip("│ ")[:1] in "├└"]) == len(links)
    for path, md5 in links:
        assert (
            sum(
                line.lstrip("│├└ ").startswith(replace_control_characters(path).lstrip())
                and f"  {md5[:8]}  " in line + "  "
                for line in lines
            )
            == 1
        )
