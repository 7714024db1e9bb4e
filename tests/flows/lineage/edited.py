"""Edits of a repository's code, which a person vouches for."""

from flows.engine.plan import plan_stages
from flows.engine.stage_types import PlannedStage
from flows.lineage.acceptance import accepting
from tests.flows.lineage.audited import Audited

WHY = "a comment"


def planned(toy: Audited) -> list[PlannedStage]:
    return plan_stages(toy.root, list(toy.stages))


def accept(toy: Audited) -> list[str]:
    """Vouch for each stage that is out of date; their names."""
    names = [stage.name for stage in planned(toy) if stage.reason]
    if names:
        accepting.accept_change(toy.root, "language", names, WHY)
    return names


def comment(toy: Audited, text: str = "# reads them all\n") -> None:
    toy.write("helper.py", text + toy.read("helper.py"))
