import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tasks import artifacts, scores
from tasks.offline.offline_report import Expectation, OfflineReportConfig, headline, run
from tasks.results import Verdict

# dataset -> (environment, reference, D4RL's, mean and best of the data)
DATA = {
    "graph-60": ("graph", (-9.0, -3.0), None, (-8.2, -1.0)),
    "LunarLander-v3-medium": ("LunarLander-v3", (-180.0, 270.0), None, (80.0, 260.0)),
    "Hopper-v5-medium-expert": ("Hopper-v5", (20.0, 3200.0), (-20.272305, 3234.3), (1900.0, 3300.0)),
}
# policy -> method, data set, variant -> (mean return, deviation between seeds), targets
POLICIES = {
    "tabular_q-graph-60": ("tabular_q", "graph-60", {"Q-learning": (-3.0, 0.0)}, []),
    "bc-lander": ("bc", "LunarLander-v3-medium", {"BC": (60.0, 5.0), "10%BC": (95.0, 30.0)}, []),
    "dqn-lander": ("dqn", "LunarLander-v3-medium", {"DQN": (-300.0, 60.0)}, []),
    "cql-lander": ("cql", "LunarLander-v3-medium", {"CQL": (150.0, 5.0)}, []),
    "dt-lander": ("decision_transformer", "LunarLander-v3-medium", {"DT": (110.0, 8.0)}, [200.0, 250.0, 100.0]),
    "bc-hopper": ("bc", "Hopper-v5-medium-expert", {"BC": (1300.0, 300.0), "10%BC": (3100.0, 40.0)}, []),
    "dt-hopper": ("decision_transformer", "Hopper-v5-medium-expert", {"DT": (2100.0, 300.0)}, [3600.0, 1800.0]),
}
CONFIG = OfflineReportConfig(
    policies=list(POLICIES),
    expectations=[
        Expectation(dataset="LunarLander-v3-medium", higher="data mean", lower="DQN"),
        Expectation(dataset="LunarLander-v3-medium", higher="CQL", lower="DQN"),
        Expectation(dataset="LunarLander-v3-medium", higher="DT", lower="10%BC"),
        Expectation(dataset="Hopper-v5-medium-expert", higher="DT", lower="10%BC"),
    ],
)
SEEDS, EPISODES = (0, 1, 2), 5


def picture():
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=100, loop=0)
    return buffer.getvalue()


def measure(rng, name, out):
    """What `returns` would have written, with drawn numbers."""
    method, dataset, variants, targets = POLICIES[name]
    environment, reference, d4rl, (mean, best) = DATA[dataset]
    episodes, values, starts, progress = [], [], [], []
    seeds = (0,) if method == "tabular_q" else SEEDS
    for variant, (centre, deviation) in variants.items():
        for seed in seeds:
            of_seed = centre + deviation * (seed - 1)
            for place, target in enumerate(targets or [np.nan]):
                key = {"variant": variant, "seed": seed, "target": target}
                for episode in range(EPISODES):
                    total = of_seed - 20 * place + (0 if method == "tabular_q" else 2.0 * (episode - 2))
                    episodes.append({**key, "episode": episode, "total": total, "length": 40})
            for step in range(500, 2501, 500):
                reached = of_seed - 100 * np.exp(-step / 700) + rng.normal(0, 3)
                progress.append({"variant": variant, "seed": seed, "step": step, "return": reached})
            belief = {"variant": variant, "seed": seed, "gamma": 0.99, "truth": of_seed / 2}
            if not targets:
                values.append({**belief, "source": scores.FITTED, "value": of_seed / 2 + rng.normal(0, 9)})
            if method in ("tabular_q", "dqn", "cql"):
                worth = {"tabular_q": -1.5, "dqn": 4000.0 + 90 * seed, "cql": of_seed / 2 + 3 * (seed - 1)}[method]
                values.append({**belief, "source": scores.CLAIMED, "value": worth})
            if environment == "graph":
                for start in range(6):
                    key = {"variant": variant, "seed": seed, "target": np.nan, "start": start, "optimum": -3.0}
                    starts.append(
                        {**key, "recorded": -3.0 if start < 2 else -7.0 if start < 5 else np.nan, "total": -3.0}
                    )
    artifacts.write(scores.Episodes, pd.DataFrame(episodes), out / scores.EPISODES)
    for schema, rows, file in ((scores.Values, values, scores.VALUES), (scores.Starts, starts, scores.STARTS)):
        kinds = {key: column.dtype.type for key, column in schema.to_schema().columns.items()}
        artifacts.write(schema, pd.DataFrame(rows, columns=list(kinds)).astype(kinds), out / file)
    pd.DataFrame(progress).to_csv(out / scores.PROGRESS, index=False)
    pd.DataFrame(progress).assign(loss=0.5).to_csv(out / scores.CURVES, index=False)
    (out / scores.PICTURE).write_bytes(picture())
    described = {
        "method": method,
        "dataset": dataset,
        "environment": environment,
        "reference": dict(zip(("minimum", "maximum"), reference, strict=True)),
        "d4rl": dict(zip(("minimum", "maximum"), d4rl, strict=True)) if d4rl else None,
        "data": {"episodes": 60, "transitions": 5000, "mean": mean, "best": best},
        "cost": {variant: {"steps": 2500, "parameters": 68_000 if targets else 70_000} for variant in variants},
        "picture": {
            "variant": next(iter(variants)),
            "seed": 0,
            "target": targets[0] if targets else None,
            "return": 123.0,
            "steps": 40,
        },
    }
    (out / scores.DESCRIPTION).write_text(json.dumps(described))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home, rng = tmp_path_factory.mktemp("offline_report"), np.random.default_rng(0)
    for name in POLICIES:
        measure(rng, name, home / "returns" / name)
    (home / "metrics.json").write_text(json.dumps(run(CONFIG, home / "returns", home / "out")))
    return home
