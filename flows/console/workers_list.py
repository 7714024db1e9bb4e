"""The live workers as a list in the terminal: where they are, what they have, what they run."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from flows.console.summary import format_duration
from flows.workers.live_workers import Listed


def print_live_workers(console: Console, workers: Sequence[Listed], held: Sequence[str] = ()) -> None:
    """Print each worker in a line, with a line for each stage that it runs; then why pools hand out no runs."""
    if not workers:
        console.print("no worker is alive; `posttrain worker --pool POOL` starts one")
    for worker in workers:
        devices = f"GPU {', '.join(worker.devices)}" if worker.devices else "no GPU"
        what = f"  pool {worker.pool}  {worker.host or 'host unknown'}  {devices if worker.host else ''}".rstrip()
        console.print(Text.assemble((worker.name, "bold"), what, (_format_elapsed_since("  up", worker.since), "dim")))
        for stage_run in worker.running:
            on_devices = f" on GPU {', '.join(stage_run.devices)}" if stage_run.devices else ""
            phase = f": {stage_run.phase}" if stage_run.phase else ""
            console.print(
                Text.assemble(
                    f"  {stage_run.stage}{on_devices}{phase}", (_format_elapsed_since("  for", stage_run.since), "dim")
                )
            )
        if not worker.running:
            console.print(Text("  idle", "dim"))
    for line in held:
        console.print(Text(line, "yellow"))


def _format_elapsed_since(word: str, moment: str) -> str:
    if not moment:
        return ""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment.replace("Z", "+00:00"))).total_seconds()
    return f"{word} {format_duration(max(seconds, 0))}"
