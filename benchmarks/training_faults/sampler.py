"""A sampler that differs from the trainer, with and without importance weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from benchmarks.training_faults.fault import Arm, Fault, Row
from flows.params import files
from tasks.common import estimates, models
from tasks.language.configs.search import SearchConfig
from tasks.language.rewards.verifier import Verifier
from tasks.language.test_time import sampling

COLUMNS = ("reward", "entropy", "sampling/logp_difference")
ASKED = {"problems": 200, "samples": 4, "temperature": 1.0}  # of the section search
CAP = "reinforce.importance_cap=5.0"
TOP_P = ("reinforce.temperature=1.0", "reinforce.top_p=0.7")


def read(folder: Path) -> Row:
    """REINFORCE's curve, and what the trained distribution is: answers sampled from all of it at temperature 1."""
    config = SearchConfig.from_yaml({**files.params((folder / "params.yaml").read_text())["search"], **ASKED})
    assert isinstance(config, SearchConfig)
    policy = folder / "data/reinforce"
    tokenizer = models.load_tokenizer(policy)
    given = sampling.asked(config, folder / "data/problems", tokenizer)
    with Verifier() as verifier:
        drawn = sampling.sample(config, "policy", sampling.load(policy, tokenizer), tokenizer, given, verifier)
    samples = drawn[~drawn["greedy"]].groupby("problem_id")
    measured = {
        "entropy": -samples["likelihood"].mean(),
        "accuracy": samples["right"].mean(),
        "greedy": drawn[drawn["greedy"]].set_index("problem_id")["right"].astype(float),
    }
    found = {name: estimates.bootstrap(values, 0, 1000) for name, values in measured.items()}
    evaluated = {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in found.items()}
    return {"curve": workspace.curve(folder, "reinforce", *COLUMNS), "evaluated": evaluated}


def draw(figure: Figure, rows: Mapping[str, Sequence[Row]]) -> None:
    """The reward of the samples over the steps; the entropy and the accuracy of what was trained, at the end."""
    left, middle, right = figure.subplots(1, 3)
    pictures.lines(left, rows, "reward", "reward of the samples", smooth=5)
    pictures.bars(middle, rows, "entropy", "entropy at temperature 1, nats a token", 1)
    pictures.bars(right, rows, "accuracy", "right at temperature 1, %", 100)
    for axis in (middle, right):
        axis.set_xticks([])
    pictures.legend(figure, left)


FAULT = Fault(
    "sampler",
    {
        "sampled and trained at 1": Arm(["reinforce"], ["reinforce.temperature=1.0"]),
        "sampled at 0.6, trained at 1": Arm(["reinforce"]),
        "the same, weighted": Arm(["reinforce"], [CAP]),
        "top-p 0.7, trained on all": Arm(["reinforce"], [*TOP_P]),
        "top-p 0.7, weighted": Arm(["reinforce"], [*TOP_P, CAP]),
    },
    read,
    draw,
)
