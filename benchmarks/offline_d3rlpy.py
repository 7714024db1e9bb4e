"""d3rlpy's side of comparisons: a script for a Python with d3rlpy; it imports nothing of this repository.

It reads one command as JSON from each line of standard input and answers each with a line of JSON. Arrays pass through
NPZ files, weights as the list `weight_0`, `weight_1`, .. in the order of `parameters()`. benchmarks/offline_peer.py
talks to it.
"""

import json
import sys
import time
from types import SimpleNamespace

import d3rlpy
import numpy as np
import torch
from d3rlpy import algos, optimizers
from d3rlpy.dataset import MDPDataset, TransitionMiniBatch
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.preprocessing import StandardObservationScaler


def build_algorithm_config(settings):
    """The algorithm's config, unbuilt; what `settings` lacks has d3rlpy's default."""
    small = VectorEncoderFactory(settings.get("hidden", [settings.get("width")]))
    kind = {"adam": optimizers.AdamFactory, "sgd": optimizers.SGDFactory}[settings["optimizer"]]
    common = {"batch_size": settings["batch_size"]}
    rate = settings["learning_rate"]
    if "mean" in settings:
        mean = np.array(settings["mean"])
        deviation = np.array(settings["deviation"])
        common["observation_scaler"] = StandardObservationScaler(mean=mean, std=deviation, eps=settings["scaler_eps"])
    method = settings["method"]
    discrete = settings["discrete"]
    if method == "decision_transformer":
        common |= {"num_heads": settings["heads"], "num_layers": settings["layers"]}
        common |= {"context_size": settings["context"], "max_timestep": settings["timesteps"]}
        common |= {f"{part}_dropout": settings["dropout"] for part in ("attn", "resid", "embed")}
        common |= {
            "encoder_factory": small,
            "optim_factory": kind(clip_grad_norm=settings["clip"]),
            "learning_rate": rate,
        }
        return (algos.DiscreteDecisionTransformerConfig if discrete else algos.DecisionTransformerConfig)(**common)
    if method == "cql_continuous":
        common |= {f"{part}_encoder_factory": small for part in ("actor", "critic")}
        common |= {f"{part}_optim_factory": kind() for part in ("actor", "critic", "temp", "alpha")}
        common |= {f"{part}_learning_rate": rate for part in ("actor", "critic", "temp")}
        common |= {"gamma": settings["gamma"], "tau": settings["target_rate"], "n_action_samples": settings["samples"]}
        held = {"alpha_learning_rate": 0.0, "initial_alpha": 1.0, "alpha_threshold": 0.0}  # alpha is fixed
        kind = algos.CalQLConfig if settings.get("calibrated") else algos.CQLConfig
        return kind(**common, **held, conservative_weight=settings["alpha"])
    if method in ("iql", "td3", "td3_bc", "rebrac"):
        return build_actor_critic_config(settings, common, small, kind)
    common |= {"encoder_factory": small, "optim_factory": kind(), "learning_rate": rate}
    if method == "bc":
        return algos.DiscreteBCConfig(**common, beta=settings["beta"]) if discrete else algos.BCConfig(**common)
    common |= {"gamma": settings["gamma"], "target_update_interval": settings["target_every"]}
    return (
        algos.DoubleDQNConfig(**common)
        if method == "dqn"
        else algos.DiscreteCQLConfig(**common, alpha=settings["alpha"])
    )


def build_actor_critic_config(settings, common, small, kind):
    """A method with one policy and critics beside it."""
    norm = settings.get("layer_norm", False)
    common |= {
        "actor_encoder_factory": small,
        "critic_encoder_factory": VectorEncoderFactory(settings["hidden"], use_layer_norm=norm),
        **{f"{part}_optim_factory": kind() for part in ("actor", "critic")},
        **{f"{part}_learning_rate": settings["learning_rate"] for part in ("actor", "critic")},
        **{"gamma": settings["gamma"], "tau": settings["target_rate"], "n_critics": settings["critics"]},
    }
    if settings["method"] == "iql":
        own = {
            "expectile": settings["expectile"],
            "weight_temp": settings["beta"],
            "max_weight": settings["max_weight"],
        }
        return algos.IQLConfig(**common, **own, value_encoder_factory=small)
    common |= {
        "target_smoothing_sigma": settings["noise"],
        "target_smoothing_clip": settings["noise_clip"],
        "update_actor_interval": settings["policy_every"],
    }
    if settings["method"] == "td3":
        return algos.TD3Config(**common)
    if settings["method"] == "td3_bc":
        return algos.TD3PlusBCConfig(**common, alpha=settings["alpha"])
    return algos.ReBRACConfig(**common, actor_beta=settings["policy_beta"], critic_beta=settings["critic_beta"])


