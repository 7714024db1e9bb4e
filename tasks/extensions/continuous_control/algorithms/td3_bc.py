"""TD3+BC: twin delayed DDPG (td3.py) whose policy is also held to the data's actions (arXiv:2106.06860).

Policy: max E lambda Q_1(s, pi(s)) - (pi(s) - a)^2 (eq. 3), lambda = alpha / mean |Q_1(s, pi(s))| over the batch (eq.
5), a constant for the gradient; the square is a mean over components. Continuous actions only.
"""

from torch import Tensor

from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.transition_tensors import TransitionBatch
from tasks.extensions.continuous_control.algorithms.td3 import TD3Agent

METRICS = {
    **CRITIC_METRICS,
    "policy_loss": "The distance to the data's actions minus the scaled Q of the policy's; of the last step in "
    "which the policy learned.",
    "distance": "The mean squared distance of the policy's actions to the data's; of that step too.",
}


def policy_loss(agent: TD3Agent, batch: TransitionBatch, *, alpha: float) -> tuple[Tensor, Tensor]:
    """The policy's loss, a scalar with gradient, and its mean squared distance to the data's actions; `alpha` weighs
    the critic against them.
    """
    actions = agent.policy(batch.observations)
    q = agent.critics(batch.observations, actions)[0]
    distance = (actions - batch.actions).square().mean()
    return distance - alpha / q.detach().abs().mean() * q.mean(), distance.detach()
