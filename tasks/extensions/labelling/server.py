"""The label page's server: one page for the person, five calls from it, and the statistics.

The guard stands before all of them.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from tasks.common.errors import DataError
from tasks.extensions.labelling.guard import LabelGuard
from tasks.extensions.labelling.item_view import build_item_context
from tasks.extensions.labelling.rendering import render_markdown_html
from tasks.extensions.labelling.session import ConflictError, LabelTurn, Session
from tasks.language.judgements.lines import ItemId, JudgementId, Person, Value

HERE = Path(__file__).parent
GUIDELINES = HERE / "templates/guidelines.md"
REASONS = ("The prompt makes no sense", "An answer is not shown as it should be", "It is about a person or a secret")
KEYS = (
    ("1 … 9, 0", "choose: a verdict, the next answer of a ranking, a step's label, or the answer to start from"),
    ("← → ↑ ↓", "the verdict beside, the step before or behind"),
    ("=", "the next answer of a ranking ties with the one before"),
    ("⌫", "take the last answer out of the ranking"),
    ("/", "type: the ranking, or the better answer"),
    ("Enter", "submit (in the better answer: Ctrl+Enter)"),
    ("u", "undo: back to the judgement before"),
    ("s", "skip: leave this item to others"),
    ("f", "flag: something is wrong with this item"),
    ("r", "show what was written, or how it reads"),
    ("g", "guidelines"),
    ("?", "these keys"),
    ("Esc", "close a window, or leave a field"),
)


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid")

    person: Person


class _Judge(_Call):
    judgement: JudgementId
    item: ItemId
    value: Value
    seconds: float = Field(ge=0, le=10**7, allow_inf_nan=False)


class _Undo(_Call):
    judgement: JudgementId


class _Skip(_Call):
    item: ItemId
    again: bool


class _Flag(_Call):
    item: ItemId
    reason: str = Field(min_length=1, max_length=1000)


def build_label_app(
    session: Session, token: str, hosts: frozenset[str], statistics: Callable[[], dict[str, Any]]
) -> LabelGuard:
    """The server as an ASGI application. `statistics` are what the page of that name shows."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    loader = FileSystemLoader(HERE / "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = partial(_build_turn_payload, environment)
    _add_page_routes(app, environment, session, statistics)

    @app.post("/next")
    def next_item(call: _Call) -> dict[str, Any]:
        return shown(session.next(call.person))

    @app.post("/judge")
    def judge(call: _Judge) -> dict[str, Any]:
        session.judge(call.judgement, call.person, call.item, call.value, call.seconds)
        return shown(session.next(call.person))

    @app.post("/undo")
    def undo(call: _Undo) -> dict[str, Any]:
        return shown(session.undo(call.judgement, call.person))

    @app.post("/skip")
    def skip(call: _Skip) -> dict[str, Any]:
        session.skip(call.item, call.person, call.again)
        return shown(session.next(call.person))

    @app.post("/flag")
    def flag(call: _Flag) -> dict[str, Any]:
        session.flag(call.item, call.person, call.reason)
        return {}

    @app.exception_handler(RequestValidationError)
    def not_understood(_: Request, error: Exception) -> Response:
        """Without what was sent, which may be text that cannot be sent back."""
        return JSONResponse({"fault": "the server did not understand this page; load it anew"}, 422)

    @app.exception_handler(ConflictError)
    def conflict(_: Request, error: Exception) -> Response:
        return JSONResponse({"fault": str(error)}, 409)

    @app.exception_handler(DataError)
    def not_written(_: Request, error: Exception) -> Response:
        return JSONResponse({"fault": str(error)}, 503)

    return LabelGuard(app, token, hosts)


def _add_page_routes(
    app: FastAPI, environment: Environment, session: Session, statistics: Callable[[], dict[str, Any]]
) -> None:
    app.mount("/static", StaticFiles(directory=HERE / "static"))

    @app.get("/", response_class=HTMLResponse)
    def page() -> str:
        guidelines = Markup(render_markdown_html(GUIDELINES.read_text(), breaks=False))
        modes = {item.mode for item in session.assignment.items.values()}
        return environment.get_template("label.html.j2").render(
            guidelines=guidelines, keys=KEYS, reasons=REASONS, title=format_page_title(modes)
        )

    @app.get("/statistics", response_class=HTMLResponse)
    def statistics_page() -> str:
        return environment.get_template("statistics.html.j2").render(statistics())


def format_page_title(modes: Collection[str]) -> str:
    """What people do here."""
    words = {"pairwise": "Compare", "ranking": "Rank", "steps": "Judge the steps of", "edit": "Improve"}
    return f"{words[next(iter(modes))]} answers" if len(modes) == 1 else "Judge answers"


def _build_turn_payload(environment: Environment, turn: LabelTurn) -> dict[str, Any]:
    """What the page is told: the item as HTML, and no more of it than that shows."""
    progress = turn.progress
    shown = turn.shown
    payload: dict[str, Any] = {
        "undo": turn.undo,
        "done": progress.done,
        "wanted": progress.wanted,
        "seconds_left": progress.seconds_left,
        "pipeline": turn.pipeline and asdict(turn.pipeline),
    }
    if shown is None:
        return {**payload, "mode": "", "html": environment.get_template("done.html.j2").render(done=progress.done)}
    html = environment.get_template("item.html.j2").render(build_item_context(shown, turn.value))
    return {**payload, "item": shown.item.item, "judgement": turn.judgement, "mode": shown.item.mode, "html": html}
