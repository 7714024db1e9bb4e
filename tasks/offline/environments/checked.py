"""Every environment as it is played: what `reset` and `step` return is checked here alone, and every episode has an
end.

A fault is a DataError of one line that names the environment, the episode's seed and the step. An episode is truncated
after its limit of steps, whatever the wrappers inside make of theirs; one in which the environment takes too many
seconds ends the stage.
"""

import time
from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from tasks.common.config_faults import shorten_text
from tasks.common.errors import DataError, StageError
from tasks.offline.environments.deadline import Alarm, Overdue

SECONDS = 600.0  # of an episode, in the environment alone, where it has no attribute max_seconds
MOST = 3.4e38  # what single precision holds
Info = dict[str, Any]


@cache
def get_process_alarm() -> Alarm:
    """The process's only one."""
    return Alarm()


class Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The environment of that name with an end after `limit` steps; rewards are floats, and both flags are bools."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, limit: float) -> None:
        super().__init__(env)
        self.name = name
        self.limit = limit
        self.seconds = _parse_episode_time_limit(getattr(env.unwrapped, "max_seconds", None), name)
        self.space = env.observation_space
        self.alarm = get_process_alarm()
        self.seed: int | None = None  # the last one
        # episodes since the seed; steps and seconds of the episode
        self.later = 0
        self.steps = 0
        self.spent = 0.0

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # a property in Gymnasium's wrappers too
        """That of the environment inside, which this one does not change."""
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """The first observation, and what the environment passes beside it."""
        self.seed, self.later = (self.seed, self.later + 1) if seed is None else (seed, 0)
        self.steps = 0
        self.spent = 0.0
        pair = self._call_within_time_limit(lambda: self.env.reset(seed=seed, options=options))
        if not isinstance(pair, tuple) or len(pair) != 2:
            self._raise_data_error(f"expected a pair (observation, info), got {format_value_and_type(pair)}")
        self._check_observation(pair[0])
        return pair

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """One step."""
        self.steps += 1
        parts = self._call_within_time_limit(lambda: self.env.step(action))
        if not isinstance(parts, tuple) or len(parts) != 5:
            expected = "(observation, reward, terminated, truncated, info)"
            self._raise_data_error(f"expected {expected}, got {format_value_and_type(parts)}")
        seen, reward, terminated, truncated, info = parts
        self._check_observation(seen)
        ended = self._convert_flag("terminated", terminated)
        cut = self._convert_flag("truncated", truncated) or (self.steps >= self.limit and not ended)
        return seen, self._convert_reward(reward), ended, cut, info

    def _call_within_time_limit(self, answer: Callable[[], Any]) -> Any:
        """What the environment answers, in time."""
        began = time.monotonic()
        try:
            self.alarm.set(began + self.seconds - self.spent)
            try:
                result = answer()
            finally:
                self.alarm.due = inf
        except Overdue:
            self.alarm.due = inf
            self.spent = self.seconds
        except StageError:  # a line of its own
            raise
        except (Exception, SystemExit) as error:  # whatever runs in it
            raise DataError(
                f"{self._describe_position()}: {type(error).__name__}: {error}".removesuffix(": ")
            ) from error
        else:
            self.spent += time.monotonic() - began
            if self.spent < self.seconds:
                return result
        limit = f"{self.seconds:g} s, or an attribute max_seconds of the environment"
        self._raise_data_error(
            f"the episode took longer than {self.spent:.4g} s in the environment; expected at most {limit}"
        )

    def _check_observation(self, seen: Any) -> None:
        if (wrong := find_observation_fault(self.space, seen, "the observation")) is not None:
            self._raise_data_error(wrong)

    def _convert_reward(self, reward: Any) -> float:
        """The reward, also where it is an array of one number; a text is none."""
        if type(reward) is float and abs(reward) <= MOST:
            return reward
        try:
            value = float("nan") if isinstance(reward, str | bytes) else float(np.asarray(reward).item())
        except (TypeError, ValueError, OverflowError, RuntimeError):
            value = float("nan")
        if not abs(value) <= MOST:
            self._raise_data_error(f"the reward: expected one finite number, got {format_value_and_type(reward)}")
        return value

    def _convert_flag(self, name: str, value: Any) -> bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        plain = np.asarray(value)
        if plain.size != 1 or plain.dtype.kind not in "biuf" or plain.item() not in (0, 1):
            self._raise_data_error(f"{name}: expected true or false, got {format_value_and_type(value)}")
        return bool(plain.item())

    def _describe_position(self) -> str:
        episode = f"episode {self.later + 1} from seed {self.seed} on" if self.later else f"seed {self.seed}"
        return f"environment {self.name}: {episode}, {f'step {self.steps}' if self.steps else 'reset'}"

    def _raise_data_error(self, what: str) -> NoReturn:
        raise DataError(f"{self._describe_position()}: {what}")


def _parse_episode_time_limit(value: Any, name: str) -> float:
    """An environment's max_seconds, or SECONDS where it has none; DataError where that is no time."""
    if value is None:
        return SECONDS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise DataError(
            f"environment {name}: max_seconds: expected a number above 0, got {format_value_and_type(value)}"
        )
    return float(value)


def find_observation_fault(space: spaces.Space[Any], seen: Any, name: str) -> str | None:
    """Why an observation does not fit the space; None where it does. Numbers of a Box may lie beyond its bounds."""
    if isinstance(space, spaces.Dict):
        if not isinstance(seen, Mapping) or not space.spaces.keys() <= seen.keys():
            return f"{name}: expected a dictionary of {', '.join(space.spaces)}, got {format_value_and_type(seen)}"
        inner = ((part, seen[key], f"{name}: {key}") for key, part in space.spaces.items())
        return next((wrong for each in inner if (wrong := find_observation_fault(*each)) is not None), None)
    if isinstance(space, spaces.Tuple):
        if not isinstance(seen, tuple | list) or len(seen) != len(space.spaces):
            return f"{name}: expected a tuple of {len(space.spaces)}, got {format_value_and_type(seen)}"
        inner = ((part, seen[index], f"{name}: part {index}") for index, part in enumerate(space.spaces))
        return next((wrong for each in inner if (wrong := find_observation_fault(*each)) is not None), None)
    if isinstance(space, spaces.Box):
        return _find_box_fault(space, seen, name)
    if not (space.contains(seen) or space.contains(np.asarray(seen))):
        return f"{name}: expected one of {space}, got {format_value_and_type(seen)}"
    return None


def _find_box_fault(space: spaces.Box, seen: Any, name: str) -> str | None:
    try:
        array = np.asarray(seen)
    except Exception:  # of rows of several lengths, of tensors on a GPU
        return f"{name}: expected numbers of shape {space.shape}, got {format_value_and_type(seen)}"
    if array.shape != space.shape or array.dtype.kind not in "biuf":
        got = f"{array.dtype} of shape {array.shape}" if array.shape else format_value_and_type(seen)
        return f"{name}: expected numbers of shape {space.shape}, got {got}"
    if array.dtype.kind == "f" and not np.vdot(array, array) <= MOST and not (np.abs(array) <= MOST).all():
        position = tuple(int(index) for index in np.argwhere(~(np.abs(array) <= MOST))[0])
        return f"{name}: expected finite numbers, got {array[position]} at {list(position)}"
    return None


def format_value_and_type(value: Any) -> str:
    """A value and its type in a message."""
    return f"{shorten_text(repr(value))} ({type(value).__name__})"
