"""The lines of the record of judgements, as types: what people judged, what they said of it, and what they took back.

Each line is one JSON object that says its `kind`. What is wrong with one is a ValueError of one line; judgement_log.py
adds file and line.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)

from tasks.common.config_faults import format_short_value
from tasks.language.tables.preferences import STRENGTHS
from tasks.language.tables.solutions import LABELS, split_steps

MODES = ("pairwise", "ranking", "steps", "edit")
MOST_ANSWERS = 26  # as many as there are letters
CRITERIA = ("helpful", "truthful", "harmless")
TIES = ("tie", "both bad")
VERDICTS = (*STRENGTHS, *TIES)  # of a pair, where a is the item's first answer

Mode = Literal["pairwise", "ranking", "steps", "edit"]
Text = Annotated[str, Strict()]
Whole = Annotated[int, Strict(), Field(ge=0)]
Score = Annotated[int, Strict(), Field(ge=1, le=5)]
ItemId = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{16}$")]
JudgementId = Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{32}$")]
Person = Annotated[str, Strict(), Field(pattern=r"^[\w .@-]{1,64}$")]


def _make_choice_validator(allowed: Sequence[object]) -> AfterValidator:
    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"expected {', '.join(map(repr, allowed))}")
        return value

    return AfterValidator(check)


def _check_utc_time(text: str) -> str:
    try:
        if len(text) == 20 and text[10] == "T" and text.endswith("Z") and datetime.fromisoformat(text):
            return text
    except ValueError:
        pass
    raise ValueError("expected a time in UTC such as 2026-01-31T12:00:00Z")


Instant = Annotated[str, Strict(), AfterValidator(_check_utc_time)]
Label = Annotated[int, Strict(), _make_choice_validator(LABELS)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AnswerScores(_Frozen):
    """How helpful, truthful and harmless an answer is, each from 1 to 5."""

    helpful: Score
    truthful: Score
    harmless: Score


class PairwiseValue(_Frozen):
    """Which of two answers is better and by how much; a is the item's first answer, wherever it was shown."""

    strength: Annotated[str, Strict(), _make_choice_validator(VERDICTS)]


class RankingValue(_Frozen):
    """A rank for each of the item's answers, 1 for the best; ties share a rank and no rank is left out."""

    ranks: tuple[Whole, ...]
    scores: tuple[AnswerScores | None, ...] | None = None

    @model_validator(mode="after")
    def _check_ranks_without_gaps(self) -> "RankingValue":
        if sorted(set(self.ranks)) != [*range(1, len(set(self.ranks)) + 1)]:
            raise ValueError(f"expected ranks 1, 2, .. without a gap, got {format_short_value(list(self.ranks))}")
        if self.scores is not None and len(self.scores) != len(self.ranks):
            raise ValueError(f"expected scores, or null, for each of {len(self.ranks)} answers, got {len(self.scores)}")
        return self


class StepsValue(_Frozen):
    """Whether each step is good (1), neutral (0) or bad (-1); null where it was not judged, behind the first bad
    one.
    """

    labels: tuple[Label | None, ...]

    @model_validator(mode="after")
    def _judged(self) -> "StepsValue":
        before = self.labels[: self.labels.index(-1)] if -1 in self.labels else self.labels
        if None in before:
            raise ValueError("labels: expected -1, 0 or 1 for each step up to the first bad one, got null")
        return self


class EditValue(_Frozen):
    """A better answer in a person's own words, and the answer that it started from."""

    text: Annotated[str, Strict(), Field(min_length=1)]
    start: Whole | None = Field(default=None, alias="from")

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)


_KEYS = {"strength": "pairwise", "ranks": "ranking", "labels": "steps", "text": "edit"}
_VALUES = {PairwiseValue: "pairwise", RankingValue: "ranking", StepsValue: "steps", EditValue: "edit"}


def _find_value_mode(value: object) -> str | None:
    if isinstance(value, dict):
        return next((mode for key, mode in _KEYS.items() if key in value), None)
    return _VALUES.get(type(value))  # type: ignore[call-overload, no-any-return]


Value = Annotated[
    Annotated[PairwiseValue, Tag("pairwise")]
    | Annotated[RankingValue, Tag("ranking")]
    | Annotated[StepsValue, Tag("steps")]
    | Annotated[EditValue, Tag("edit")],
    Discriminator(
        _find_value_mode,
        custom_error_type="value",
        custom_error_message="Input should be an object with strength, ranks, labels or text",
    ),
]


class Answer(_Frozen):
    """One of an item's answers; `source` is the stage or file that it is from, `tokens` are there where a model sampled
    it.
    """

    sample: Whole
    source: Text
    text: Text
    ended: Annotated[bool, Strict()]
    tokens: Annotated[tuple[Whole, ...], Field(min_length=1)] | None


class Item(_Frozen):
    """What is judged: a prompt with its answers. It stands in a file before its first judgement."""

    kind: Literal["item"] = "item"
    item: ItemId
    mode: Mode
    prompt_id: Text
    prompt: Annotated[str, Strict(), Field(min_length=1)]
    history: Text  # the turns before the prompt as JSON, empty where there are none
    answers: Annotated[tuple[Answer, ...], Field(max_length=MOST_ANSWERS)]
    steps: tuple[Text, ...] = ()  # of the one answer of an item of mode steps
    gold: Value | None = None  # the judgement that is expected

    @model_validator(mode="after")
    def _check_item_consistency(self) -> "Item":
        fewest, most = {"pairwise": (2, 2), "ranking": (2, MOST_ANSWERS), "steps": (1, 1), "edit": (0, MOST_ANSWERS)}[
            self.mode
        ]
        if not fewest <= len(self.answers) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise ValueError(f"expected {expected} answers in mode {self.mode}, got {len(self.answers)}")
        steps = split_steps(self.answers[0].text) if self.mode == "steps" else ()
        if self.steps != steps or (self.mode == "steps" and not steps):
            raise ValueError(
                "steps: expected the lines of the answer that are not blank in mode steps, and none in others"
            )
        expected = compute_item_id(self.mode, self.prompt, self.history, [answer.text for answer in self.answers])
        if self.item != expected:
            raise ValueError(f"item: expected {expected}, which follows from mode, prompt, history and answers")
        if self.gold is not None and (wrong := find_value_fault(self.gold, self)):
            raise ValueError(f"gold: {wrong}")
        return self


