"""Bias and noise of the policy gradient by who gets the credit: `python -m benchmarks.credit` writes
benchmarks/results/credit.json.

A policy that does not learn plays batches of episodes, and every kind of credit makes a gradient of each of them. So
the kinds are compared on the same episodes, and not by where a training came to. Critics learn first, on other episodes
of the same policy: on few, as at the beginning of a training, and on many. A second part has GRPO's credit by episode
and by turn in longer and longer games. Each part can be measured alone; benchmarks/results/credit.json keeps them.
`--quick` only shows that everything runs; its numbers mean nothing.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import nan
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import result_files
from benchmarks.engine import describe_machine
from tasks.agents import behaviour_cloning, expert_episodes
from tasks.agents.agents import build_loop_settings
from tasks.agents.configs.agents import AgentsConfig
from tasks.agents.configs.behaviour_cloning import BehaviourCloningConfig
from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig
from tasks.agents.playing import episode_files, playing
from tasks.agents.playing.collecting import GameCollector
from tasks.algorithms.agents.credit import Baseline, Credit, Credited
from tasks.algorithms.agents.critic import TurnCritic
from tasks.algorithms.agents.experience import AgentExperience, LoopSettings
from tasks.algorithms.agents.transcripts import compute_action_logps
from tasks.algorithms.agents.value_learning import assign_credit, fit_critic_to_batch
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language.policy_gradient import policy_gradient_loss
from tasks.common import models
from tasks.common.config import build_settings
from tasks.stage import keep_freed_memory, read_section

RESULT = Path(__file__).parent / "results/credit.json"
PARTS = ("kinds", "lengths")
ORCHARDS = (0, 2, 6)  # turns between the first and the last
# in a batch; the seed of games that no clone learned from
GAMES = 12
EPISODES = 4
SEED = 9
# batches that a critic learns from, and that gradients are made of
FEW = 5
MANY = 60
BATCHES = 80
UNBIASED = "reward-to-go"
Found = Mapping[str, tuple[float, float]]  # noise and squared bias of each kind


@dataclass(frozen=True)
class Kind:
    """A kind of credit, without standardisation."""

    how: Credit
    baseline: Baseline = "none"
    lam: float = 1.0
    batches: int = 0  # that its critic learned from

    def settings(self, config: AgentsConfig) -> LoopSettings:
        """Those of the loop that trains agents, for this credit to turns, rewards undiscounted."""
        [any_policy, *_] = config.policies.values()
        return replace(
            build_loop_settings(config, any_policy, 0),
            credit=self.how,
            over="turns",
            baseline=self.baseline,
            standardized=False,
            gamma=1.0,
            lam=self.lam,
        )


def build_credit_kinds(few: int, many: int) -> dict[str, Kind]:
    """What is compared, by name."""
    found = {
        "total return": Kind("total"),
        UNBIASED: Kind("to_go"),
        "total return less the batch's mean": Kind("total", "mean"),
        "reward-to-go less the batch's mean": Kind("to_go", "mean"),
    }
    for batches in (few, many):
        found |= {
            f"Monte-Carlo critic of {batches} batches": Kind("advantage", lam=1.0, batches=batches),
            f"lambda 0.95, critic of {batches} batches": Kind("advantage", lam=0.95, batches=batches),
            f"one-step critic of {batches} batches": Kind("advantage", lam=0.0, batches=batches),
            f"Q critic of {batches} batches": Kind("q", lam=0.0, batches=batches),
        }
    return found


BY_TURN = "by turn"
BY_EPISODE = "by episode"
GROUPS = {BY_TURN: Kind("to_go", "group"), BY_EPISODE: Kind("total", "group")}


@dataclass
class Moments:
    """Of vectors that are drawn independently: their sum, and the sum of their squared lengths."""

    whole: Tensor | None = None
    squares: float = 0.0
    number: int = field(default=0)

    def add(self, one: Tensor) -> None:
        """Count another vector."""
        self.whole = one.double() if self.whole is None else self.whole + one
        self.squares += float(one.double().square().sum())
        self.number += 1

    def squared_norm_of_mean(self) -> float:
        """The squared length of the expected vector, without bias: the mean product of two different draws."""
        assert self.whole is not None
        return (float(self.whole.square().sum()) - self.squares) / (self.number * (self.number - 1))

    def variance(self) -> float:
        """The expected squared distance of a draw from the expected vector, without bias."""
        return self.squares / self.number - self.squared_norm_of_mean()


def train_cloned_policy(folder: Path, seed: int, orchard: int, quick: bool) -> Path:
    """A policy to measure with: the clone of the preset agents-credit."""
    game = {"kind": "key-to-door", "settings": {"orchard": orchard, "apples": 0.5}, "seconds": 10.0}
    games = {**game, "episodes": 8 if quick else 150, "validation": 2 if quick else 50}
    section = {**read_section("expert_episodes", ExpertEpisodesConfig).model_dump(), "environments": {"keys": games}}
    expert_episodes.run(ExpertEpisodesConfig.model_validate(section), Path(os.devnull), folder / "episodes/keys")
    config = read_section("behaviour_cloning", BehaviourCloningConfig).model_copy(update={"seed": seed})
    behaviour_cloning.run(config, folder / "episodes/keys", folder, folder / "clones/keys")
    return folder / "clones/keys"


def measure_noise_and_bias(
    policy: Path, episodes: Path, chosen: Mapping[str, Kind], unbiased: str, batches: int
) -> Found:
    """For each kind its noise and its squared bias, both in squared lengths of the expected gradient of the kind
    `unbiased`.
    """
    config = read_section("agents", AgentsConfig)
    model = models.load_model(policy)
    words = models.load_tokenizer(policy)
    world = episode_files.read_world(episodes)
    model.eval()
    how = playing.build_action_sampling(model, words, config.max_action_tokens, 1.0)
    collect = GameCollector(model, words, world, SEED, GAMES, EPISODES, how)
    steps = count(1)
    settings = {name: kind.settings(config) for name, kind in chosen.items()}
    critics: dict[str, TurnCritic | None] = dict.fromkeys(chosen)
    most = max(kind.batches for kind in chosen.values())
    optimizers = {}
    for name, kind in chosen.items():
        if kind.batches:
            critics[name] = own = TurnCritic(model)
            length = most * config.critic_updates
            optimizers[name] = Optimizer(
                own,
                config.critic_learning_rate,
                length,
                config.clip,
                build_settings(config.training, OptimizerSettings),
            )
    for number in range(most):
        experience = collect(next(steps))
        for name, kind in chosen.items():
            if number < kind.batches:
                given, _ = assign_credit(critics[name], experience, settings[name])
                fit_critic_to_batch(critics[name], experience, given, optimizers[name], settings[name])
    gradients, differences = ({name: Moments() for name in chosen} for _ in range(2))
    for _ in range(batches):
        experience = collect(next(steps))
        found = {
            name: compute_policy_gradient(
                model, experience, assign_credit(critics[name], experience, settings[name])[0]
            )
            for name in chosen
        }
        for name, one in found.items():
            gradients[name].add(one)
            differences[name].add(one - found[unbiased])
    signal = gradients[unbiased].squared_norm_of_mean() or nan  # a quick clone may never have earned anything
    return {
        name: (
            gradients[name].variance() / signal,
            differences[name].squared_norm_of_mean() / signal if name != unbiased else 0.0,
        )
        for name in chosen
    }


def compute_policy_gradient(model, experience: AgentExperience, given: Credited) -> Tensor:
    """The policy gradient of a batch, as one vector."""
    logps = compute_action_logps(model, experience.transcripts, 1.0)
    acts = experience.transcripts.acts
    loss = policy_gradient_loss(logps, given.advantages, acts, len(acts))
    weights = [one for one in model.parameters() if one.requires_grad]
    return torch.cat([one.flatten() for one in torch.autograd.grad(loss, weights)])


def measure_cloned_policies(orchard: int, chosen: Mapping[str, Kind], unbiased: str, quick: bool) -> list[Found]:
    """What is measured with each clone."""
    found = list[Found]()
    started = Path.cwd()
    for seed in (0,) if quick else (0, 1, 2):
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            (root / "params.yaml").write_text((started / "params.yaml").read_text())
            os.chdir(root)
            try:
                policy = train_cloned_policy(root, seed, orchard, quick)
                found.append(
                    measure_noise_and_bias(policy, root / "episodes/keys", chosen, unbiased, 3 if quick else BATCHES)
                )
            finally:
                os.chdir(started)
        for name, (noise, bias) in found[-1].items():
            print(f"{orchard + 2} turns, clone {seed}: {name}: noise {noise:.1f}, squared bias {bias:.2f}", flush=True)
    return found


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="what is measured; both without it")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    kept = {} if given.quick else result_files.load_result(RESULT, {})
    for part in [given.part] if given.part else PARTS:
        began = time.monotonic()
        if part == "kinds":
            chosen = build_credit_kinds(1, 2) if given.quick else build_credit_kinds(FEW, MANY)
            values: Any = measure_cloned_policies(ORCHARDS[-1], chosen, UNBIASED, given.quick)
        else:
            values = {
                str(2 + orchard): measure_cloned_policies(orchard, GROUPS, BY_TURN, given.quick) for orchard in ORCHARDS
            }
        kept[part] = {
            "machine": describe_machine("torch", "transformers"),
            "minutes": (time.monotonic() - began) / 60,
            "found": values,
        }
    if not given.quick:
        result_files.write_result(RESULT, kept, adds=True)


def render(kept: Mapping[str, Any]) -> str:
    """The page."""

    def cell(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2f}" for value in values)

    def made(part: str) -> str:
        minutes = kept[part]["minutes"]
        where = kept[part]["machine"]
        return f"Made by `python -m benchmarks.credit --part {part}` in {minutes:.0f} minutes on {where}."

    found = kept["kinds"]["found"]
    rows = [
        f"| {name} | {cell([one[name][0] / one[UNBIASED][0] for one in found])} | "
        f"{cell([one[name][1] for one in found])} |"
        for name in found[0]
    ]
    signal = cell([one[UNBIASED][0] for one in found])
    lengths = [
        f"| {turns} | {cell([one[BY_EPISODE][0] / one[BY_TURN][0] for one in clones])} | "
        f"{cell([one[BY_EPISODE][1] for one in clones])} |"
        for turns, clones in kept["lengths"]["found"].items()
    ]
    return "\n".join(
        [
            "# Bias and noise of the policy gradient by who gets the credit",
            "",
            f"Key-to-door with apples of up to 0.5 (preset `agents-credit`), {len(found)} clones, which play at "
            "temperature 1 and do not learn. "
            f"Each kind of credit makes a gradient of the same {BATCHES} batches of {GAMES} games and {EPISODES} "
            "episodes, without standardisation. Noise: the expected squared distance of a batch's gradient from "
            "the expected one. "
            "Squared bias: the squared distance of the expected gradient from one that has no bias, as a share of "
            "that one's squared length: at 1 as much is missing as there is. Both are estimated without bias, so "
            "that a squared bias of nothing can come out below 0. "
            "One value for each clone.",
            "",
            "## Returns and critics, 8 turns",
            "",
            f"{made('kinds')} Noise as a share of reward-to-go's, bias against reward-to-go. "
            f"Reward-to-go's noise itself, as a multiple of the squared length of its expected gradient: {signal}. "
            "Where that is large the squared bias is known less well.",
            "",
            "| credit | noise | squared bias |",
            "|---|---|---|",
            *rows,
            "",
            "## GRPO by episode and by turn, as games grow",
            "",
            f"{made('lengths')} Credit less the mean of the game's {EPISODES} episodes: by episode the total "
            "return, by turn reward-to-go less that of the group's turns of the same number. "
            "Noise of credit by episode as a share of that by turn, and its squared bias against it.",
            "",
            "| turns | noise | squared bias |",
            "|---|---|---|",
            *lengths,
            "",
        ]
    )


if __name__ == "__main__":
    main()
