"""Data sets of random play, made in a test."""

import torch

from tasks import recordings, simulators
from tasks.playing import as_player, play


class Aimless:
    """Any of the actions, each as likely."""

    def __init__(self, actions, seed):
        self.actions, self.generator = actions, torch.Generator().manual_seed(seed)

    def act(self, observations):
        return torch.randint(self.actions, (len(observations),), generator=self.generator)


def walks(environment, episodes, seed=0):
    """Episodes of random play in an environment of discrete actions."""
    player = Aimless(simulators.spaces_of(environment).action, seed)
    return play(environment, as_player(player), episodes, seed).episodes


def recorded(path, environment, episodes, seed=0):
    """The same as a data set in the folder `path`, which is returned."""
    recordings.write(path, environment, walks(environment, episodes, seed), recordings.Reference(0.0, 1.0), {})
    return path
