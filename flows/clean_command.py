"""`posttrain clean`: what takes space, and what of it can go."""

import json
import re
import sys
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.console.summary import PlainConsole
from flows.params.files import find_root
from flows.running import WrongUseError, convert_errors_to_wrong_use

AGE = re.compile(r"([1-9]\d{0,5})([hdw])")
SECONDS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what takes space and what would go.")] = False,
    keep_runs: Annotated[
        int, typer.Option("--keep-runs", min=0, metavar="N", help="Keep what the last N pipeline runs made or used.")
    ] = 10,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Only what is older: 12h, 30d, 4w.")] = "",
    stage: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Only what this stage made.", autocompletion=tab.complete_stages),
    ] = None,
    old_models: Annotated[
        bool, typer.Option("--old-models", help="Versions of registered models without an alias keep nothing.")
    ] = False,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Logs, tables and pages of runs that nothing keeps, too.")
    ] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Checkpoints of stopped stages too, which then begin anew.")
    ] = False,
    shared_cache: Annotated[
        bool, typer.Option("--shared-cache", help="Remove from a cache that lies outside of this repository.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Show what takes space, and remove results that no commit, tag, registered model or recent run keeps."""
    from flows.console import cleaning as shown
    from flows.lineage.cleaning import removal, survey

    older = _parse_age_seconds(older_than)
    root = find_root()
    screen = PlainConsole(sys.stderr if json_ else sys.stdout, soft_wrap=False)
    request = removal.CleaningRequest(
        keep_runs, older, frozenset(stage or ()), old_models, artifacts, checkpoints, shared_cache
    )
    removed = None
    with convert_errors_to_wrong_use():
        inventory = survey.survey_disk_usage(root, keep_runs, old_models)
        _check_stage_names(request.stages, inventory.names())
        chosen = removal.select_removable(inventory, request)
        shown.print_cleaning_plan(screen, inventory, request, chosen)
        if chosen and not dry_run and _confirm_removal(yes):
            removed = removal.remove_selected(root, request, chosen)
            screen.print(shown.format_completed_removal(removed), markup=False)
    if json_:
        print(json.dumps(shown.build_cleaning_document(inventory, chosen, removed)))
    return 0


def _confirm_removal(yes: bool) -> bool:
    """Whether the person wants it; without a terminal nobody can say so."""
    if yes:
        return True
    if not _is_terminal():
        raise WrongUseError(
            "nothing was removed: there is no terminal to ask on; --yes removes it, --dry-run only shows it"
        )
    return typer.confirm("Remove it?", default=False)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _parse_age_seconds(age: str) -> float:
    match = AGE.fullmatch(age.strip())
    if age and not match:
        raise WrongUseError(f"--older-than: {age!r}: expected a number of hours, days or weeks such as 12h, 30d or 4w")
    return int(match[1]) * SECONDS[match[2]] if match else 0.0


def _check_stage_names(stages: frozenset[str], known_names: set[str]) -> None:
    """Refuse a stage that has made nothing here."""
    from difflib import get_close_matches

    names = {*known_names, *(name.partition("@")[0] for name in known_names)}
    for name in sorted(stages - names):
        close = get_close_matches(name, [*names], n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise WrongUseError(f"--stage: nothing here was made by a stage '{name}'{hint}")
