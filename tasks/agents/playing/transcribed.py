"""Episodes in text as a data set that the offline flow reads: Minari's files with vectors, and the texts beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.agents.environments.as_gymnasium import Described, opening_text
from tasks.agents.environments.protocol import Message
from tasks.agents.environments.vectors import Reader
from tasks.common import minari_files


@dataclass(frozen=True)
class Transcribed:
    """One episode of T turns, in text."""

    game: int  # the seed of its environment
    opening: list[Message]
    actions: Sequence[str]  # T
    observations: Sequence[str]  # T, each behind its action
    rewards: Sequence[float]  # T
    terminated: bool  # the game ended; False: it would have gone on, or nobody knows


def write(episodes: Sequence[Transcribed], described: Described, out: Path) -> None:
    """The data set and its environment; `described` has every action of the episodes."""
    (out / minari_files.DATA).parent.mkdir(parents=True, exist_ok=True)
    described.write(out)
    minari_files.write_episodes(_arrays(episodes, described), out / minari_files.DATA)
    steps = sum(len(one.actions) for one in episodes)
    spaces = described.observation_space, described.action_space
    minari_files.write_metadata(minari_files.metadata(out.name, len(episodes), steps, *spaces), out)


def _arrays(
    episodes: Sequence[Transcribed], described: Described
) -> Iterator[tuple[dict[str, object], dict[str, Any]]]:
    numbers = {action: number for number, action in enumerate(described.actions)}
    for one in episodes:
        reader = Reader(described.features, described.decay)
        texts, said = [opening_text(one.opening), *one.observations], ["", *one.actions]
        last = np.arange(len(one.actions)) == len(one.actions) - 1
        attributes: dict[str, object] = {
            "total_steps": len(one.actions),
            "return": float(sum(one.rewards)),
            "seed": one.game,
        }
        yield (
            attributes,
            {
                "observations": np.stack([reader.read(*pair) for pair in zip(texts, said, strict=True)]),
                "actions": np.array([numbers[action] for action in one.actions], np.int64),
                "rewards": np.array(one.rewards, np.float32),
                "terminations": last & one.terminated,
                "truncations": last & (not one.terminated),
                "infos": {"text": texts, "said": said},  # as TextGame's info has them
            },
        )
