"""Environments by name, all with one interface: flat float32 observations; actions 0, 1, .. or vectors within [-1, 1].

Besides Gymnasium's there are small ones of our own, whose optimum is known: `graph`, `key-to-door`, and those of
goals.py. Those of other packages are found too: by an entry point `gymnasium.envs` of an installed package, or as
`module:id`, which imports the module; `module:folder` is one that a folder holds (saved_environments.py). Any of them
may have wrappers, and a registered one arguments (tasks/offline/configs/wrappers.py).
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import namespace
from numpy.typing import NDArray
from torch import Tensor

from tasks.algorithms.offline.hindsight import Goals
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import DataError
from tasks.offline.configs.wrappers import BETWEEN, BRACE
from tasks.offline.environments import goals, modules, saved_environments, wrapping
from tasks.offline.environments.checked import Checked
from tasks.offline.environments.discrete import GRAPH, GraphEnv, KeyToDoorEnv

Seen = NDArray[np.float32]
Info = dict[str, Any]  # what Gymnasium passes beside observations
Space = spaces.Space[Any]
NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)  # what parts of an observation may be
ROUNDING = 1e-5  # of half a range: how far beyond its bounds an action that somebody recorded may lie
# steps until an episode is truncated where Gymnasium sets no limit: a policy that stays put would play for ever
LONGEST = 1000


class Plain(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Any environment with flat float32 observations and with actions 0, 1, .. or within [-1, 1], clipped to it.

    Where the environment's own are vectors of whole numbers, the nearest one is played.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], unlimited: bool = False) -> None:
        super().__init__(env)
        self.unlimited = unlimited  # whether its episodes end after LONGEST steps since it has no limit of its own
        self.own_observations = env.observation_space
        self.own_actions = env.action_space
        self.boxed = isinstance(self.own_observations, spaces.Box) and len(self.own_observations.shape) == 1
        size = spaces.flatdim(self.own_observations)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if isinstance(self.own_actions, spaces.Discrete):
            self.action_space = spaces.Discrete(int(self.own_actions.n))
        else:
            assert isinstance(self.own_actions, spaces.Box), "_supported"
            self.action_space = spaces.Box(-1, 1, self.own_actions.shape, np.float32)
            self.whole = self.own_actions.dtype.kind in "iu"
            high = self.own_actions.high
            low = self.own_actions.low
            if self.whole:  # the sum of two bytes is no byte
                high = high.astype(np.float64)
                low = low.astype(np.float64)
            self.middle = (high + low) / 2
            self.reach = (high - low) / 2

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Seen, Info]:
        """The first observation, flat."""
        seen, info = self.env.reset(seed=seed, options=options)
        return self._flatten_observation(seen), info

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, Info]:
        """One step of the environment with the action that `action` stands for."""
        if isinstance(self.own_actions, spaces.Discrete):
            own_action = int(action) + int(self.own_actions.start)
        else:
            own_action = self.middle + self.reach * np.clip(action, -1, 1)
            own_action = np.rint(own_action).astype(self.own_actions.dtype) if self.whole else own_action
        seen, reward, terminated, truncated, info = self.env.step(own_action)
        return self._flatten_observation(seen), float(reward), terminated, truncated, info

    def _flatten_observation(self, seen: Any) -> Seen:
        return np.asarray(seen if self.boxed else spaces.flatten(self.own_observations, seen), dtype=np.float32)

    def scale_recorded_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The environment's own actions, (T, A) or (T,), as `step` takes them; values that are not finite stay so."""
        if isinstance(self.own_actions, spaces.Discrete):
            return actions - int(self.own_actions.start)
        scaled = (actions - self.middle) / self.reach
        return np.where(np.isfinite(scaled), np.clip(scaled, -1, 1), scaled).astype(np.float32)

    def find_first_refused_action(self, actions: NDArray[Any]) -> tuple[tuple[int, ...], str] | None:
        """The place of the first action that the environment does not have, and what it has there; `actions` are (T, A)
        or (T,).

        An action beyond a bound by no more than rounding is accepted, and so is a component that is not finite.
        """
        if isinstance(self.own_actions, spaces.Discrete):
            first = int(self.own_actions.start)
            last = int(self.own_actions.start + self.own_actions.n) - 1
            wrong = (actions < first) | (actions > last) | (actions != np.floor(actions))
        else:
            beyond = np.abs(actions - self.middle) > self.reach * (1 + ROUNDING)
            wrong = np.isfinite(actions) & (beyond | (actions != np.rint(actions)) if self.whole else beyond)
        if not wrong.any():
            return None
        position = tuple(int(index) for index in np.argwhere(wrong)[0])
        if isinstance(self.own_actions, spaces.Discrete):
            return position, f"one of {first} to {last}"
        middle = float(self.middle[position[1:]])
        reach = float(self.reach[position[1:]])
        return position, f"a {'whole ' * self.whole}number within [{middle - reach:g}, {middle + reach:g}]"

    def flatten_recorded_observations(self, observations: Mapping[str, NDArray[Any]]) -> Seen:
        """The environment's own observations, by the names of `parts`, one a step in each, as `step` gives them: (T +
        1, O).
        """
        columns = []
        for name, space in split_space_into_parts(self.own_observations).items():
            values = observations[name]
            if not isinstance(space, spaces.Box):
                flat: list[Any] = [spaces.flatten(space, value) for value in values.astype(np.int64)]
                values = np.stack(flat)
            columns.append(values.reshape(len(values), -1))
        return np.concatenate(columns, 1)


