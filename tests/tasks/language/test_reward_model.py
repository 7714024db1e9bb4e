import json
import shutil

import pandas as pd
import pytest
import torch
from torch.nn.functional import softplus
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GraniteConfig, GraniteForCausalLM

from tasks.algorithms.language import reward_model
from tasks.common import models, tables
from tasks.common.errors import StageError
from tasks.language.configs.reward_model import MarginsConfig, RewardModelConfig
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet
from tasks.language.reward_model import build_untrained_reward_model, run
from tasks.language.reward_modelling.on_pairs import OnPairs, compute_pair_accuracies, iterate_with_corrupted_answers
from tasks.language.rewards import reward_model_files
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.preferences import Comparisons
from tasks.language.training.architectures import check_shared_prompt_sampling
from tests.conftest import PARAMS, changed

CONFIG = RewardModelConfig(
    seed=0,
    objective="pairs",
    data="data/preferences",
    kind="head",
    beta=2.5,
    threshold=0.3,
    likelihood=0.0,
    epochs=4,
    prompts_per_batch=6,
    max_length=None,
    truncation="drop",
    learning_rate=0.01,
    centering=0.01,
    corrupted=0.0,
    margins={"negligibly": 0.0, "slightly": 0.0, "better": 0.0, "significantly": 0.0},
    ties="half",
    outcome_tokens="all",
    step_score="minimum",
    clip=1.0,
    training=PARAMS["reward_model"]["training"],
    lora=None,
)


BY_LOG_PROBABILITIES = {"kind": "log_probability", "learning_rate": 0.003, "centering": 0.0}
MARGINS = MarginsConfig(negligibly=0.0, slightly=0.5, better=1.0, significantly=0.0)


def fit(made, preferences, out, **changes):
    config = changed(CONFIG, **changes)
    return run(config, made / "pretrained", preferences, out / "model", out / "curve.csv")


@pytest.fixture(scope="module")
def home(easy_sums):
    """A policy, and comparisons of answers to sums."""
    return easy_sums


@pytest.fixture(scope="module")
def fitted(home, tmp_path_factory):
    """The metrics, and the folder with model/ and curve.csv."""
    out = tmp_path_factory.mktemp("reward_model")
    return fit(home, home / "preferences", out), out


def scores(path, table):
    """Scores as a user would compute them: one conversation at a time, without padding, by Transformers' own class."""
    model, words = AutoModelForSequenceClassification.from_pretrained(path), models.load_tokenizer(path)
    with torch.no_grad():
        return [
            [
                model(torch.tensor([chat.encode_prompt(words, row.prompt) + chat.encode_response(words, text)]))
                .logits[0, 0]
                .item()
                for text in (row.chosen, row.rejected)
            ]
            for row in table.itertuples()
        ]


def fresh(home, seed):
    """The policy with a head of this seed."""
    words, generator = models.load_tokenizer(home / "pretrained"), torch.Generator().manual_seed(seed)
    return build_untrained_reward_model(CONFIG, home / "pretrained", generator, words, "float32")


def test_it_learns_what_a_fresh_head_does_not_know(home, fitted):
    metrics, _ = fitted
    assert metrics["accuracy"] > 0.9
    assert metrics["pairs"]["all"] == 12
    examples = OnPairs(CONFIG, home / "preferences", models.load_tokenizer(home / "pretrained"))
    found = [examples.measure(fresh(home, seed))["accuracy"] for seed in range(6)]
    assert 0.2 < sum(found) / 6 < 0.8
    likelihood = build_untrained_reward_model(
        CONFIG.model_copy(update={"kind": "log_probability"}),
        home / "pretrained",
        torch.Generator().manual_seed(0),
        models.load_tokenizer(home / "pretrained"),
        "float32",
    )
    assert metrics["untrained"]["accuracy"] == examples.measure(likelihood)["accuracy"]


def test_metrics_are_those_of_the_saved_model_over_all_test_pairs(home, fitted):
    metrics, out = fitted
    found = scores(out / "model", tables.read_table(Comparisons, home / "preferences/test.parquet"))
    margins = torch.tensor([chosen - rejected for chosen, rejected in found])
    assert metrics["accuracy"] == pytest.approx((margins > 0).float().mean().item())
    assert metrics["margin"] == pytest.approx(margins.mean().item(), rel=1e-3)
    assert metrics["loss"] == pytest.approx(softplus(-margins).mean().item(), rel=1e-3)


