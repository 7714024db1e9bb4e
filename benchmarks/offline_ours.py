"""Our side of comparisons with d3rlpy: the stages' learners, built from the same settings as d3rlpy's."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tasks.algorithms.offline import bc, cql, cql_continuous, dqn, iql
from tasks.algorithms.offline import decision_transformer as dt
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.half_precision import iterate_under_autocast
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences, QValues
from tasks.algorithms.offline.networks.transformer import Transformer
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tasks.algorithms.offline.windows import EpisodeWindows
from tasks.offline.configs.learners import QConfig
from tasks.offline.training import mean_metrics, q_learning

if TYPE_CHECKING:
    from tasks.extensions.continuous_control.algorithms.td3 import TD3Agent

Steps = Iterator[Mapping[str, Tensor]]
LOG_EVERY = 100  # steps whose metrics make one row


class Ours:
    """One algorithm and its data, the counterpart of offline_d3rlpy.Side."""

    def __init__(self, data: Transitions, spaces: Spaces, seed: int, settings: Mapping[str, Any]) -> None:
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        self.network, steps = BUILDERS[settings["method"]](data, spaces, settings, generator)
        self.steps = iterate_under_autocast(steps, data.device, settings.get("bfloat16", False))

    def fit(self, count: int) -> float:
        """Train for `steps` steps; the seconds of processor time."""
        began = time.process_time()
        deque(mean_metrics.iterate_mean_step_metrics(islice(self.steps, count), LOG_EVERY), maxlen=0)
        return time.process_time() - began


def _build_bc(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    policy = (Preferences if spaces.discrete else MeanAction)(spaces, given["hidden"])
    if given.get("normalise", True):
        policy.normaliser.fit(data.observations)
    optimizer = Adam(policy.parameters(), given["learning_rate"])
    return policy, bc.fit(policy, optimizer, data, batch_size=given["batch_size"], generator=generator)


def _build_q_learning(
    objective: Any, data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    policy = QValues(spaces, given["hidden"], given["gamma"])
    if given.get("normalise", True):
        policy.normaliser.fit(data.observations)
    scaled = q_learning.normalise_observations(policy.normaliser, data)
    loss = partial(objective, gamma=given["gamma"], double=True, huber=given.get("huber", True))
    config = QConfig.model_construct(  # a learner reads nothing else of it
        learning_rate=given["learning_rate"], target_every=given["target_every"], target_rate=1.0
    )
    batches = scaled.batches(given["batch_size"], generator)
    return policy, iter(q_learning.build_q_learner(config, loss, policy, batches).steps)


def _build_dqn(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    return _build_q_learning(dqn.dqn_loss, data, spaces, given, generator)


def _build_cql(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    return _build_q_learning(partial(cql.cql_loss, alpha=given["alpha"]), data, spaces, given, generator)


def _build_continuous_cql(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    agent = cql_continuous.CQLAgent(spaces, given["hidden"], 2, data.observations, given["alpha"])
    learned: dict[str, list[nn.Parameter]] = {
        "policy": list(agent.policy.parameters()),
        "critics": list(agent.critics.parameters()),
        "temperature": [agent.log_temperature],
    }
    optimizers = {name: Adam(parameters, given["learning_rate"]) for name, parameters in learned.items()}
    own = cql_continuous.CqlSettings(given["gamma"], given["samples"], None, given["target_rate"])
    size = given["batch_size"]
    return agent.policy, cql_continuous.fit(agent, optimizers, data.batches(size, generator), own, generator)


def _build_decision_transformer(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    trunk = Transformer(given["width"], given["layers"], given["heads"], given["dropout"])
    episodes = EpisodeWindows(data, given["context"])
    sizes = {"context": given["context"], "timesteps": given["timesteps"], "scale": given["scale"], "targets": [0.0]}
    model = dt.DecisionTransformer(spaces, trunk, **sizes)
    model.normaliser.fit(data.observations)
    optimizer = Adam(model.parameters(), given["learning_rate"], given["clip"])
    batches = episodes.batches(given["batch_size"], generator)
    return model, dt.fit(model, optimizer, batches)


def _select_method_settings(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Those of the given settings that the method has."""
    return kind(**{field.name: given[field.name] for field in fields(kind)})


def _build_iql(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    agent = iql.IQLAgent(spaces, given["hidden"], given["critics"], data.observations)
    parts = {"value": agent.value, "critics": agent.critics, "policy": agent.policy}
    optimizers = {name: Adam(part.parameters(), given["learning_rate"]) for name, part in parts.items()}
    batches = data.batches(given["batch_size"], generator)
    return agent.policy, iql.fit(agent, optimizers, batches, _select_method_settings(iql.IqlSettings, given))


def _build_td3_agent(spaces: Spaces, data: Transitions, given: Mapping[str, Any]) -> tuple["TD3Agent", dict[str, Adam]]:
    from tasks.extensions.continuous_control.algorithms import td3  # so that the others run without the extension

    agent = td3.TD3Agent(spaces, given["hidden"], given["critics"], data.observations, given["layer_norm"])
    parts = {"critics": agent.critics, "policy": agent.policy}
    return agent, {name: Adam(part.parameters(), given["learning_rate"]) for name, part in parts.items()}


def _build_td3_bc(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    from tasks.extensions.continuous_control.algorithms import td3, td3_bc

    agent, optimizers = _build_td3_agent(spaces, data, given)
    loss = partial(td3_bc.policy_loss, alpha=given["alpha"])
    batches = data.batches(given["batch_size"], generator)
    return agent.policy, td3.fit(
        agent, optimizers, batches, _select_method_settings(td3.Td3Settings, given), loss, generator
    )


def _build_rebrac(
    data: Transitions, spaces: Spaces, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Any, Steps]:
    from tasks.extensions.continuous_control.algorithms import rebrac

    agent, optimizers = _build_td3_agent(spaces, data, given)
    own = _select_method_settings(rebrac.RebracSettings, given)
    size = given["batch_size"]
    return agent.policy, rebrac.fit(agent, optimizers, data, own, batch_size=size, generator=generator)


BUILDERS = {
    "bc": _build_bc,
    "dqn": _build_dqn,
    "cql": _build_cql,
    "cql_continuous": _build_continuous_cql,
    "iql": _build_iql,
    "td3_bc": _build_td3_bc,
    "rebrac": _build_rebrac,
    "decision_transformer": _build_decision_transformer,
}