def split_space_into_parts(space: Space, name: str = "observations") -> dict[str, Space]:
    """What a space is made of, in the order in which Gymnasium's `flatten` puts it in a row, named as Minari's files
    name it.

    A Dict's parts stand in the order of its keys (sorted, unless the environment itself orders them), a Tuple's as they
    come.
    """
    if isinstance(space, spaces.Dict):
        inner = {f"{name}/{key}": part for key, part in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        inner = {f"{name}/_index_{index}": part for index, part in enumerate(space.spaces)}
    else:
        return {name: space}
    return {path: leaf for key, part in inner.items() for path, leaf in split_space_into_parts(part, key).items()}


OWN: dict[str, Callable[..., gymnasium.Env[Any, Any]]] = {
    "graph": GraphEnv,
    "key-to-door": KeyToDoorEnv,
    "bit-flip": goals.BitFlipEnv,
    "goal-graph": goals.GoalGraphEnv,
    "reach": goals.ReachEnv,
}
OPTIMA = {  # mean return of the best policy
    "graph": float(-GRAPH.distances[GRAPH.starts].mean()),
    "key-to-door": 1.0,
    "bit-flip": goals.compute_bit_flip_best_return(),
    "goal-graph": goals.compute_goal_graph_best_return(),
    "reach": goals.compute_reach_best_return(),
}


def find_best_possible_return(environment: str) -> float | None:
    """The mean return of the best policy, where it is known; an environment that a folder holds may say it itself, as
    `optimum`.
    """
    if saved_environments.find_environment_folder(environment) is None:
        return OPTIMA.get(environment)
    best_return: float | None = getattr(make_offline_environment(environment).unwrapped, "optimum", None)
    return best_return


PLUGINS = "gymnasium.envs"  # the group of entry points by which packages register environments


def strip_module_and_version(environment: str) -> str:
    """Its name without module and version: Hopper of Hopper-v5; one with arguments or wrappers is another environment,
    in all versions.
    """
    return environment if _has_arguments_or_wrappers(environment) else strip_module(environment).rsplit("-v", 1)[0]


def strip_module(environment: str) -> str:
    """Its name in Gymnasium's registry: Hopper-v5 of module:Hopper-v5. With arguments or wrappers it has none there."""
    return environment if _has_arguments_or_wrappers(environment) else environment.rpartition(":")[2]


def _has_arguments_or_wrappers(environment: str) -> bool:
    """Whether it has arguments or wrappers."""
    return BETWEEN in environment or BRACE in environment


def make_offline_environment(environment: str, limit: int | None = None) -> Plain:
    """The environment of that name; DataError with one line if there is none, or if its spaces are not supported.

    `limit` is the number of steps after which an episode is truncated, in the place of the environment's own.
    """
    name, arguments, wrappers = wrapping.split_environment_name(environment)
    folder = saved_environments.find_environment_folder(environment)
    if arguments and (name in OWN or folder):
        raise DataError(f"environment {environment}: {name} takes no arguments")
    if name in OWN:
        env = OWN[name](limit)
    else:
        env = (
            saved_environments.make_saved_environment(environment, folder)
            if folder
            else _make_registered_environment(name, arguments, limit)
        )
    env = wrapping.apply_wrappers(
        env, environment, [wrapper for wrapper in wrappers if limit is None or wrapper.name != "TimeLimit"]
    )
    if wordy := [
        part for part, space in split_space_into_parts(env.observation_space).items() if not isinstance(space, NUMBERS)
    ]:
        raise DataError(
            f"environment {environment}: {_describe_non_numeric_parts(environment, env.observation_space, wordy)}"
        )
    if not _is_supported_action_space(env.action_space):
        raise DataError(f"environment {environment}: actions of {env.action_space} are not supported")
    own_limit = _find_own_step_limit(env)
    return Plain(Checked(env, environment, limit or own_limit or LONGEST), unlimited=not (limit or own_limit))


def _find_own_step_limit(env: gymnasium.Env[Any, Any]) -> float | None:
    """The steps after which the environment truncates its episodes; None where it does not say.

    One of a folder may say it as `max_steps`.
    """
    steps = getattr(env.unwrapped, "max_steps", None) if env.spec is None else env.spec.max_episode_steps
    return steps if isinstance(steps, int | float) and steps > 0 else None


def _make_registered_environment(
    environment: str, arguments: Mapping[str, Any], limit: int | None
) -> gymnasium.Env[Any, Any]:
    """One of another package."""
    _ensure_environment_registered(environment)
    spec = gymnasium.spec(strip_module(environment))
    if "mujoco" in str(spec.entry_point):
        _silence_mujoco_warnings()
    keywords = {"max_episode_steps": spec.max_episode_steps, "disable_env_checker": True, **arguments}
    own_limit = keywords.pop("max_episode_steps")
    steps = limit or own_limit
    try:
        return gymnasium.make(strip_module(environment), -1 if steps is None else steps, **keywords)
    except Exception as error:  # of an old version, with packages of its own, or whatever runs in it
        what = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"environment {environment}: cannot be made: {what}") from None