def build_mdp_dataset(data, actions, discrete, keep_last):
    """An MDPDataset of whole episodes; an episode has as many observations as actions, each before its action.

    d3rlpy drops a truncated episode's last transition, since it has no next observation. `keep_last` adds an
    idle step, which gives that transition a next observation and is dropped in its place.
    """
    columns = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for start, length in zip(np.cumsum(data["lengths"]) - data["lengths"], data["lengths"], strict=True):
        rows = slice(start, start + length)
        terminated = bool(data["terminated"][start + length - 1])
        idle = 1 if keep_last and not terminated else 0
        last = data["next_observations"][start + length - 1][None]
        columns["observations"].append(np.concatenate([data["observations"][rows], last[:idle]]))
        for name in ("actions", "rewards"):
            values = data[name][rows]
            columns[name].append(np.concatenate([values, np.zeros_like(values[:idle])]))
        ends = np.arange(length + idle) == length + idle - 1
        columns["terminals"].append(ends & terminated)
        columns["timeouts"].append(ends & (not terminated))
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    space = d3rlpy.constants.ActionSpace.DISCRETE if discrete else d3rlpy.constants.ActionSpace.CONTINUOUS
    joined |= {name: joined[name].astype(np.float32) for name in ("terminals", "timeouts")}
    return MDPDataset(**joined, action_space=space, action_size=actions)


def build_minibatch(data, rows):
    """These transitions in d3rlpy's form."""
    columns = {name: data[name][rows].astype(np.float32) for name in ("observations", "next_observations")}
    for name in ("actions", "rewards", "terminated"):
        columns[name] = data[name][rows].astype(np.float32).reshape(len(rows), -1)
    columns["terminals"] = columns.pop("terminated")
    ones = np.ones((len(rows), 1), np.float32)
    ends = np.cumsum(data["lengths"])
    whole = [SimpleNamespace(rewards_to_go=data["rewards"][row : ends[ends > row][0], None]) for row in rows]
    following = np.roll(data["actions"], -1, axis=0)[rows].astype(np.float32).reshape(len(rows), -1)
    return TransitionMiniBatch(**columns, next_actions=following, intervals=ones, transitions=whole)


class Side:
    """One algorithm and its data; each method is a command."""

    def make(self, settings, data, observation, action, seed):
        """Build the algorithm, with its own initial weights."""
        torch.set_num_threads(1)
        d3rlpy.seed(seed)
        self.settings = settings
        self.data = dict(np.load(data))
        self.algo = build_algorithm_config(settings).create(device="cpu:0")
        self.algo.create_impl((observation,), action)
        self.actions = action
        self.buffer = None
        return {"versions": f"d3rlpy {d3rlpy.__version__} with torch {torch.__version__}"}

    def load(self, path, targets=None):
        """Take weights from NPZ files; target networks without a file become copies of the online ones."""
        modules = self.algo.impl.modules
        _load_weights_from_file(self._parameters(), path)
        if hasattr(modules, "targ_q_funcs"):
            modules.targ_q_funcs.load_state_dict(modules.q_funcs.state_dict())
            if targets:
                _load_weights_from_file(modules.targ_q_funcs.parameters(), targets)
        if hasattr(modules, "targ_policy"):
            modules.targ_policy.load_state_dict(modules.policy.state_dict())
        return {}

    def fit(self, count):
        """Train as users do, on batches that d3rlpy draws; the seconds of processor time, and the number of
        transitions.
        """
        if self.buffer is None:
            self.buffer = build_mdp_dataset(
                self.data, self.actions, self.settings["discrete"], self.settings["keep_last"]
            )
        quiet = {"show_progress": False, "logger_adapter": NoopAdapterFactory()}
        began = time.process_time()
        self.algo.fit(self.buffer, n_steps=count, n_steps_per_epoch=count, **quiet)
        return {"seconds": time.process_time() - began, "transitions": self.buffer.transition_count}

    def update(self, rows):
        """Train on these transitions, (K, B) row numbers in an NPZ file; the losses that d3rlpy reports."""
        return {"losses": [self.algo.update(build_minibatch(self.data, chosen)) for chosen in np.load(rows)["rows"]]}

    def record(self, rows):
        """As `update`, and also the actions that the critics valued, in order; continuous CQL only."""
        asked = []
        forwarder = self.algo.impl._q_func_forwarder
        expected = forwarder.compute_expected_q

        def witness(x, action, reduction="mean"):
            asked.append(action.detach().numpy().tolist())
            return expected(x, action, reduction)

        forwarder.compute_expected_q = witness
        return self.update(rows) | {"asked": asked}

    def save(self, path):
        """Write the weights, and the gradients of the last update."""
        arrays = {f"weight_{number}": p.detach().numpy() for number, p in enumerate(self._parameters())}
        arrays |= {f"gradient_{n}": p.grad.numpy() for n, p in enumerate(self._parameters()) if p.grad is not None}
        np.savez(path, **arrays)
        return {}

    def _parameters(self):
        modules = self.algo.impl.modules
        named = ("imitator", "transformer", "policy", "q_funcs", "value_func")
        return [p for name in named if hasattr(modules, name) for p in getattr(modules, name).parameters()]


def _load_weights_from_file(parameters, path):
    arrays = np.load(path)
    with torch.no_grad():
        for number, parameter in enumerate(parameters):
            parameter.copy_(torch.from_numpy(arrays[f"weight_{number}"]))


def main():
    """Answer until standard input ends. d3rlpy's log, which it prints to standard output, goes to standard error."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    side = Side()
    for line in sys.stdin:
        command, given = json.loads(line)
        print(json.dumps(getattr(side, command)(**given)), file=answers, flush=True)


if __name__ == "__main__":
    main()
