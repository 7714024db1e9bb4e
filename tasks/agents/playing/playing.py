"""A policy plays games: many episodes side by side, with everything that learning and reading need."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasks.agents.environments.games import Game, step_environments
from tasks.agents.environments.protocol import Turn
from tasks.agents.playing import encoding
from tasks.algorithms.agents import acting
from tasks.algorithms.agents.acting import Action, ActionSampling
from tasks.algorithms.agents.experience import AgentExperience
from tasks.algorithms.agents.transcripts import Transcript, make_transcripts, stack_sampled_logps
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.data import chat

COUNTED = "counted/"
METRICS = {
    f"{COUNTED}EVENT": "What the environment counts, the mean over episodes: won (share of games) and cursed "
    "(things taken) in rooms, right (share of tasks) and calls (of the tool) in calculator; "
    "faults of an environment of your own.",
}


@dataclass
class GameEpisode:
    """What happened in a game."""

    game: Game
    transcript: Transcript
    actions: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)  # behind each action
    rewards: list[float] = field(default_factory=list)
    counted: dict[str, float] = field(default_factory=dict)  # sums of what the environment counted
    actions_cut: int = 0  # by the length limit
    context_cut: bool = False

    @property
    def total(self) -> float:
        """The sum of rewards."""
        return sum(self.rewards)

    def build_turn_records(self, number: int) -> list[Record]:
        """Its turns as a table has them (tables.Spoken), as the episode of this number."""
        observations = [json.dumps(self.game.opening), *self.observations]
        return [
            {"episode": number, "turn": turn, "observation": observation, "action": action, "reward": reward}
            for turn, (observation, action, reward) in enumerate(
                zip(observations, self.actions, self.rewards, strict=False)
            )
        ]


def build_action_sampling(
    model: PretrainedCausalLM, tokenizer: Tokenizer, max_action_tokens: int, temperature: float
) -> ActionSampling:
    """How a policy's actions are drawn."""
    ends = frozenset(chat.end_tokens(model, tokenizer))
    return ActionSampling(max_action_tokens, temperature, ends, chat.get_max_positions(model))


def play_games(
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    games: Sequence[Game],
    how: ActionSampling,
    generator: torch.Generator,
) -> list[GameEpisode]:
    """One episode of each game; every game needs an environment of its own."""
    episodes = [GameEpisode(game, Transcript()) for game in games]

    def react(actions: Sequence[Action]) -> list[list[int] | None]:
        running = [episodes[action.row] for action in actions]
        texts = [encoding.decode_action(tokenizer, action.tokens, action.ended) for action in actions]
        turns = step_environments([episode.game.environment for episode in running], texts)
        return [
            _record_turn_and_encode_reply(tokenizer, *heard)
            for heard in zip(running, texts, turns, (action.ended for action in actions), strict=True)
        ]

    openings = [encoding.encode_opening(tokenizer, game.opening) for game in games]
    if (
        how.context is not None
        and (longest := max(map(len, openings), default=0)) + how.max_action_tokens > how.context
    ):
        raise DataError(
            f"the longest opening of a game has {longest} tokens, which with max_action_tokens = "
            f"{how.max_action_tokens} are more than "
            f"the model's {how.context} positions; expected a longer context or a smaller max_action_tokens"
        )
    played = acting.play_episodes(model, openings, react, how, generator)
    for episode, transcript, cut in zip(episodes, played.transcripts, played.cut, strict=True):
        episode.transcript = transcript
        episode.context_cut = cut
    return episodes


def build_experience(episodes: Sequence[GameEpisode], groups: Sequence[int], pad: int) -> AgentExperience:
    """Episodes as what an algorithm learns from; those that had no room for a single turn are left out."""
    kept = [row for row, episode in enumerate(episodes) if episode.rewards]
    transcripts = [episodes[row].transcript for row in kept]
    rewards = torch.zeros(len(kept), max(len(episodes[row].rewards) for row in kept))
    for index, row in enumerate(kept):
        rewards[index, : len(episodes[row].rewards)] = torch.tensor(episodes[row].rewards)
    group_ids: Tensor = torch.tensor([groups[row] for row in kept])
    return AgentExperience(
        make_transcripts(transcripts, pad),
        stack_sampled_logps(transcripts),
        rewards,
        group_ids,
        compute_logged_means(episodes),
    )


def compute_logged_means(episodes: Sequence[GameEpisode]) -> Mapping[str, float]:
    """Means over episodes of what their environments counted, and what was cut off."""
    names = dict.fromkeys(name for episode in episodes for name in episode.counted)
    turns = max(1, sum(len(episode.rewards) for episode in episodes))
    return {
        "actions_cut": sum(episode.actions_cut for episode in episodes) / turns,
        "context_cut": sum(episode.context_cut for episode in episodes) / len(episodes),
        **{
            f"{COUNTED}{name}": sum(episode.counted.get(name, 0.0) for episode in episodes) / len(episodes)
            for name in names
        },
    }


def fill_missing_counts(curves: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """The curves of a policy's seeds, with a 0 wherever nothing of an event was counted that was counted elsewhere."""
    names = dict.fromkeys(name for rows in curves for row in rows for name in row if name.startswith(COUNTED))
    return [[{**row, **{name: row.get(name, 0.0) for name in names}} for row in rows] for rows in curves]


def _record_turn_and_encode_reply(
    tokenizer: Tokenizer, episode: GameEpisode, text: str, turn: Turn, ended: bool
) -> list[int] | None:
    """Keep a turn; the tokens that follow it, none where the episode is over."""
    episode.actions.append(text)
    episode.observations.append(turn.observation)
    episode.rewards.append(turn.reward)
    episode.actions_cut += not ended
    for name, value in turn.counted.items():
        episode.counted[name] = episode.counted.get(name, 0.0) + value
    return None if turn.done else encoding.encode_observation(tokenizer, turn.observation, ended)
