"""Whether the hashes of a stage's code see each edit that changes an out: random mutants of lines that the stage
executes.

`python -m benchmarks.code_mutants [MUTANTS]` runs the default flows at preset tiny in a clone, notes which lines of
tasks/ each stage executes, and draws mutants of these with a fixed seed (300 unless another number is requested), as
many of each stage and kind. Three of four are of modules other than those that start every stage, since edits of these
rarely change an out. The stage is run with each mutant. Where that changes a byte of its outs, data/code/STAGE.json
must change (tasks/code). Stages that take too long are left out. Rows are written as they come, and the same command
continues after a stop.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import random_edits, result_files, tables
from benchmarks.forked_stages import ENDS, Stage, prepare_tiny_clone, run_stage_and_hash_outs, run_stage_with_line_trace
from tasks.code import registries, stages

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/code_mutants.json"
SEED = 0
MUTANTS = 300
STARTING = ("tasks/common/", "tasks/code/", "tasks/stage.py")  # modules that every stage executes
MOST = 8.0  # seconds that a stage may take


@dataclass
class Measured:
    """A stage that mutants are tried in."""

    stage: Stage
    digest: str  # of its outs
    seconds: float
    edits: dict[str, list[random_edits.Edit]]  # by kind, of the lines that it executes


def run_stage_baseline(stage: Stage, clone: Path) -> Measured | str:
    """Run the stage twice, and note its outs and which lines it executes; or why it is left out."""
    digest, lines = run_stage_with_line_trace(stage, clone, 20 * MOST)
    began = time.monotonic()
    if digest in ENDS:
        return digest
    if run_stage_and_hash_outs(stage, clone, 10 * MOST) != digest:
        return "another run has other outs"
    seconds = time.monotonic() - began
    if seconds > MOST:
        return f"takes {seconds:.0f} s"
    return Measured(stage, digest, seconds, random_edits.list_edits_by_kind(clone, lines))


class Campaign:
    """The mutants that were tried, in the result file."""

    def __init__(self, clone: Path) -> None:
        self.clone = clone
        self.files = stages.read_working_files(clone)
        self.choices = registries.read_working_choices(clone)
        self.parsed: stages.Known = {}
        self.rows: list[list[Any]] = result_files.load_single_values(RESULT).get("mutants", [])
        self.left_out: dict[str, str] = {}

    def hashes(self, stage: Stage, edited: Mapping[str, bytes]) -> stages.Hashes:
        """What the stage's file in data/code has with these files in the place of the clone's."""
        code = stages.StageCode({**self.files, **edited}, self.choices, self.parsed)
        return code.hashes(stage.command[0])

    def attempt(self, measured: Measured, kind: str, edit: random_edits.Edit) -> None:
        """Run the stage with the edit; a row of what became of it."""
        stage = measured.stage
        path = self.clone / edit[0]
        source = path.read_bytes()
        stat = path.stat()
        edited, described = random_edits.apply_edit(source, edit)
        if any(row[0] == stage.name and row[2] == described for row in self.rows):
            return
        path.write_bytes(edited)
        os.utime(path, (0, 0))  # no compiled file is of that time
        digest = run_stage_and_hash_outs(stage, self.clone, 5 * measured.seconds + 10)
        path.write_bytes(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        outcome = digest if digest in ENDS else "same" if digest == measured.digest else "changed"
        seen = self.hashes(stage, {edit[0]: edited}) != self.hashes(stage, {})
        self.rows.append([stage.name, kind, described, outcome, seen])
        print(*self.rows[-1], flush=True)
        self.write()

    def write(self) -> None:
        """The result file as it is by now."""
        kinds = sorted({kind for _, kind, *_ in self.rows})
        result = {
            "stages": sorted({name.partition("@")[0] for name, *_ in self.rows}),
            "left_out": self.left_out,
            "kinds": {kind: count_mutant_outcomes([row[3:] for row in self.rows if row[1] == kind]) for kind in kinds},
            "missed": [row for row in self.rows if row[3:] == ["changed", False]],
        }
        result_files.write_result(RESULT, result, {"mutants": self.rows}, adds=True)


def count_mutant_outcomes(rows: list[list[Any]]) -> dict[str, int]:
    """How many mutants ended how, from pairs of an outcome and whether the hashes differ; `seen` are those of other
    outs that differ.
    """
    outcomes = [outcome for outcome, _ in rows]
    seen = sum(outcome == "changed" and seen for outcome, seen in rows)
    return {**{name: outcomes.count(name) for name in (*ENDS, "same", "changed")}, "seen": seen}


def render(result: Mapping[str, Any]) -> str:
    """A row for each kind of mutant, and one for all."""
    kinds = dict(result["kinds"])
    kinds["all"] = {name: sum(row[name] for row in kinds.values()) for name in next(iter(kinds.values()))}
    rows = [["changed", "mutants", "the stage failed", "took too long", "same outs", "other outs", "hashes differ"]]
    for kind, row in kinds.items():
        total = sum(row.values()) - row["seen"]
        rows.append([kind, *map(str, (total, *(row[name] for name in (*ENDS, "same", "changed", "seen"))))])
    return tables.render_markdown_table(rows)


def tried(result: Mapping[str, Any]) -> str:
    """Which stages were tried, and why others were not."""
    lines = [f"Tried in {len(result['stages'])} stages: {', '.join(result['stages'])}."]
    if result["left_out"]:
        lines.append(f"Left out: {', '.join(f'{name} ({why})' for name, why in result['left_out'].items())}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try mutants until there are as many as requested."""
    count = int(sys.argv[1]) if sys.argv[1:] else MUTANTS
    clone = Path(tempfile.gettempdir()) / f"code-mutants-{result_files.describe_commit()[:10]}"
    first_branches = {stage.name.partition("@")[0]: stage for stage in reversed(prepare_tiny_clone(clone))}
    names = sorted(first_branches)
    campaign = Campaign(clone)
    measured: dict[str, Measured] = {}
    draw = random.Random(SEED)
    while len(campaign.rows) < count:
        name = draw.choice(names)
        if name not in measured and name not in campaign.left_out:
            result = run_stage_baseline(first_branches[name], clone)
            if isinstance(result, Measured):
                measured[name] = result
            else:
                campaign.left_out[name] = result
        if name in measured:
            kind = draw.choice(sorted(measured[name].edits))
            edits = measured[name].edits[kind]
            its_work = [edit for edit in edits if not edit[0].startswith(STARTING)]
            campaign.attempt(
                measured[name], kind, draw.choice(its_work if its_work and draw.random() < 0.75 else edits)
            )
    print(render(result_files.load_result(RESULT)))


if __name__ == "__main__":
    main()
