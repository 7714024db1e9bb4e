"""What a sweep varies: `dpo.beta=0.05,0.1,0.2` is an axis, and every combination of the axes' values is a point."""

import itertools
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from flows.params.editing import Edit
from flows.params.files import SEED, ParameterError, parse_yaml_text
from tasks.common.config_faults import shorten_text

MOST = 1000  # points
BROKEN = re.compile(r"[\[\]{}\"'#&*!|>%@`]")  # what makes a list of values YAML of its own


@dataclass(frozen=True)
class Axis:
    """A parameter and the values that it takes."""

    key: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class Point:
    """One combination of the axes' values. `number` counts from 1, in the order of the grid."""

    number: int
    settings: tuple[tuple[str, object], ...]  # in the order of the axes, the seed last

    @property
    def name(self) -> str:
        """`dpo.beta=0.1,seed=1`; `base` where nothing varies."""
        return ",".join(f"{key}={format_param_value(value)}" for key, value in self.settings) or "base"

    @property
    def without_seed(self) -> tuple[tuple[str, object], ...]:
        """The settings that points which differ in their seed alone have in common."""
        return tuple(pair for pair in self.settings if pair[0] != SEED)

    @property
    def settings_as_text(self) -> dict[str, str]:
        """Key -> value as it stands in params.yaml."""
        return {key: format_param_value(value) for key, value in self.settings}

    def edits(self, source: str) -> list[Edit]:
        """The changes of params.yaml that lead to this point; `source` is named where one is wrong."""
        return [Edit(tuple(key.split(".")), value, format_param_value(value), source) for key, value in self.settings]


def format_param_value(value: object) -> str:
    """A value as it stands in params.yaml."""
    return value if isinstance(value, str) and value and not BROKEN.search(value) else json.dumps(value)


def parse_axis(argument: str) -> Axis:
    """The axis that `SECTION.KEY=VALUE,VALUE..` asks for; the values are those of a YAML list without its brackets."""
    key, equals, text = argument.partition("=")
    key = key.strip()
    if not equals or len(key.split(".")) < 2 or not all(key.split(".")):
        raise ParameterError(
            f"sweep {shorten_text(argument)}: expected SECTION.KEY=VALUE,VALUE.., such as dpo.beta=0.05,0.1,0.2"
        )
    values = parse_yaml_text(f"[{text}]", f"sweep {key}")
    if not isinstance(values, list) or not values:
        raise ParameterError(f"sweep {key}: expected at least one value")
    return Axis(key, check_distinct_values(key, values))


def parse_seeds_axis(text: str) -> Axis | None:
    """The axis of `--seeds 0,1,2`; None without one."""
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) < 2**32 for part in parts):
        raise ParameterError(f"--seeds {shorten_text(text)}: expected whole numbers from 0 on, such as 0,1,2")
    return Axis(SEED, check_distinct_values("--seeds", [int(part) for part in parts]))


def build_grid_points(axes: Sequence[Axis], seed: Axis | None, drawn: int | None = None) -> list[Point]:
    """Every combination, or `drawn` of them without the seeds, always the same; each with every seed."""
    names = [parameter.key for parameter in axes]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"sweep {name}: given twice; list its values once, with commas between them")
    grid = [
        tuple(zip(names, values, strict=True))
        for values in itertools.product(*(parameter.values for parameter in axes))
    ]
    if drawn is not None and drawn < len(grid):
        chosen = sorted(random.Random(0).sample(range(len(grid)), drawn))
        grid = [grid[index] for index in chosen]
    if (count := len(grid) * len(seed.values if seed else (0,))) > MOST:
        raise ParameterError(
            f"sweep: {count:,} points, of which {MOST:,} are possible; draw some of them with --random N"
        )
    with_seeds = [
        (*settings, *(((SEED, value),) if seed else ()))
        for settings in grid
        for value in (seed.values if seed else (0,))
    ]
    return [Point(number, settings) for number, settings in enumerate(with_seeds, 1)]


def check_distinct_values(key: str, values: Sequence[object]) -> tuple[object, ...]:
    """These values; ParameterError unless they are several things, or one, of which none stands there twice."""
    if isinstance(values, str) or not values:
        raise ParameterError(f"{key}: expected a list of values, got {values!r}")
    texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
    for value, text in zip(values, texts, strict=True):
        if texts.count(text) > 1:
            raise ParameterError(f"{key}: {format_param_value(value)} stands there twice")
    return tuple(values)