class _Said(_Frozen):
    person: Person
    at: Instant


class Judgement(_Said):
    """What a person said of an item; `order` are the answers' places in the item as they were shown, left or top
    first.
    """

    kind: Literal["judgement"] = "judgement"
    judgement: JudgementId
    item: ItemId
    mode: Mode
    order: tuple[Whole, ...]
    value: Value
    seconds: Annotated[float, Strict(), Field(ge=0)]
    repeat: Whole  # 0 for the first time, 1 for the first unannounced repeat


class Undo(_Said):
    """A person takes a judgement of theirs back."""

    kind: Literal["undo"] = "undo"
    judgement: JudgementId


class Skip(_Said):
    """A person leaves an item to others."""

    kind: Literal["skip"] = "skip"
    item: ItemId


class Flag(_Said):
    """A person says that something is wrong with an item."""

    kind: Literal["flag"] = "flag"
    item: ItemId
    reason: Annotated[str, Strict(), Field(max_length=10_000)]


Line = Item | Judgement | Undo | Skip | Flag
KINDS: dict[str, type[Line]] = {"item": Item, "judgement": Judgement, "undo": Undo, "skip": Skip, "flag": Flag}


def compute_item_id(mode: str, prompt: str, history: str, texts: Sequence[str]) -> str:
    """What tells an item from others: 16 hex digits that follow from its texts."""
    canonical = json.dumps([mode, prompt, history, list(texts)], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def find_value_fault(value: Value, item: Item) -> str:
    """Why a value cannot be one of the item; empty if it can."""
    if (mode := _VALUES[type(value)]) != item.mode:
        return f"expected a value of mode {item.mode}, got one of mode {mode}"
    if isinstance(value, RankingValue) and len(value.ranks) != len(item.answers):
        return f"ranks: expected one for each of {len(item.answers)} answers, got {len(value.ranks)}"
    if isinstance(value, StepsValue) and len(value.labels) != len(item.steps):
        return f"labels: expected one for each of {len(item.steps)} steps, got {len(value.labels)}"
    if isinstance(value, EditValue) and value.start is not None and value.start >= len(item.answers):
        return f"from: expected null or the place of one of {len(item.answers)} answers, got {value.start}"
    return ""


def parse_line(text: str | bytes) -> Line:
    """The line that a JSON text is; ValueError in one line if it is none."""
    return parse_line_object(_parse_json(text))


def parse_line_object(loaded: object) -> Line:
    """The line that an object is, as JSON has it; ValueError in one line if it is none."""
    if not isinstance(loaded, dict):
        raise ValueError(f"expected an object, got {type(loaded).__name__}")
    kind = KINDS.get(loaded["kind"]) if isinstance(loaded.get("kind"), str) else None
    if kind is None:
        raise ValueError(f"kind: expected {', '.join(KINDS)}, got {format_short_value(loaded.get('kind'))}")
    try:
        return kind.model_validate(loaded, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ValueError(format_validation_error(error)) from None


def format_line_as_json(line: Line) -> str:
    """A line as JSON, without the newline behind it."""
    fields = {"kind": line.kind, **line.model_dump(mode="json", by_alias=True, exclude={"person", "at"})}
    if not isinstance(line, Item):
        fields |= {"person": line.person, "at": line.at}
    if fields.get("steps") == []:
        del fields["steps"]
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def _parse_json(text: str | bytes) -> object:
    decoded = ""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        loaded: object = json.loads(
            decoded, object_pairs_hook=_build_unique_key_dict, parse_constant=_reject_json_constant
        )
        return loaded
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8, found byte 0x{error.object[error.start]:02x} at {error.start}") from None
    except RecursionError:
        raise ValueError("expected JSON that is not nested so deeply") from None
    except json.JSONDecodeError as error:
        if decoded[:7] in ("<<<<<<<", "=======", ">>>>>>>"):
            raise ValueError(
                "a conflict of git stands here; keep the lines of both sides and delete its marks"
            ) from None
        raise ValueError(f"expected JSON: {error}") from None


def _build_unique_key_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice; expected it once")
    return fields


def _reject_json_constant(name: str) -> object:
    raise ValueError(f"expected numbers, got {name}")


def format_validation_error(error: ValidationError) -> str:
    """The first thing that is wrong, in one line."""
    fault = error.errors(include_url=False)[0]
    location = ".".join(map(str, fault["loc"]))
    where = f"{location}: " if location else ""
    if fault["type"] == "extra_forbidden":
        return f"{where}unknown field"
    if fault["type"] == "missing":
        return f"{where}is not there"
    text = (
        str(fault["ctx"]["error"])
        if fault["type"] == "value_error"
        else fault["msg"].replace("Input should", "expected to")
    )
    return (
        f"{where}{text}"
        if not location or ", got" in text
        else f"{where}{text}, got {format_short_value(fault['input'])}"
    )