def _ensure_environment_registered(environment: str) -> None:
    """See to it that Gymnasium knows the environment; DataError with one line if it cannot."""
    module, _, name = environment.rpartition(":")
    if module:
        modules.import_environment_module(environment, module)
    failed = [] if module or name in gymnasium.registry else _register_plugins()
    if name in gymnasium.registry:
        return
    near = difflib.get_close_matches(name, [*OWN, *gymnasium.registry], n=3)
    hint = f"near names: {', '.join(near)}" if near else "Gymnasium's names and our own: " + ", ".join(OWN)
    raise DataError("; ".join([f"environment {environment}: unknown", hint, *failed]))


@cache
def _register_plugins() -> list[str]:
    """Have the installed packages register their environments, once; a line for each that could not."""
    failed = []
    for plugin in entry_points(group=PLUGINS):
        try:
            register = plugin.load()
            with namespace(None if plugin.name.startswith("__") else plugin.name):  # type: ignore[arg-type]  # it takes None, as Gymnasium itself gives it
                register()
        except Exception as error:  # whatever runs in it
            failed.append(f"entry point {plugin.value} failed: {' '.join(str(error).split())}")
    return failed


def _silence_mujoco_warnings() -> None:
    """Warnings about the models that Gymnasium ships would fill a MUJOCO_LOG.TXT in whatever folder this runs in."""
    import mujoco

    mujoco.set_mju_user_warning(lambda message: None)


