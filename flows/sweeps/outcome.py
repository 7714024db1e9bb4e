"""What came out at each point: the headline of its evaluations, read from the cache, and what the sweep cost."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.engine.dvc_lock import get_entry_hashes
from flows.lineage import cache_objects
from flows.lineage.pipeline_summary import iterate_stage_headline_metrics
from flows.params.files import SEED
from flows.sweeps.axes import format_param_value
from flows.sweeps.sweep import Ended

FIRST = ("strict_greedy", "reference_loss", "score", "return")  # of a policy's headline, the first that it has
LOWER = ("reference_loss",)  # of these, less is better


@dataclass(frozen=True)
class HeadlineValue:
    """A headline number at a point, or at all points that differ in their seed alone.

    `low` and `high` bound its 95 % interval, over problems or episodes at a point and over seeds for several; None
    without one.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int = 1


@dataclass(frozen=True)
class SweepCost:
    """Seconds of the stages that ran, and of all points' stages without sharing; sentences on what stopping early
    saved.
    """

    ran: float
    alone: float
    early: Sequence[str] = ()


@dataclass(frozen=True)
class SettingRow:
    """Points that differ in their seed alone: their settings, and of each metric the value over seeds and that of each
    point.
    """

    settings: Mapping[str, str]
    points: Sequence[Ended]
    over_seeds: Mapping[str, HeadlineValue]
    single: Mapping[str, Sequence[tuple[int | None, HeadlineValue]]]  # metric -> seed and value

    @property
    def behind(self) -> str:
        """Why it was not trained to its end; empty if it was."""
        return next((ended.behind for ended in self.points if ended.behind), "")


def load_point_metrics(root: Path, ended: Ended, requested: str = "") -> dict[str, HeadlineValue]:
    """`POLICY/METRIC` -> its value at the point: the headline of every evaluation that is in the cache, and the metric
    that is asked for.
    """
    values: dict[str, HeadlineValue] = {}
    for stage, entry in ended.entries.items():
        measured = _load_stage_metrics(root, get_entry_hashes(entry, "outs"))
        numbers = dict(iterate_stage_headline_metrics(stage, measured))
        policy, _, metric = requested.rpartition("/")
        estimate = measured.get(metric)
        if stage.partition("@")[2] == policy and isinstance(estimate, Mapping) and "mean" in estimate:
            values[requested] = HeadlineValue(float(estimate["mean"]), float(estimate["low"]), float(estimate["high"]))
        for key, mean in numbers.items():
            if not key.endswith(("/low", "/high")):
                values[key] = HeadlineValue(mean, numbers.get(f"{key}/low"), numbers.get(f"{key}/high"))
    return values


def select_shown_metrics(by_point: Mapping[int, Mapping[str, HeadlineValue]], metric: str = "") -> list[str]:
    """The metrics to show: the one asked for, or of each policy that differs between points the first of its
    headline.
    """
    names = list(dict.fromkeys(name for values in by_point.values() for name in values))
    if metric:
        return [name for name in names if name == metric]
    policies: dict[str, str] = {}
    for first in FIRST:
        for name in names:
            policy, _, what = name.rpartition("/")
            if what == first:
                policies.setdefault(policy, name)
    headline = [name for name in names if name in policies.values()]
    differing = [
        name for name in headline if len({values[name].mean for values in by_point.values() if name in values}) > 1
    ]
    return differing or headline


def build_setting_rows(
    points: Sequence[Ended], by_point: Mapping[int, Mapping[str, HeadlineValue]], names: Sequence[str]
) -> list[SettingRow]:
    """A row for each setting, the best by the first metric first."""
    groups: dict[str, list[Ended]] = {}
    for ended in points:
        groups.setdefault(json.dumps(ended.point.without_seed, default=str), []).append(ended)
    table = []
    for group in groups.values():
        single = {
            name: [
                (_get_seed(ended), by_point[ended.point.number][name])
                for ended in group
                if name in by_point[ended.point.number]
            ]
            for name in names
        }
        whole = not any(ended.behind for ended in group)  # seeds that were in the cache already do not stand for all
        values = {
            name: average_over_seeds([value for _, value in each]) for name, each in single.items() if each and whole
        }
        settings = {key: format_param_value(value) for key, value in group[0].point.without_seed}
        table.append(SettingRow(settings, group, values, single))

    def rank(row: SettingRow) -> tuple[bool, float]:
        value = row.over_seeds.get(names[0]) if names else None
        return value is None, 0.0 if value is None else value.mean * (1 if names[0].endswith(LOWER) else -1)

    return sorted(table, key=rank)


def average_over_seeds(values: Sequence[HeadlineValue]) -> HeadlineValue:
    """The mean, with Student's interval over seeds where there are several; a single value as it is."""
    if len(values) == 1:
        return values[0]
    from scipy.special import stdtrit

    means = [value.mean for value in values]
    mean = statistics.fmean(means)
    count = len(means)
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(means) / count**0.5
    return HeadlineValue(mean, mean - half, mean + half, count)


def _get_seed(ended: Ended) -> int | None:
    seed = dict(ended.point.settings).get(SEED)
    return seed if isinstance(seed, int) else None


def _load_stage_metrics(root: Path, outs: Mapping[str, str]) -> Mapping[str, Any]:
    """The content of a stage's file of metrics."""
    for path, md5 in outs.items():
        if path.startswith("data/metrics/") and (file := cache_objects.find_cache_object(root, md5)) is not None:
            content = json.loads(file.read_text())
            return content if isinstance(content, dict) else {}
    return {}
