"""Decision Transformer: predict the action from returns-to-go, observations and actions so far (arXiv:2106.01345,
algorithm 1).

Tokens (R_1, s_1, a_1, R_2, ..) each get an embedding of their timestep; the hidden state of s_t predicts a_t. The loss
is the cross-entropy of discrete actions, the squared error of continuous ones. Unlike in the paper's code, embeddings
of timesteps start near 0, timesteps after the data's longest episode have the embedding of its last one, and states and
returns, which are in no loss, are not predicted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.conditioning import Conditioned
from tasks.algorithms.offline.networks.mlp import Normaliser
from tasks.algorithms.offline.networks.transformer import Trunk
from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.algorithms.offline.windows import Windows

METRICS = {
    "loss": "The cross-entropy of discrete actions in nats, the mean squared error of continuous ones; the loss of "
    "text is not part of it.",
    "accuracy": "The share of the data's actions that are the model's likeliest, from 0 to 1; of "
    "discrete actions only.",
    "language_loss": "The mean negative log-likelihood of a token of text, in nats; logged where text is learned "
    "beside the actions.",
}


class DecisionTransformer(nn.Module):
    """The model around a `trunk`: a module with a `width` that turns (B, T, W) and positions (P,) into (B, P, W)."""

    def __init__(
        self, spaces: Spaces, trunk: Trunk, *, context: int, timesteps: int, scale: float, targets: list[float]
    ) -> None:
        """`timesteps` is the longest episode, `scale` what returns are divided by, `targets` the returns to ask for in
        play.
        """
        super().__init__()
        self.spaces = spaces
        self.context = context
        self.timesteps = timesteps
        self.scale = scale
        self.targets = targets
        self.sizes: dict[str, object] = {
            "trunk": trunk.sizes,
            "context": context,
            "timesteps": timesteps,
            "scale": scale,
            "targets": targets,
        }
        self.normaliser = Normaliser(spaces.observation)
        self.of_return = nn.Linear(1, trunk.width)
        self.of_observation = nn.Linear(spaces.observation, trunk.width)
        self.of_action = nn.Linear(spaces.action, trunk.width)
        self.of_timestep = nn.Embedding(timesteps, trunk.width)
        nn.init.normal_(self.of_timestep.weight, std=0.02)  # torch's 1 would drown the other inputs
        self.norm = nn.LayerNorm(trunk.width)
        self.trunk = trunk
        self.head = nn.Linear(trunk.width, spaces.action)

    def forward(
        self, returns_to_go: Tensor, observations: Tensor, actions: Tensor, timesteps: Tensor, last: bool = False
    ) -> Tensor:
        """Logits, or actions in [-1, 1], at each step (B, K, A); at the last step only (B, 1, A) if `last`.

        Takes (B, K), (B, K, O), (B, K) or (B, K, A), (B, K). The action at a step has no influence on what is predicted
        there.
        """
        if self.spaces.discrete:
            actions = functional.one_hot(actions, self.spaces.action).float()
        when = self.of_timestep(timesteps.clamp(max=self.timesteps - 1))
        parts = (
            self.of_return(returns_to_go[..., None] / self.scale),
            self.of_observation(self.normaliser(observations)),
            self.of_action(actions),
        )
        tokens = torch.stack([part + when for part in parts], dim=2).flatten(1, 2)  # (B, 3K, W)
        states = torch.arange(1, tokens.shape[1], 3, device=tokens.device)
        outputs: Tensor = self.head(self.trunk(self.norm(tokens), states[-1:] if last else states)).float()
        return outputs if self.spaces.discrete else outputs.tanh()

    def with_target(self, target: float) -> Conditioned:
        """A player that asks for this return (in the environment's own units)."""
        return Conditioned(self, target)


def action_prediction_loss(model: DecisionTransformer, windows: Windows) -> tuple[Tensor, dict[str, Tensor]]:
    """The mean over the steps that are no padding, a scalar with gradient, and its metrics."""
    outputs = model(windows.returns_to_go, windows.observations, windows.actions, windows.timesteps)
    predicted = outputs[windows.valid]
    wanted = windows.actions[windows.valid]
    if model.spaces.discrete:
        value = functional.cross_entropy(predicted, wanted)
        agreement = (predicted.detach().argmax(-1) == wanted).float().mean()
        return value, {"loss": value.detach(), "accuracy": agreement}
    value = functional.mse_loss(predicted, wanted)
    return value, {"loss": value.detach()}


def fit(
    model: DecisionTransformer,
    optimizer: Adam,
    batches: Iterable[Windows],
    *,
    auxiliary: Callable[[], Tensor] | None = None,
    weight: float = 0.0,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, a batch's metrics (METRICS) at a time; `auxiliary` gives a further loss, with the weight
    `weight`.
    """
    for windows in batches:
        model.train()  # playing in between turns dropout off
        value, metrics = action_prediction_loss(model, windows)
        if auxiliary is not None:
            beside = auxiliary()
            value = value + weight * beside
            metrics["language_loss"] = beside.detach()
        optimizer.step(value)
        yield metrics
