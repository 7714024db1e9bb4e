"""Whether an environment is the one that a data set was recorded in, by what Minari's metadata.json says of that one.

That is its `env_spec`, as Gymnasium writes it (id, arguments, step limit, wrappers), and its two spaces. How it was
drawn, and wrappers that change nothing of what is seen, done and earned, make no difference.
"""

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from minari.serialization import deserialize_space

from tasks.common.errors import DataError
from tasks.offline.configs.wrappers import BETWEEN, BRACE
from tasks.offline.environments import saved_environments, simulators, wrapping

Json = dict[str, Any]
DRAWING = ("render_mode",)  # arguments that change nothing but pictures
NEUTRAL = (
    "HumanRendering",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
)
LIMIT = "max_episode_steps"
NOTHING = "nothing"
HUGE = float(np.finfo(np.float32).max)  # older spaces have it where newer ones have no bound


def check_origin_and_list_missing(metadata: Mapping[str, Any], environment: str) -> list[str]:
    """DataError with one line that names both sides where they differ; returns what metadata.json lacks, so that it was
    not compared.
    """
    if posttrain := metadata.get("posttrain"):
        if saved_environments.find_environment_folder(environment) is None and _normalize_environment_name(
            posttrain["environment"]
        ) != _normalize_environment_name(environment):
            raise DataError(f"recorded in {posttrain['environment']}, but environment is {environment}")
        return []
    env = simulators.make_offline_environment(environment)
    env.close()
    spec = _decode_json_object(metadata.get("env_spec"))
    lacking = []
    if spec is not None:
        _check_spec(spec, env, environment)
    elif saved_environments.find_environment_folder(environment) is None:
        lacking.append("env_spec")
    for name, own_space in (("observation_space", env.own_observations), ("action_space", env.own_actions)):
        recorded = _decode_json_object(metadata.get(name))
        if recorded is None:
            lacking.append(name)
        elif not is_same_space(space := _decode_space(name, recorded), own_space):
            sides = (
                f"recorded with {name} {_format_space_in_one_line(space)}, but that of {environment} is "
                f"{_format_space_in_one_line(own_space)}"
            )
            raise DataError(f"{sides}; expected the environment with the wrappers that it was recorded in, as its id")
    return lacking


def _decode_json_object(value: Any) -> Json | None:
    """An object that may have been written as text inside the metadata, or not at all; ValueError for anything else."""
    decoded = json.loads(value) if isinstance(value, str) else value
    if decoded is not None and not isinstance(decoded, dict):
        raise ValueError(f"an object expected, got {decoded!r}")
    return decoded


def _decode_space(name: str, recorded: Json) -> simulators.Space:
    """The space that Minari wrote; ValueError where it is none."""
    try:
        space: simulators.Space = deserialize_space(json.dumps(recorded))
    except Exception as error:  # Minari checks little, and anything is raised at what it does not expect
        raise ValueError(f"{name}: a space expected, got {json.dumps(recorded)} ({type(error).__name__})") from None
    return space


def _normalize_environment_name(environment: str) -> tuple[object, ...]:
    """Name, arguments and wrappers, however they are written; the module that registers it is left out."""
    name, arguments, wrappers = wrapping.split_environment_name(environment)
    return simulators.strip_module(name), arguments, wrappers


def _check_spec(recorded: Json, env: simulators.Plain, environment: str) -> None:
    """DataError where an environment's spec is not the recorded one."""
    if not isinstance(recorded.get("id"), str):
        raise ValueError(f"env_spec: an id expected, got {json.dumps(recorded)}")
    made = env.env.spec
    name = made.id if made else simulators.strip_module(wrapping.split_environment_name(environment)[0])
    differences = (
        []
        if made is None or name != recorded["id"]
        else [*_iterate_spec_differences(recorded, _convert_spec_to_json(made), env)]
    )
    if name != recorded["id"] or differences:
        more = f" ({'; '.join(differences)})" if differences else ""
        raise DataError(f"recorded in {format_spec_as_id(recorded)}, but environment is {environment}{more}")


