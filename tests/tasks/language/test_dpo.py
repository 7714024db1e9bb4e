from math import log

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from flows.params.checking import parse_and_check_configs
from flows.params.files import ParameterError
from tasks.algorithms.language import dpo
from tasks.algorithms.language.completions import compute_response_logps, make_completions
from tasks.common import models, tables
from tasks.language.configs.dpo import DpoConfig
from tasks.language.data import chat
from tasks.language.dpo import run
from tasks.language.tables.preferences import Comparisons
from tests.conftest import PARAMS, changed

PLAIN = {"loss": "sigmoid", "beta": 0.1, "label_smoothing": 0.0, "length_normalised": False, "gamma": 0.0}
CHANGES = {**PLAIN, "nll": 0.0, "epochs": 3, "prompts_per_batch": 6, "learning_rate": 0.003}
CONFIG = DpoConfig.model_validate({**PARAMS["dpo"], **CHANGES})


def fit(made, preferences, out, **changes):
    config = changed(CONFIG, **changes)
    return run(config, made / "pretrained", preferences, out / "model", out / "curve.csv")


@pytest.fixture(scope="module")
def fitted(easy_sums, tmp_path_factory):
    """The metrics and the folder of a training that learns."""
    out = tmp_path_factory.mktemp("dpo")
    return fit(easy_sums, easy_sums / "preferences", out, epochs=5), out


@pytest.fixture(scope="module")
def few(preferences, tmp_path_factory):
    """The pairs of six prompts, for trainings of three steps an epoch whose results need not be good."""
    folder = tmp_path_factory.mktemp("few")
    table = pd.read_parquet(preferences / "train.parquet")
    tables.write_table(Comparisons, table.head(12), folder / "train.parquet")
    return folder


@pytest.fixture(scope="module")
def brief(made, few, tmp_path_factory):
    """A training on the few pairs."""
    out = tmp_path_factory.mktemp("brief")
    fit_few(made, few, out)
    return out


def fit_few(made, few, out, **changes):
    return fit(made, few, out, **{"epochs": 1, "prompts_per_batch": 2, **changes})


@pytest.fixture(scope="module")
def held_out(easy_sums):
    """The pairs that are not trained on, and by the name of its column the log-probability of each answer before."""
    table = tables.read_table(Comparisons, easy_sums / "preferences/test.parquet")
    return table, {side: logps(easy_sums / "pretrained", table, side) for side in ("chosen", "rejected")}


def logps(path, table, side):
    model, words = AutoModelForCausalLM.from_pretrained(path).eval(), models.load_tokenizer(path)
    asked = [chat.encode_prompt(words, text) for text in table["prompt"]]
    answers = [chat.encode_response(words, text) for text in table[side]]
    with torch.no_grad():
        return compute_response_logps(model, make_completions(asked, range(len(asked)), answers, words.pad_token_id))


def test_held_out_pairs_move_the_right_way(held_out, fitted):
    """Measured outside the stage, from the two saved models: margins grow on pairs that were not trained on."""
    table, before = held_out
    change = {side: logps(fitted[1] / "model", table, side) - logps_before for side, logps_before in before.items()}
    margin = 0.1 * (change["chosen"] - change["rejected"])
    assert (margin > 0).float().mean() > 0.8, "without training no margin differs from zero"
    assert margin.mean() > 0.1


def test_the_curve_begins_at_log_two_and_tells_all(fitted):
    metrics, out = fitted
    curve = pd.read_csv(out / "curve.csv")
    assert len(curve) == 5 * 3, "18 prompts in batches of 6"
    first = curve.iloc[0]
    assert first["loss"] == pytest.approx(log(2), abs=1e-5)
    assert first["rewards/margins"] == pytest.approx(0, abs=1e-4)
    assert first["logps/chosen_change"] == pytest.approx(0, abs=1e-3)
    assert curve["rewards/margins"].iloc[-1] > 0.1
    names = {"logps/chosen", "logps/rejected", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "grad_norm"}
    assert names <= set(curve.columns) & set(metrics)
    assert metrics["loss"] == pytest.approx(curve["loss"].iloc[-1]), "of the last tenth of the steps"


