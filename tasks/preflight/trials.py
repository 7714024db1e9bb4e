"""Environments tried before a run: each is made, reset and acted in a few times, in one process of its own with a limit
of time for each.

`python -m tasks.preflight.trials --params FILE STAGE...` is that process. It prints a line for each environment, and
ends with exit code 2 and one line on standard error at the first that cannot be played. Code of others runs there as it
does in the stages.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.common.config import Config
from tasks.common.config_faults import shorten_text
from tasks.common.errors import DataError, StageError
from tasks.common.terminal import format_in_one_line

if TYPE_CHECKING:
    from gymnasium import Space

PROGRAM = "tasks.preflight.trials"
SECONDS = 60  # for one environment
STARTING = 300  # seconds for all that is imported before the first one
STEPS = 5
TURNS = 3
STAGES = ("behaviour", "expert_episodes")
BEGINS = "tried: "  # how a line on standard error begins that names the environment whose turn it is


def iterate_environment_trial_lines(params: Path, stages: Collection[str]) -> Iterator[str]:
    """What came of the environments that `stages` play in, a line each; DataError with one line for the first fault."""
    played = sorted(name for name in stages if name.partition("@")[0] in STAGES)
    if not played:
        return
    command = [sys.executable, "-m", PROGRAM, f"--params={params}", *played]
    most = STARTING + SECONDS * len(played)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=most, check=False)
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{', '.join(played)}: their environments could not be tried within the limit of time"
        ) from None
    yield from map(format_in_one_line, done.stdout.splitlines())
    if done.returncode:
        stderr_lines = done.stderr.splitlines()
        tried = next(
            (line.removeprefix(BEGINS) for line in reversed(stderr_lines) if line.startswith(BEGINS)), played[0]
        )
        if done.returncode == -signal.SIGALRM:
            raise DataError(f"{tried}: to make it, to reset it and to act a few times took longer than {SECONDS} s")
        last = (
            stderr_lines[-1]
            if stderr_lines and done.returncode > 0
            else f"its process ended (signal {-done.returncode})"
        )
        raise DataError(last if done.returncode == 2 else f"{tried}: {last}")


def try_offline_environment(environment: str) -> str:
    """An environment of the offline flow after STEPS random steps: its spaces, its limit of steps, its rewards."""
    import torch

    from tasks.offline.datasets import episodes
    from tasks.offline.environments import rollouts, simulators

    env = simulators.make_offline_environment(environment)
    spaces = simulators.get_policy_spaces(environment)
    generator = torch.Generator().manual_seed(0)

    class Random:
        def act(self, observations: torch.Tensor) -> torch.Tensor:
            if spaces.discrete:
                return torch.randint(spaces.action, (len(observations),), generator=generator)
            return 2 * torch.rand(len(observations), spaces.action, generator=generator) - 1

    played = rollouts.play_seeded_episodes(environment, rollouts.wrap_as_player(Random()), 1, 0, limit=STEPS).episodes
    episodes.check_episodes(played, spaces.observation, spaces.action, spaces.discrete)
    limit = env.spec.max_episode_steps if env.spec else getattr(env.unwrapped, "limit", None)
    env.close()
    ends = f"at most {limit:,} steps an episode" if limit else "an end of its own"
    rewards = f"{played[0].rewards.min() + 0:g} to {played[0].rewards.max() + 0:g}"  # and not -0
    spoken = f"observations {_format_space(env.own_observations)}, actions {_format_space(env.own_actions)}"
    return f"{spoken}, {ends}; {len(played[0])} random steps paid {rewards} each"


def try_agent_environment(kind: str, settings: Mapping[str, Any], seconds: float, seed: int, recorded: int) -> str:
    """A game of an environment of agents after TURNS turns: how it opens, and whether it knows its best play, which
    `recorded` games need.
    """
    from tasks.agents.environments import games
    from tasks.agents.environments.host import FAULTS
    from tasks.agents.environments.user_environments import close_hosts
    from tasks.agents.playing.episode_files import World, play_expert_game

    game = next(World(kind, dict(settings), seed, seconds).iterate_games_from_seed("train", seed))
    expert = games.find_solver(game.environment)
    rewards = list[float]()
    done = False
    if expert is None and recorded:
        play_expert_game(game, 0)  # which says that there is none
    while len(rewards) < TURNS and not done:
        with redirect_stderr(StringIO()) as stderr:  # where a game of one's own names its fault
            turn = game.environment.step(expert.best_action() if expert else "help")
        if FAULTS in turn.counted:
            raise DataError(
                stderr.getvalue().strip() or f"{kind}: game {game.seed}: ended by a fault of the environment"
            )
        rewards.append(turn.reward)
        done = turn.done
    close_hosts()
    characters = sum(len(message["content"]) for message in game.opening)
    knows = "knows its best play" if expert else "knows no best play"
    paid = f"{min(rewards) + 0:g} to {max(rewards) + 0:g}"  # and not -0
    return f"game {game.seed} opens with {characters:,} characters, {knows}; {len(rewards)} turns paid {paid} each"


def _format_space(space: "Space[Any]") -> str:
    """A space in a few words: the bounds of a box are as many as its numbers."""
    shape = getattr(space, "shape", None)
    return f"{type(space).__name__}{shape} of {space.dtype}" if shape else shorten_text(str(space))


def _try_stage_environment(configs: Mapping[str, Any], stage: str) -> str:
    section, _, name = stage.partition("@")
    environment = configs[section].environments[name]
    if section == "behaviour":
        return (
            f"{stage}{f' ({environment.id})' if environment.id else ''}: "
            f"{try_offline_environment(environment.id or name)}"
        )
    number = configs[section].seed
    return (
        f"{stage} ({environment.kind}): "
        f"{try_agent_environment(environment.kind, environment.settings, environment.seconds, number, environment.episodes + environment.validation)}"  # noqa: E501
    )


def _needs_environment_made_first(configs: Mapping[str, Any], stage: str) -> bool:
    """Whether a stage has yet to make the folder that holds the environment."""
    from tasks.preflight.offline_datasets import is_environment_not_made_yet

    section, _, name = stage.partition("@")
    return section == "behaviour" and is_environment_not_made_yet(configs[section].environments[name].id or name)


def main() -> None:
    """Try the environments of the stages that are named."""
    from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig
    from tasks.offline.configs.behaviour import BehaviourConfig
    from tasks.stage import read_section

    parser = argparse.ArgumentParser(prog=f"python -m {PROGRAM}", description=__doc__)
    parser.add_argument("--params", type=Path, required=True)
    parser.add_argument("stages", nargs="*")
    arguments = parser.parse_args()
    kinds: dict[str, type[Config]] = {"behaviour": BehaviourConfig, "expert_episodes": ExpertEpisodesConfig}
    configs = {name: read_section(name, kind, arguments.params) for name, kind in kinds.items()}
    for stage in arguments.stages:
        if _needs_environment_made_first(configs, stage):
            print(f"{stage}: a stage of the run makes its environment first", flush=True)
            continue
        print(f"{BEGINS}{stage}", file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)  # whose signal ends the process, whatever the environment is at
        try:
            print(_try_stage_environment(configs, stage), flush=True)
        except Exception as error:  # whatever runs in an environment
            kind = "" if isinstance(error, StageError | ValueError) else f"{type(error).__name__}: "
            print(f"{stage}: {kind}{' '.join(str(error).split())}", file=sys.stderr, flush=True)
            raise SystemExit(2) from None
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