def _describe_non_numeric_parts(environment: str, observations: Space, wordy: Sequence[str]) -> str:
    """What is wrong with observations some of whose parts hold text or the like, and which wrapper takes those away."""
    whole = dict(observations.spaces) if isinstance(observations, spaces.Dict) else {}
    left = [
        key
        for key, part in whole.items()
        if all(isinstance(leaf, NUMBERS) for leaf in split_space_into_parts(part).values())
    ]
    if not left:
        return f"observations of {' '.join(str(observations).split())} are not supported"
    named = ", ".join(part.removeprefix("observations/") for part in wordy)
    without = f"{environment}{BETWEEN}FilterObservation {{filter_keys: [{', '.join(left)}]}}"
    return f'observations have {named}, which is no numbers; expected it without, as the id "{without}"'


def _is_supported_action_space(actions: Space) -> bool:
    """Whether these are a finite set, or a vector with bounds."""
    box = isinstance(actions, spaces.Box) and len(actions.shape) == 1 and actions.is_bounded()
    return box or isinstance(actions, spaces.Discrete)


@cache
def get_policy_spaces(environment: str) -> Spaces:
    """What policies for the environment are built for."""
    env = make_offline_environment(environment)
    observations = env.observation_space
    actions = env.action_space
    env.close()
    assert observations.shape is not None
    if isinstance(actions, spaces.Discrete):
        return Spaces(observations.shape[0], int(actions.n), discrete=True)
    assert actions.shape is not None
    return Spaces(observations.shape[0], actions.shape[0], discrete=False)


def find_step_limit(environment: str) -> int | None:
    """The number of steps after which Gymnasium truncates its episodes; None if it sets no limit, or none is known."""
    env = make_offline_environment(environment)
    env.close()
    spec = env.env.spec
    return spec.max_episode_steps if spec else None


def build_environment_goals(environment: str) -> Goals:
    """Where its goals stand in an observation, and what they pay; DataError with one line if it has none."""
    scene = make_offline_environment(environment)
    inner = scene.unwrapped
    at = 0
    slices = dict[str, slice]()
    for name, space in split_space_into_parts(scene.own_observations, "").items():
        size = spaces.flatdim(space)
        slices[name.removeprefix("/")] = slice(at, at + size)
        at = at + size
    if not {goals.ACHIEVED, goals.DESIRED} <= {*slices} or not hasattr(inner, "compute_reward"):
        wanted = f"observations with {goals.ACHIEVED} and {goals.DESIRED}, and compute_reward"
        raise DataError(
            f"environment {environment}: relabelling goals needs {wanted}, as goal environments of Gymnasium have"
        )

    def rowwise(name: str, kind: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
        """For rows at once where the environment can, which it shows by a number for each row; else for one after
        another.
        """
        method: Callable[..., Any] = getattr(inner, name)

        def found(achieved: Tensor, desired: Tensor) -> Tensor:
            rows = achieved.cpu().numpy(), desired.cpu().numpy()
            try:
                values = np.asarray(method(*rows, {}))
                if values.shape != (len(achieved),):
                    values = np.asarray([method(*row, {}) for row in zip(*rows, strict=True)])
                if not np.isfinite(values).all():
                    raise ValueError(f"expected finite numbers, got {values[~np.isfinite(values)][0]}")
                return torch.as_tensor(values, dtype=kind).reshape(len(achieved)).to(achieved.device)
            except Exception as error:  # whatever runs in it
                what = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise DataError(f"environment {environment}: {name} of other goals: {what}") from None

        return found

    ends = rowwise("compute_terminated", torch.bool) if hasattr(inner, "compute_terminated") else None
    return Goals(slices[goals.ACHIEVED], slices[goals.DESIRED], rowwise("compute_reward", torch.float32), ends)
