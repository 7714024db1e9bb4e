"""A task of counting: an episode has STEPS steps, an action of 1 earns 1, and only the timestep is observed.

After random play a return-to-go of R with n steps left makes 1 the likelier action if R > n / 2: a policy that is asked
for R and subtracts its rewards gets exactly R, a policy that never subtracts does not.
"""

from itertools import islice

import torch

from tasks.algorithms.offline import decision_transformer as dt
from tasks.algorithms.offline.adam import AdamW
from tasks.algorithms.offline.half_precision import iterate_under_autocast
from tasks.algorithms.offline.networks.transformer import Transformer
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tasks.algorithms.offline.windows import EpisodeWindows

STEPS = 6


def transitions(episodes=400, discrete=True):
    generator = torch.Generator().manual_seed(0)
    count = episodes * STEPS
    actions = torch.randint(2, (count,), generator=generator)
    ends = torch.arange(count) % STEPS == STEPS - 1
    rewards, seen = actions.float(), torch.zeros(count, 1)
    if not discrete:
        actions = 2.0 * actions[:, None] - 1
    return Transitions(seen, actions, rewards, seen, ends, torch.full((episodes,), STEPS))


def model(discrete=True, context=STEPS, width=16, layers=2, heads=2, seed=0, observation=1):
    torch.manual_seed(seed)
    spaces = Spaces(observation, 2 if discrete else 1, discrete)
    trunk = Transformer(width, layers, heads, dropout=0.0)
    return dt.DecisionTransformer(spaces, trunk, context=context, timesteps=STEPS, scale=3.0, targets=[4.0])


def trained(policy, steps=90, half=False):
    data = EpisodeWindows(transitions(discrete=policy.spaces.discrete), policy.context)
    optimizer = AdamW(policy.parameters(), 0.01, clip=0.25, weight_decay=0.0, warmup=20, steps=steps, last=0.1)
    batches = data.batches(32, torch.Generator().manual_seed(0))
    return list(islice(iterate_under_autocast(dt.fit(policy, optimizer, batches), torch.device("cpu"), half), steps))


def earned(player, asked=1):
    """The return of one episode for each of the `asked` returns, played in parallel."""
    player.begin(asked)
    everyone, total = torch.arange(asked), torch.zeros(asked)
    for _ in range(STEPS):
        actions = player.act(everyone, torch.zeros(asked, 1)).reshape(asked)
        rewards = (actions > 0).float()
        player.observe(everyone, rewards)
        total += rewards
    return total.tolist()