def test_calibration_counts_every_test_pair(fitted):
    table = pd.read_csv(fitted[1] / "model/calibration.csv")
    assert table["pairs"].sum() == 12
    assert table["predicted"].is_monotonic_increasing
    assert table["predicted"].between(0.5, 1).all()
    assert table["observed"].between(0, 1).all()


def test_curve_and_bytes(home, fitted, tmp_path):
    curve = pd.read_csv(fitted[1] / "curve.csv")
    assert len(curve) == 4 * 3, "18 prompts in batches of 6"
    assert {"loss", "accuracy", "margin"} <= set(curve.columns)
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        fit(home, home / "preferences", tmp_path / name, seed=seed, epochs=1)
    weights = [tmp_path / name / "model/model.safetensors" for name in ("one", "same", "other")]
    assert weights[0].read_bytes() == weights[1].read_bytes() != weights[2].read_bytes()


def test_the_config_says_what_padding_is_and_that_the_scores_are_a_head_s(home, tmp_path):
    """Without padding Transformers' own forward pass scores it, and refuses a batch. The configs of base models often
    lack it.

    The policy is a reward model of the other kind.
    """
    policy = shutil.copytree(home / "pretrained", tmp_path / "pretrained")
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps({**config, "pad_token_id": None, "reward_beta": 2.0}))
    fit(tmp_path, home / "preferences", tmp_path, epochs=1)
    assert hasattr(reward_model_files.load_reward_model(tmp_path / "model"), "score")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    words = models.load_tokenizer(tmp_path / "model")
    ids = chat.encode_prompt(words, "Why?") + chat.encode_response(words, "7")
    padded = [*ids, *[words.pad_token_id] * 5]
    with torch.no_grad():
        alone, wide = model(torch.tensor([ids])).logits.item(), model(torch.tensor([padded] * 2)).logits[0].item()
    assert alone == pytest.approx(wide, rel=1e-4)


def test_accuracies_by_hand():
    """Both, one and none of the answers show steps; the second label contradicts the rubric, the last pair has equal
    points.
    """
    worked, other, plain = "2 + 3 = 5\n#### 5", "2 + 3 = 6\n#### 6", "#### 5"
    table = pd.DataFrame(
        {
            "chosen": [worked, other, worked, plain, plain],
            "rejected": [other, worked, plain, "#### 6", "#### 7"],
            "strength": ["a better", "b slightly better", "a better", "a negligibly better", "b significantly better"],
            "chosen_score": [10, 4, 10, 7, 2],
            "rejected_score": [4, 10, 7, 2, 2],
        }
    )
    found = compute_pair_accuracies(table, torch.tensor([1.0, -2.0, -0.5, 0.0, 3.0], dtype=torch.float64))
    assert found["pairs"] == {"all": 5, "neither_shows_steps": 2, "one_shows_steps": 1, "both_show_steps": 2}
    assert found["accuracy"] == 0.4, "of the annotator's labels; a tie is not right"
    assert found["by_level"] == {"negligibly": 0.0, "slightly": 0.0, "better": 0.5, "significantly": 1.0}
    assert found["against_labels"] == {
        "all": 0.5,  # here a tie is half right
        "neither_shows_steps": 0.75,
        "one_shows_steps": 0.0,
        "both_show_steps": 0.5,
    }
    assert found["against_points"] == {
        "all": (1 + 1 + 0 + 0.5) / 4,
        "neither_shows_steps": 0.5,
        "one_shows_steps": 0.0,
        "both_show_steps": 1.0,
    }


def test_without_scores_only_the_order_by_them_is_left_out():
    """Pairs from elsewhere often have none."""
    texts = pd.DataFrame({"chosen": ["2 + 3 = 5", "5"], "rejected": ["6", "7"], "strength": ["a better", "b better"]})
    margins = torch.tensor([1.0, -2.0], dtype=torch.float64)
    found = compute_pair_accuracies(texts, margins)
    assert "against_points" not in found
    scored = compute_pair_accuracies(texts.assign(chosen_score=[8.0, 8.0], rejected_score=[1.0, 9.5]), margins)
    assert scored.pop("against_points") == {"all": 1.0, "one_shows_steps": 1.0, "neither_shows_steps": 1.0}
    assert scored == found