def _iterate_spec_differences(recorded: Json, made: Json, env: simulators.Plain) -> Iterator[str]:
    """Each argument, the limit and the wrappers, where they are not the same, with both sides."""
    defaults = inspect.signature(type(env.unwrapped).__init__).parameters
    sides = _get_spec_arguments(recorded), _get_spec_arguments(made)
    for key in sorted({*sides[0], *sides[1]}):
        default = defaults[key].default if key in defaults else inspect.Parameter.empty
        unset = NOTHING if default is inspect.Parameter.empty else _round_trip_json(default)
        recorded_side, made_side = (side.get(key, unset) for side in sides)
        if recorded_side != made_side:
            yield _format_difference(key, recorded_side, made_side)
    if recorded.get(LIMIT, made[LIMIT]) != made[LIMIT]:
        yield _format_difference(LIMIT, recorded[LIMIT], made[LIMIT])
    recorded_side = [*map(_format_wrapper, _list_relevant_wrappers(recorded))]
    made_side = [*map(_format_wrapper, _list_relevant_wrappers(made))]
    if recorded_side != made_side:
        yield _format_difference("wrappers", " | ".join(recorded_side) or NOTHING, " | ".join(made_side) or NOTHING)


def _convert_spec_to_json(spec: EnvSpec) -> Json:
    """As Gymnasium writes it, but for functions, which it does not write."""
    fields: Json = _round_trip_json(dataclasses.asdict(spec))
    return fields


def _round_trip_json(value: Any) -> Any:
    """What a value is once it was written: a tuple is a list then, and so is an array."""
    return json.loads(json.dumps(value, default=lambda leaf: leaf.tolist() if hasattr(leaf, "tolist") else str(leaf)))


def _format_difference(what: str, recorded: object, made: object) -> str:
    shown = [side if isinstance(side, str) else json.dumps(side) for side in (recorded, made)]
    return f"{what}: {shown[0]} there, {shown[1]} here"


def _get_spec_arguments(spec: Json) -> Json:
    return {key: value for key, value in (spec.get("kwargs") or {}).items() if key not in DRAWING}


def _list_relevant_wrappers(spec: Json) -> list[Json]:
    return [wrapper for wrapper in spec.get("additional_wrappers") or () if wrapper["name"] not in NEUTRAL]


def _format_wrapper(wrapper: Json) -> str:
    """A wrapper as an id has it: those of Gymnasium without their module."""
    module, _, name = wrapper["entry_point"].rpartition(":")
    beginning = "" if module.startswith("gymnasium.") else f"{module}:"
    return f"{beginning}{name}{_format_arguments(wrapper.get('kwargs') or {})}"


def _format_arguments(arguments: Json) -> str:
    pairs = ", ".join(f"{key}: {json.dumps(value)}" for key, value in sorted(arguments.items()))
    return f"{BRACE}{pairs}}}" if pairs else ""


def format_spec_as_id(spec: Json) -> str:
    """A spec as the id of an environment: what Gymnasium's registry does not say itself."""
    registered = gymnasium.registry.get(spec["id"])
    usual: Json = {**registered.kwargs, LIMIT: registered.max_episode_steps} if registered else {LIMIT: None}
    every = {**_get_spec_arguments(spec), LIMIT: spec.get(LIMIT, usual[LIMIT])}
    changed = {key: value for key, value in every.items() if key not in usual or usual[key] != value}
    return BETWEEN.join([spec["id"] + _format_arguments(changed), *map(_format_wrapper, _list_relevant_wrappers(spec))])


def is_same_space(space: simulators.Space, other: simulators.Space) -> bool:
    """Whether two spaces have the same elements, as numbers: of a Box shape and bounds count, and how precise its
    numbers are does not.
    """
    if isinstance(space, spaces.Box) and isinstance(other, spaces.Box):
        return (
            space.shape == other.shape
            and _are_bounds_close(space.low, other.low)
            and _are_bounds_close(space.high, other.high)
        )
    if isinstance(space, spaces.Discrete) and isinstance(other, spaces.Discrete):
        return bool(space.n == other.n and space.start == other.start)
    if isinstance(space, spaces.MultiDiscrete) and isinstance(other, spaces.MultiDiscrete):
        return np.array_equal(space.nvec, other.nvec) and np.array_equal(space.start, other.start)
    if isinstance(space, spaces.Dict) and isinstance(other, spaces.Dict):
        return {*space} == {*other} and all(is_same_space(space[key], other[key]) for key in space)
    if isinstance(space, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(space) == len(other) and all(
            is_same_space(mine, its) for mine, its in zip(space, other, strict=True)
        )
    return bool(space == other)


def _are_bounds_close(bounds: Any, other: Any) -> bool:
    sides = np.asarray([bounds, other], np.float64)
    return bool(np.allclose(*np.where(np.abs(sides) >= HUGE, np.copysign(np.inf, sides), sides)))


def _format_space_in_one_line(space: simulators.Space) -> str:
    return " ".join(str(space).split())
