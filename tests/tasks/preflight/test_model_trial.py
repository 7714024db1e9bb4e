"""The trial of a model: which lengths it finds, what agrees, and what is said where something does not."""

import re
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM

from tasks.common import models
from tasks.common.errors import DataError
from tasks.preflight import model_trial
from tasks.preflight.__main__ import iterate_language_checks
from tasks.preflight.model_trial import Threshold
from tests.tasks import forks
from tests.tasks.tiny import SIZES, llama


@pytest.fixture(autouse=True)
def quick_templates(one_thread, monkeypatch):
    """Chat templates are rendered without a fresh process."""
    forks.render_templates(monkeypatch)


@pytest.fixture
def words(made):
    return models.load_tokenizer(made / "pretrained")


def sliding(words, **changes):
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": len(words) + 3, "max_position_embeddings": 64, "sliding_window": 40}
    return MistralForCausalLM(MistralConfig(**{**sizes, **changes})).eval()


def long_rope(words):
    """Phi 3 rotates by other angles once a row has more than 48 tokens, the cached ones before them included."""
    torch.manual_seed(0)
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 48}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
    sizes = {**SIZES, "vocab_size": len(words), "max_position_embeddings": 128}
    return Phi3ForCausalLM(Phi3Config(**sizes, original_max_position_embeddings=48, rope_parameters=rope)).eval()


def saved(model, words, folder):
    models.save_model(model, words, folder)
    return SimpleNamespace(init="directory", path=str(folder), hub_id="nobody/nothing", hub_revision="main")


def test_lengths_of_a_config_by_hand():
    """At any depth; what counts layers, or is no number, is no length."""
    config = {
        "sliding_window": 512,
        "use_sliding_window": True,
        "max_window_layers": 28,
        "sliding_window_pattern": 6,
        "chunk_size_feed_forward": 3,
        "attention_chunk_size": 8192,
        "window_size": None,
        "rope_parameters": {"full_attention": {"original_max_position_embeddings": 4096}, "factor": 8.0},
        "max_position_embeddings": 32768,
        0: 1,
    }
    assert model_trial.list_length_thresholds(config) == [
        Threshold(512, "sliding_window"),
        Threshold(4096, "original_max_position_embeddings"),
        Threshold(8192, "attention_chunk_size"),
    ]


@pytest.mark.parametrize(
    ("changes", "planned", "left"),
    [
        ({}, [12, 40], []),
        ({"sliding_window": 44}, [12, 44], []),
        ({"sliding_window": 31}, [31], []),
        ({"sliding_window": 45}, [12], ["sliding_window = 45 (the model has 64 positions)"]),
        ({"sliding_window": 4096, "max_position_embeddings": 8192}, [12, 4096], []),
        ({"sliding_window": 4097}, [12], ["sliding_window = 4,097 (beyond 4,096 tokens)"]),
        ({"sliding_window": None}, [12], []),
    ],
)
def test_what_cannot_be_reached_is_not_tried(words, changes, planned, left):
    found = model_trial.plan_trial(sliding(words, **changes).config)
    assert [one.length for one in found.planned] == planned
    assert found.left == left


def test_a_sound_model_agrees_beyond_its_window(words, tmp_path):
    own = saved(sliding(words), words, tmp_path)
    about, ends, agreed = model_trial.iterate_model_trial_lines(own)
    rows = len(words) + 3
    assert about.endswith(f" weights, reads 64 tokens; 3 of its {rows} rows have no token and are never sampled")
    assert ends == "model: an answer ends with '<|end|>'"
    ways = "model: sampling, training and transformers' generate agree on 20 tokens"
    assert re.fullmatch(rf"{ways} behind 8, beyond 40 \(sliding_window\), to \de-0\d nats", agreed)


