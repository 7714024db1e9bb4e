"""`posttrain runs`, `lineage` and the other questions about what was recorded: where it comes from, what differs,
whether it holds.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.console.summary import PlainConsole, format_relative_path
from flows.params.files import find_root
from flows.running import WrongUseError, convert_errors_to_wrong_use

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def runs(
    last: Annotated[int, typer.Option("--last", min=1, metavar="N", help="How many, the newest first.")] = 10,
    points: Annotated[bool, typer.Option("--points", help="The points of sweeps too, each a run.")] = False,
    json_: Json = False,
) -> None:
    """List the pipeline runs: what changed since the one before, what ran, was restored or was up to date, the
    headline.
    """
    from flows.console.runs_list import print_pipeline_runs
    from flows.lineage.cleaning import cache_presence
    from flows.lineage.history import load_newest_pipeline_runs

    with convert_errors_to_wrong_use():
        pipeline_runs = load_newest_pipeline_runs(find_root(), last, points)
        left = cache_presence.compute_cache_presence(find_root(), pipeline_runs)
    if json_:
        outs = {run_id: vars(outs_state) for run_id, outs_state in left.items()}
        print(json.dumps([{**vars(run), "outs": outs.get(run.id)} for run in pipeline_runs], indent=1, default=str))
    else:
        print_pipeline_runs(PlainConsole(soft_wrap=False), pipeline_runs, left)


def lineage(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="X... [FILE.html]",
            help="An output, a stage, a run, a model version, a hash, or a metric such as `grpo strict_greedy`.",
            autocompletion=tab.complete_outputs,
        ),
    ],
    full: Annotated[bool, typer.Option("--full", help="All that is known of each link.")] = False,
    json_: Json = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the graph in Mermaid, for Markdown.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write a page with the graph to click, to FILE.html.")] = False,
) -> None:
    """Show where an output comes from: the chain of runs back to raw data."""
    from flows.console import lineage_tree
    from flows.lineage import chain
    from flows.lineage.document import flatten_lineage
    from flows.lineage.target import resolve_lineage_target

    if full + json_ + mermaid + html > 1:
        raise WrongUseError("--full, --json, --mermaid, --html: expected one of them")
    file = Path(words.pop()) if html and len(words) > 1 and words[-1].endswith(".html") else None
    root = find_root()
    screen = PlainConsole()
    with convert_errors_to_wrong_use():
        target = resolve_lineage_target(root, " ".join(words))
        link = chain.trace_target_lineage(root, target)
        metric = {"metric": {"name": target.metric[0], "value": target.metric[1]}} if target.metric else {}
        if json_:
            print(json.dumps({**flatten_lineage(link).json(), **metric}, indent=1))
        elif mermaid:
            from flows.web.lineage_mermaid import render_mermaid_flowchart as drawn

            print(drawn(flatten_lineage(link)))
        elif html:
            from flows.web import lineage_page

            print(f"lineage: {lineage_page.write_lineage_page(root, flatten_lineage(link), file)}")
        else:
            if target.metric:
                screen.print(f"{target.metric[0]} of {target.stage} is {target.metric[1]:.6g}", markup=False)
            lines = (
                [lineage_tree.build_lineage_tree(link)]
                if full
                else lineage_tree.format_compact_lineage(link, screen.width)
            )
            for line in lines:
                screen.print(line, soft_wrap=not full)


def verify(
    target: Annotated[
        str,
        typer.Argument(
            metavar="X", help="A stage, an out's path, a run, a hash or a metric.", autocompletion=tab.complete_stages
        ),
    ],
    keep: Annotated[bool, typer.Option("--keep", help="Leave the scratch copy for a look.")] = False,
    json_: Json = False,
) -> int:
    """Make X again from its recorded inputs in a scratch copy: equal to the bit, or the first difference."""
    from flows.console import verification as shown

    screen = PlainConsole(sys.stderr if json_ else sys.stdout)
    with convert_errors_to_wrong_use():
        verification, problem = shown.verify_and_print_result(find_root(), screen, target, keep)
    if json_:
        print(json.dumps(shown.build_verification_json(target, verification, problem)))
    return int(verification is None or verification.verdict != "equal")


def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A pipeline run, a git revision, `now` for dvc.lock, or a policy.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one; differences are B minus A.")],
    page: Annotated[Path | None, typer.Argument(metavar="[FILE.html]", help="Where a page goes.")] = None,
    policies_of: Annotated[
        str, typer.Option("--of", metavar="RUN|REVISION", help="Where A and B are policies: whose policies.")
    ] = "now",
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="'grpo/strict_greedy > 0', < or `not below -0.02`: exit 1 unless the interval says so."
        ),
    ] = None,
    verdict: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the verdict goes; mlruns/verdicts/A..B.json otherwise.")
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Write a page too, to FILE.html or mlruns/comparisons/A..B.html.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Every metric and every difference.")] = False,
    json_: Json = False,
) -> int:
    """Show what differs between two runs or policies: stage by stage, and in the metrics with paired intervals."""
    from flows.console import comparison as screen
    from flows.console.conclusion import format_comparison_conclusion
    from flows.lineage.comparison import gate, side_by_side
    from flows.web import comparison_page

    root = find_root()
    console = PlainConsole()
    gate_verdict = None
    with convert_errors_to_wrong_use():
        required = [gate.parse_requirement(text) for text in require or ()]
        comparison = side_by_side.compare_sides(root, a, b, policies_of)
        judged = gate.evaluate_requirements(required, comparison.found)
        if judged:
            gate_verdict = gate.build_gate_verdict(comparison.a, comparison.b, judged)
            verdict = side_by_side.write_comparison_text(
                root, comparison, verdict, "verdicts/{}.json", gate.format_verdict_json(gate_verdict)
            )
        if html or page:
            text = comparison_page.render_comparison_page(comparison, judged)
            page = side_by_side.write_comparison_text(root, comparison, page, "comparisons/{}.html", text)
    if json_:
        outcome = {
            "conclusion": format_comparison_conclusion((comparison.a.name, comparison.b.name), comparison.found),
            "verdict": gate_verdict,
        }
        print(json.dumps({**side_by_side.build_comparison_document(comparison), **outcome}, indent=1, default=str))
    else:
        screen.print_comparison(console, comparison, full)
        for line in screen.format_verdict_lines(judged):
            console.print(line, markup=False)
        for file in filter(None, (verdict if judged else None, page)):
            console.print(f"written: {format_relative_path(file, root)}", markup=False)
    return int(not all(requirement.holds for requirement in judged))


def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="X",
            help="An output, stage, run, model version, hash or metric, and the chain behind it.",
            autocompletion=tab.complete_stages,
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every run in the database too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Read all bytes, also of files that have not changed.")] = False,
    json_: Json = False,
) -> int:
    """Verify each link from the results back to raw data, or name what is wrong; exit code 1 if something is."""
    from flows.console import audit_text
    from flows.lineage.auditing import audit_lineage

    if target is not None and all_:
        raise WrongUseError("--all is of everything; leave out what to audit, or leave out --all")
    screen = PlainConsole()
    with convert_errors_to_wrong_use(), audit_text.open_progress_bar() as progress:
        report = audit_lineage(find_root(), target, everything=all_, full=full, on_progress=progress)
    if json_:
        print(json.dumps(report.build_audit_document(), indent=1))
    else:
        audit_text.print_audit(screen, report)
    return int(bool(report.faults))
