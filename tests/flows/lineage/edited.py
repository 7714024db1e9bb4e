"""Edits of a repository's code, and what a run does about those without effect."""

from flows import effectless_edits
from flows.engine.plan import plan
from flows.engine.state import PlannedStage
from flows.lineage.acceptance import accepting
from tests.flows.lineage.audited import Audited


def planned(toy: Audited) -> list[PlannedStage]:
    return plan(toy.root, list(toy.stages), accepts=effectless_edits.judge(toy.root))


def accept_edits(toy: Audited) -> list[str]:
    """What `posttrain run` does before it runs what is left; the stages that stay as they are."""
    names = [stage.name for stage in planned(toy) if stage.accepts]
    if names:
        accepting.accept_edits(toy.root, "language", names)
    return names


def comment(toy: Audited, text: str = "# reads them all\n") -> None:
    toy.write("helper.py", text + toy.read("helper.py"))
