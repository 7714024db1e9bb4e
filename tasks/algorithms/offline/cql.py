"""Conservative Q-learning for discrete actions: DQN with a penalty on the values of actions that the data does not
take.

L(theta) = alpha mean [log sum_a exp Q_theta(s, a) - Q_theta(s, a_data)] + L_DQN(theta), CQL(H) of Kumar et al. 2020
(arXiv:2006.04779, eq. 4); its loop is that of dqn.py. Cal-QL (arXiv:2303.05479, eq. 5.1) holds no value down below what
was earned from that state on: in the log-sum-exp it has max(Q_theta(s, a), R), R the return-to-go, so that values keep
the scale of returns for what is learned next.
"""

from torch import Tensor

from tasks.algorithms.offline.dqn import METRICS as DQN_METRICS
from tasks.algorithms.offline.dqn import Values, compute_td_errors, huber_or_squared_loss
from tasks.algorithms.offline.transition_tensors import Referenced, TransitionBatch

METRICS = {
    **DQN_METRICS,
    "loss": "The loss of the temporal-difference errors plus alpha times `conservative`.",
    "conservative": "The mean of the log-sum-exp of Q over actions, minus Q of the data's action; alpha is its weight.",
}


def cql_loss(
    online: Values,
    target: Values,
    batch: TransitionBatch,
    *,
    gamma: float,
    double: bool,
    huber: bool,
    alpha: float,
    calibrated: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, a scalar with gradient, and its metrics (METRICS); Cal-QL's if `calibrated`, of `Referenced`
    transitions.
    """
    values, chosen, error = compute_td_errors(online, target, batch, gamma, double)
    if calibrated:
        assert isinstance(batch, Referenced), "Cal-QL needs to know what was earned"
        values = values.maximum(batch.reference.unsqueeze(1))
    gap = (values.logsumexp(dim=1) - chosen).mean()
    value = huber_or_squared_loss(error, huber) + alpha * gap
    metrics = {"loss": value, "q": chosen.mean(), "td_error": error.abs().mean(), "conservative": gap}
    return value, {name: metric.detach() for name, metric in metrics.items()}