@pytest.mark.parametrize(
    "changes",
    [
        {"label_smoothing": 0.1, "length_normalised": True, "beta": 1.0},
        {"loss": "ipo", "length_normalised": True, "beta": 1.0},
        {"loss": "simpo", "length_normalised": True, "beta": 2.0, "gamma": 1.0},
    ],
    ids=str,
)
def test_every_loss_prefers_what_people_prefer_on_held_out_pairs(easy_sums, held_out, tmp_path, monkeypatch, changes):
    if changes.get("loss") == "simpo":
        monkeypatch.setattr(dpo, "compute_reference_logps", None)  # a reference pass would fail
    metrics = fit(easy_sums, easy_sums / "preferences", tmp_path, epochs=2, **changes)
    table, before = held_out
    gained = {side: logps(tmp_path / "model", table, side) - logps_before for side, logps_before in before.items()}
    assert (gained["chosen"] > gained["rejected"]).float().mean() > 0.8, "without training none differs from zero"
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve["loss"].iloc[-1] < curve["loss"].iloc[0]
    assert ("logps/chosen_change" in metrics) == (changes.get("loss") != "simpo")


@pytest.mark.parametrize(
    ("changes", "key", "expected", "line"),
    [
        (
            {"loss": "ipo", "label_smoothing": 0.1},
            "label_smoothing",
            "expected 0 with loss ipo",
            "params.yaml: dpo.label_smoothing: expected 0 with loss ipo or simpo, got 0.1",
        ),
        (
            {"gamma": 0.5},
            "gamma",
            "expected 0 with loss sigmoid",
            "params.yaml: dpo.gamma: expected 0 with loss sigmoid or ipo, got 0.5",
        ),
        (
            {"loss": "simpo"},
            "length_normalised",
            "expected true with loss simpo",
            "params.yaml: dpo.length_normalised: expected true with loss simpo, got false",
        ),
        (
            {"label_smoothing": 0.5},  # with half of the labels wrong they carry no information
            "label_smoothing",
            "less than 0.5",
            "params.yaml: dpo.label_smoothing: expected a number of at least 0 and below 0.5, got 0.5",
        ),
        (
            {"loss": "simp0"},
            "loss",
            "'sigmoid', 'ipo' or 'simpo'",
            "params.yaml: dpo.loss: expected 'sigmoid' or 'ipo' or 'simpo', got 'simp0'",
        ),
    ],
)
def test_a_parameter_that_the_loss_would_ignore_is_an_error(changes, key, expected, line):
    """The Config raises it, and the command line prints it before anything runs."""
    values = {**CONFIG.model_dump(), **changes}
    with pytest.raises(ValidationError) as error:
        DpoConfig.model_validate(values)
    assert [(fault["loc"], expected in fault["msg"]) for fault in error.value.errors()] == [((key,), True)]
    with pytest.raises(ParameterError) as told:
        parse_and_check_configs({"dpo": values}, {"dpo": DpoConfig}, {})
    assert str(told.value) == line
    parse_and_check_configs({"dpo": CONFIG.model_dump()}, {"dpo": DpoConfig}, {})


def test_a_strong_pull_holds_the_policy(made, few, tmp_path):
    """Beta is the weight of the reference: with a large one the policy changes less on the same pairs."""
    table, moved = pd.read_parquet(few / "train.parquet"), {}
    before = logps(made / "pretrained", table, "rejected")
    for beta in (0.1, 50.0):
        fit_few(made, few, tmp_path / str(beta), beta=beta, epochs=3)
        moved[beta] = (logps(tmp_path / str(beta) / "model", table, "rejected") - before).abs().mean()
    assert moved[50.0] < moved[0.1] / 2


def test_the_same_seed_gives_the_same_bytes(made, few, brief, tmp_path):
    for name, seed in (("same", 0), ("other", 1)):
        fit_few(made, few, tmp_path / name, seed=seed)
    first, same, other = (
        (out / "model/model.safetensors").read_bytes() for out in (brief, tmp_path / "same", tmp_path / "other")
    )
    assert first == same != other


def first_row(out):
    return pd.read_csv(out / "curve.csv").iloc[0]


def test_label_smoothing_takes_back_its_share_twice(made, few, brief, tmp_path):
    """Where policy and reference are equal the gradient is (1 - 2e) times that without smoothing."""
    fit_few(made, few, tmp_path, label_smoothing=0.25)
    assert first_row(tmp_path)["grad_norm"] == pytest.approx(first_row(brief)["grad_norm"] / 2, rel=1e-3)


def test_gamma_is_the_margin_that_simpo_asks_for(made, few, tmp_path):
    """For a large gamma log sigmoid(margin - gamma) is nearly margin - gamma itself."""
    fit_few(made, few, tmp_path, loss="simpo", length_normalised=True, beta=2.0, gamma=30.0)
    row = first_row(tmp_path)
    assert row["loss"] == pytest.approx(30.0 - row["rewards/margins"], rel=1e-5)