def test_a_stratum_without_pairs_is_left_out(fitted):
    metrics, _ = fitted
    assert metrics["pairs"]["neither_shows_steps"] == 0
    assert set(metrics["against_points"]) == {"all", "one_shows_steps", "both_show_steps"}
    assert metrics["against_labels"]["all"] == pytest.approx(metrics["accuracy"])


def test_margins_belong_to_their_rows(home, fitted, tmp_path):
    """The order of the held-out table does not change the result of any stratum; every third pair is the wrong way
    round.
    """
    table = tables.read_table(Comparisons, home / "preferences/test.parquet")
    turned = pd.Series([number % 3 == 0 for number in range(len(table))], index=table.index)
    for name, other in (("chosen", "rejected"), ("rejected", "chosen")):
        table[name] = table[name].where(
            ~turned, tables.read_table(Comparisons, home / "preferences/test.parquet")[other]
        )
    words, model = models.load_tokenizer(home / "pretrained"), reward_model_files.load_reward_model(fitted[1] / "model")
    metrics, rewards = [], []
    for number, rows in enumerate((table, table.sample(frac=1, random_state=3))):
        folder = shutil.copytree(home / "preferences", tmp_path / str(number))
        tables.write_table(Comparisons, rows, folder / "test.parquet")
        examples = OnPairs(CONFIG, folder, words)
        metrics.append(examples.measure(model))
        examples.write(folder)
        held_out = tables.read_table(HeldOut, folder / "held_out.parquet").set_index("comparison_id").sort_index()
        rewards.append(held_out["chosen_reward"] - held_out["rejected_reward"])
    assert metrics[1]["accuracy"] == pytest.approx(2 / 3)
    for name in ("against_points", "against_labels", "pairs", "by_level"):
        assert metrics[1][name] == pytest.approx(metrics[0][name])
    assert rewards[1].tolist() == pytest.approx(rewards[0].tolist(), rel=1e-3)
    assert {*rewards[1].index[rewards[1] < 0]} == {*table["comparison_id"][turned]}


@pytest.fixture(scope="module")
def by_log_probabilities(home, tmp_path_factory):
    """The metrics, and the folder with model/ and curve.csv, of scores that are log-probabilities."""
    out = tmp_path_factory.mktemp("log_probability")
    return fit(home, home / "preferences", out, **BY_LOG_PROBABILITIES), out


def test_log_probabilities_score_as_a_person_would(home, by_log_probabilities):
    """The saved model is an ordinary language model; before training its scores are the policy's own."""
    metrics, out = by_log_probabilities
    table = tables.read_table(Comparisons, home / "preferences/test.parquet")
    words = models.load_tokenizer(out / "model")

    def likely(path):
        model = AutoModelForCausalLM.from_pretrained(path)
        found = []
        for row in table.itertuples():
            asked = chat.encode_prompt(words, row.prompt)
            for text in (row.chosen, row.rejected):
                answer = chat.encode_response(words, text)
                with torch.no_grad():
                    logps = model(torch.tensor([asked + answer])).logits[0].log_softmax(-1)
                picked = [logps[len(asked) + at - 1, token].item() for at, token in enumerate(answer)]
                found.append(2.5 * sum(picked) / len(picked))
        return torch.tensor(found[::2]) - torch.tensor(found[1::2])

    for found, margins in ((metrics, likely(out / "model")), (metrics["untrained"], likely(home / "pretrained"))):
        assert found["accuracy"] == pytest.approx((margins > 0).float().mean().item())
        assert found["loss"] == pytest.approx(softplus(-margins).mean().item(), rel=1e-3)
    assert metrics["accuracy"] > 0.9
    assert metrics["loss"] < metrics["untrained"]["loss"] - 0.1
    held_out = (
        tables.read_table(HeldOut, out / "model/held_out.parquet")
        .set_index("comparison_id")
        .loc[table["comparison_id"]]
    )
    kept = (held_out["chosen_untrained"] - held_out["rejected_untrained"]).tolist()
    assert kept == pytest.approx(likely(home / "pretrained").tolist(), rel=1e-3, abs=1e-4)
    scorer = reward_model_files.load_reward_model(out / "model")
    assert scorer.config.reward_beta == 2.5
    assert not hasattr(scorer, "score"), "a language model"


