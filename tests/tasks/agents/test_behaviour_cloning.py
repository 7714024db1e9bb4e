"""Behaviour cloning: what is learned, and what is masked."""

import pandas as pd
import pytest
import torch

from tasks.agents.playing import episode_files as on_disk
from tasks.algorithms.agents.transcripts import make_transcripts
from tasks.algorithms.language.sft import cross_entropy_and_accuracy
from tasks.common import models
from tasks.common.errors import ConfigError, DataError
from tests.tasks import forks
from tests.tasks.agents import small
from tests.tasks.architectures import SHAPES


@pytest.fixture
def fork(monkeypatch):
    """Chat templates are rendered without a fresh process."""
    forks.render_templates(monkeypatch)


def test_the_loss_is_on_actions_alone(recorded, cloned):
    """By hand: the mean negative log-likelihood of every action's tokens behind all that stands before them."""
    model, words = models.load_model(cloned), models.load_tokenizer(cloned)
    turns = on_disk.read_turns(recorded, "validation")
    episodes = on_disk.encode_transcripts(words, turns)
    found, _ = cross_entropy_and_accuracy(model, make_transcripts(episodes, words.pad_token_id).batch())
    wanted = []
    for one in episodes:
        with torch.no_grad():
            logps = model(input_ids=torch.tensor([one.tokens]), use_cache=False).logits[0].log_softmax(-1)
        wanted += [
            logps[at - 1, token].item()
            for at, (token, acts) in enumerate(zip(one.tokens, one.acts, strict=True))
            if acts
        ]
    assert found.item() == pytest.approx(-sum(wanted) / len(wanted), rel=1e-4)
    said = [words.decode(episodes[0].action(turn)[:-1]) for turn in range(max(episodes[0].turns) + 1)]
    assert said == turns["action"][turns["episode"] == 0].tolist()


def test_it_learns(cloned):
    curve = pd.read_csv(cloned / "curve.csv")["loss"]
    assert curve.iloc[-3:].mean() < curve.iloc[:3].mean() / 2


@pytest.mark.usefixtures("fork")
def test_a_model_that_exists_is_cloned_into(cloned, recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = small.clone(tmp_path, recorded, init="directory", path=cloned, epochs=1, learning_rate=1e-9)
    before, after = models.load_model(cloned), models.load_model(again)
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.usefixtures("fork")
def test_a_model_with_a_sliding_window_is_refused_before_it_learns(cloned, recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = models.load_tokenizer(cloned)
    for part in (words, SHAPES["mistral"](vocab_size=len(words), pad_token_id=words.pad_token_id)):
        part.save_pretrained(tmp_path / "mistral")
    line = (
        r"params.yaml: behaviour_cloning.path: .*mistral: expected plain attention, .* layers with a "
        r"DynamicSlidingWindowLayer"
    )
    with pytest.raises(ConfigError, match=line):
        small.clone(tmp_path, recorded, init="directory", path=tmp_path / "mistral")
    assert not (tmp_path / "clones").exists()


def test_what_does_not_fit_is_one_line(recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=r"the longest of the expert's episodes has \d+ tokens; expected at most 64: set behaviour_cl"
    ):
        small.clone(tmp_path, recorded, context=64)
    with pytest.raises(ConfigError, match=r"params.yaml: behaviour_cloning.path: .* holds no config.json"):
        small.clone(tmp_path, recorded, init="directory", path=tmp_path)
