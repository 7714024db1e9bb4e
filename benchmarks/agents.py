"""Episodes a second against loops that sample each turn anew: `python -m benchmarks.agents` writes
benchmarks/results/agents.json.

Ours plays all turns on one key-value cache. The other two read the whole transcript again before every action: one
samples with this repository's sampler, the other with `generate` of transformers. Models have random weights; the game
is `rooms`, and every action has the full number of tokens, so that all sides do the same work. `--quick` only shows
that everything runs; its times mean nothing.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from benchmarks import result_files
from benchmarks.engine import describe_machine
from benchmarks.rl_report import format_median_and_range
from tasks.agents.environments.games import Game, iterate_games, step_environments
from tasks.agents.playing import encoding
from tasks.algorithms.agents import acting
from tasks.algorithms.agents.acting import Action, ActionSampling
from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.language import rollouts
from tasks.language.data import byte_pairs
from tasks.language.training.starting_model import build_llama_config
from tasks.stage import keep_freed_memory

RESULT = Path(__file__).parent / "results/agents.json"
SETTINGS = {"rooms": 6, "doors": 2, "turns": 100}
ACTION = 8
ROUNDS = 3


class Sizes:
    """A model."""

    def __init__(self, width: int, layers: int) -> None:
        self.width = width
        self.layers = layers
        self.heads = 4
        self.context = 4096
        self.initializer_range = 0.02


def make_rooms_games(count: int) -> list[Game]:
    """Games."""
    return [*islice(iterate_games("rooms", SETTINGS, "train", 0), count)]


def play_cached_and_count_tokens(model, words, count: int, turns: int) -> int:
    """Play on one cache; the number of tokens in all transcripts."""
    episodes = make_rooms_games(count)
    turns_played = [0] * count

    def react(actions):
        heard = step_environments(
            [episodes[one.row].environment for one in actions], [decode_action(words, one) for one in actions]
        )
        for one in actions:
            turns_played[one.row] += 1
        return [
            None if turns_played[one.row] == turns else encoding.encode_observation(words, turn.observation, one.ended)
            for one, turn in zip(actions, heard, strict=True)
        ]

    sampling = ActionSampling(ACTION, 1.0, frozenset(), None)
    asked = [encoding.encode_opening(words, one.opening) for one in episodes]
    found = acting.play_episodes(model, asked, react, sampling, torch.Generator().manual_seed(0))
    return sum(len(one.tokens) for one in found.transcripts)


def play_uncached_and_count_tokens(sample: Callable, words, count: int, turns: int) -> int:
    """Play with `sample(transcripts) -> actions`, which reads them from their beginning."""
    episodes = make_rooms_games(count)
    transcripts = [encoding.encode_opening(words, one.opening) for one in episodes]
    for turn in range(turns):
        said = sample(transcripts)
        actions = [Action(row, tokens, False) for row, tokens in enumerate(said)]
        heard = step_environments([one.environment for one in episodes], [decode_action(words, one) for one in actions])
        for row, (tokens, answer) in enumerate(zip(said, heard, strict=True)):
            transcripts[row] += tokens
            if turn + 1 < turns:
                transcripts[row] += encoding.encode_observation(words, answer.observation, ended=False)
    return sum(map(len, transcripts))


def decode_action(words, action: Action) -> str:
    """What the game hears."""
    return encoding.decode_action(words, action.tokens, action.ended)


def make_repository_sampler(model):
    """This repository's sampler of single answers."""

    def sample(transcripts):
        [found] = rollouts.sample_rollouts(
            model,
            transcripts,
            samples=1,
            max_new_tokens=ACTION,
            temperature=1.0,
            end_tokens=(),
            seed=0,
            batch_size=len(transcripts),
        )
        return found.responses()

    return sample


def make_transformers_sampler(model):
    """Transformers' own."""

    def sample(transcripts):
        width = max(map(len, transcripts))
        padded = torch.tensor([[0] * (width - len(one)) + one for one in transcripts])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in transcripts])
        out = model.generate(
            padded,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=ACTION,
            min_new_tokens=ACTION,
            pad_token_id=0,
        )
        return out[:, width:].tolist()

    return sample


def measure_play_seconds(width: int, layers: int, count: int, turns: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of each side and round, in turns."""
    torch.manual_seed(0)
    words = byte_pairs.train_byte_pair_tokenizer(
        [message["content"] for one in make_rooms_games(200) for message in one.opening], 400
    )
    plain = LlamaForCausalLM(build_llama_config(Sizes(width, layers), words)).eval()
    fast = replace_linear_layers(plain)
    sides = {
        "one cache": lambda: play_cached_and_count_tokens(fast, words, count, turns),
        "each turn anew, this repository's sampler": lambda: play_uncached_and_count_tokens(
            make_repository_sampler(fast), words, count, turns
        ),
        "each turn anew, transformers' generate": lambda: play_uncached_and_count_tokens(
            make_transformers_sampler(plain), words, count, turns
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in [*sides][:: 1 if number % 2 else -1]:
            began = time.process_time()
            sides[name]()
            if number:
                found[name].append(time.process_time() - began)
    return found


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    keep_freed_memory()
    load = os.getloadavg()[0]
    count = 4 if quick else 48
    rounds = 1 if quick else ROUNDS
    lines = []
    single = {}
    for width, layers in ((64, 2), (256, 4)):
        for turns in (2, 8, 16) if not quick else (2,):
            found = measure_play_seconds(width, layers, count, turns, rounds)
            single[f"{width} x {layers}, {turns} turns"] = found
            rates = {name: [count / seconds for seconds in times] for name, times in found.items()}
            first, *others = rates.values()
            factors = [statistics.median(first) / statistics.median(other) for other in others]
            cells = [f"{width} x {layers}", str(turns), format_median_and_range(first, 1)]
            for other, factor in zip(others, factors, strict=True):
                cells += [format_median_and_range(other, 1), f"{factor:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if quick:
        return
    page = [
        "# Playing episodes of several turns: episodes a second",
        "",
        f"Made by `python -m benchmarks.agents` on {describe_machine('torch', 'transformers')}. Load of the machine "
        "when it "
        f"began: {load:.1f}.",
        "",
        f"Episodes in a second of processor time, one thread, {count} episodes side by side, actions of {ACTION} "
        f"tokens, random weights. Medians of {rounds} "
        "rounds (range in brackets) after one that did not count, the sides in turn.",
        "",
        "| width x layers | turns | one cache | each turn anew, this repository's sampler | times as fast | each "
        "turn anew, transformers' generate | times as fast |",
        "|---|---|---|---|---|---|---|",
        *lines,
    ]
    result_files.write_result(RESULT, {"page": page}, single)


if __name__ == "__main__":
    main()