def test_likelihood_holds_the_language_model_where_it_was(home, by_log_probabilities, tmp_path):
    """Preferences alone can be fitted by making both answers of a pair unlikely."""
    rows = tables.read_table(Comparisons, home / "preferences/test.parquet")
    words = models.load_tokenizer(home / "pretrained")
    answers = list(ComparisonSet(rows, words).responses(8))
    fit(home, home / "preferences", tmp_path, **BY_LOG_PROBABILITIES, likelihood=3.0)
    free, held = (
        reward_model.score_batches(reward_model_files.load_reward_model(out / "model"), answers).mean().item() / 2.5
        for out in (by_log_probabilities[1], tmp_path)
    )
    assert held > free + 0.5


@pytest.mark.parametrize("beta", [0, -1.0, "much"])
def test_a_bad_beta_in_a_config_is_one_line(home, tmp_path, beta):
    model = shutil.copytree(home / "pretrained", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"reward_beta": beta}))
    with pytest.raises(StageError) as stopped:
        reward_model_files.load_reward_model(model)
    assert str(stopped.value) == f"{model}: config.json: reward_beta: expected a number above 0, got {beta!r}"


def test_corrupted_answers_are_learnt_to_be_worse(home, fitted, tmp_path):
    """Honest pairs alone do not teach it; with one corruption for each prompt nearly all are told from good answers."""
    taught = fit(home, home / "preferences", tmp_path, corrupted=1.0, epochs=6)["beats"]
    assert set(taught) == {"cut_off", "unending", "shuffled", "random_tokens"}
    assert sum(taught.values()) / 4 > 0.85 > sum(fitted[0]["beats"].values()) / 4


def test_a_resumed_training_draws_the_same_corruptions(home):
    words = models.load_tokenizer(home / "pretrained")
    pairs = ComparisonSet(tables.read_table(Comparisons, home / "preferences/train.parquet"), words)
    config = CONFIG.model_copy(update={"corrupted": 0.5})

    def drawn(start):
        batches = pairs.batches(config.prompts_per_batch, config.epochs, config.seed, start)
        return [
            batch.responses.tokens.tolist()
            for batch in iterate_with_corrupted_answers(batches, config, len(words), start)
        ]

    assert drawn(3) == drawn(0)[3:]


def test_margin_and_centring_are_used(home, fitted, tmp_path):
    plain = pd.read_csv(fitted[1] / "curve.csv")["loss"].iloc[0]
    for change in ({"margins": MARGINS}, {"centering": 3.0}):
        fit(home, home / "preferences", tmp_path, epochs=1, **change)
        assert pd.read_csv(tmp_path / "curve.csv")["loss"].iloc[0] > plain + 0.1


def test_a_type_without_a_class_for_scores_gets_a_head_on_its_body(home, tmp_path):
    """Granite has no such class in transformers. The trained model loads again, and scores as before."""
    words = models.load_tokenizer(home / "pretrained")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    granite = GraniteForCausalLM(GraniteConfig(vocab_size=len(words), pad_token_id=words.pad_token_id, **sizes))
    models.save_model(granite, words, tmp_path / "pretrained")
    check_shared_prompt_sampling("granite", granite.eval())
    metrics = fit(tmp_path, home / "preferences", tmp_path, epochs=2)
    assert metrics["accuracy"] > 0.5
    scorer = reward_model_files.load_reward_model(tmp_path / "model")
    assert scorer.score.weight.shape == (1, 32)
    assert not torch.equal(scorer.model.embed_tokens.weight.cpu(), granite.model.embed_tokens.weight), "trained"
    fresh = reward_model_files.load_classifier(tmp_path / "pretrained", new=["score.weight"])
    assert torch.equal(fresh.model.embed_tokens.weight.cpu(), granite.model.embed_tokens.weight), (
        "the body is the policy's"
    )