def test_a_model_that_cannot_keep_its_cache_is_one_line(words, tmp_path):
    own = saved(long_rope(words), words, tmp_path)
    with pytest.raises(DataError) as caught:
        list(model_trial.iterate_model_trial_lines(own))
    line = (
        rf"{tmp_path}: beyond 48 tokens \(config.json: original_max_position_embeddings\) a token's "
        r"log-probability differs by \S+ nats between training and .*"
    )
    assert re.fullmatch(line, str(caught.value))


def test_a_sampler_that_differs_is_noticed_at_once(words, monkeypatch):
    """Off by a tenth of a nat at one token."""
    difference = model_trial.measure_logp_differences
    monkeypatch.setattr(model_trial, "measure_logp_differences", lambda *given: {**difference(*given), "sampling": 0.1})
    with pytest.raises(
        DataError,
        match=r"m: behind 8 tokens a token's log-probability differs by 0\.1 nats between training and sampling",
    ):
        model_trial.try_planned_thresholds(sliding(words), words, "m", model_trial.plan_trial(sliding(words).config))


def test_what_fails_in_the_trial_alone_is_said(words, tmp_path, monkeypatch):
    def fail(model, prompt, pad):
        if len(prompt) > 8:
            raise NotImplementedError("no such cache")
        return {"sampling": 0.0}

    monkeypatch.setattr(model_trial, "measure_logp_differences", fail)
    *_, agreed, left = model_trial.iterate_model_trial_lines(saved(sliding(words), words, tmp_path))
    assert agreed.endswith("agree on 20 tokens behind 8, to 0 nats")
    assert left == "model: not tried: sliding_window = 40 (NotImplementedError: no such cache)"


def test_it_ends_in_time(words, tmp_path, monkeypatch):
    """What was found until then is said, and what was not tried."""
    own = saved(sliding(words), words, tmp_path)

    def late(model, tokenizer, name, found):
        found.agreed.append(found.planned[0])
        raise model_trial._OverError

    monkeypatch.setattr(model_trial, "try_planned_thresholds", late)
    assert [*model_trial.iterate_model_trial_lines(own)][2:] == [
        "model: sampling, training and transformers' generate agree on 20 tokens behind 8, to 0 nats",
        "model: not tried: sliding_window = 40 (60 s were over)",
    ]
    monkeypatch.setattr(model_trial, "SECONDS", 1e-3)
    assert [*model_trial.iterate_model_trial_lines(own)] == [
        "model: not tried, since to load it took more than 0.001 s"
    ]
    with pytest.raises(model_trial._OverError), model_trial._limit_time(0.05):
        time.sleep(20)


def test_what_is_not_here_or_too_large_is_not_tried(words, tmp_path, monkeypatch):
    own = saved(llama(vocab_size=len(words)), words, tmp_path)
    monkeypatch.setattr(model_trial, "_read_free_memory", lambda: 10**5)
    [line] = model_trial.iterate_model_trial_lines(own)
    assert line == (
        f"model: not tried, since it needs {4e-9 * model_trial._count_stored_weights(tmp_path):.1f} GB of "
        "memory, and 0.0 GB are free"
    )
    own.init = "hub"
    assert [*model_trial.iterate_model_trial_lines(own)] == [
        "model: not tried, since the weights of nobody/nothing are not on this machine yet"
    ]


def test_check_begins_with_it(monkeypatch):
    """For a model that exists; one from scratch has nothing to try, and neither has a run that trains no language
    model.
    """
    monkeypatch.setattr(model_trial, "iterate_model_trial_lines", lambda own: iter([f"tried {own.path}"]))
    given = {"pretrained": SimpleNamespace(init="directory", path="model")}
    assert next(iterate_language_checks(given, ["sft"], False, {})) == "tried model"
    assert [*iterate_language_checks(given, ["behaviour@graph"], False, {})] == []
    given["pretrained"].init = "scratch"
    with pytest.raises(KeyError, match="demonstrations"):  # which it reads next
        next(iterate_language_checks(given, ["sft"], False, {}))
