import hashlib
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from tasks import check
from tasks.common import checkpoints, tables
from tasks.common.errors import StageError
from tasks.offline import decision_transformer as stage
from tasks.offline.datasets import dataset_files
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tasks.offline.policies import kinds
from tasks.offline.training import learners
from tests import repository
from tests.tasks import tiny
from tests.tasks.offline.worlds import record

SMALL = {
    "seeds": [0, 7],
    "steps": 12,
    "batch_size": 4,
    "log_every": 4,
    "evaluate_every": 2,
    "evaluate_episodes": 3,
    "variants": {"DT": {"init": "random", "text": 0.0}},
    "width": 8,
    "layers": 2,
    "heads": 1,
    "dropout": 0.1,
    "learning_rate": 0.01,
    "weight_decay": 0.0001,
    "warmup": 5,
    "last_rate": 0.1,
    "clip": 0.25,
    "bfloat16": False,
    "datasets": {
        "graph-12": {"targets": [-1.0, -4.0], "scale": 10.0, "context": 4, "steps": None},
        "Reacher-v5-random": {"targets": [-4.0], "scale": 10.0, "context": 4, "steps": None},
    },
    "language": {"source": "directory", "path": "-", "hub_id": "-", "hub_revision": "-"},
    "text": {"path": "-", "rows": 2, "length": 6},
    "synthetic": {"states": 5, "steps": 3, "rows": 2, "length": 6, "learning_rate": 0.01},
}
INITS = ["DT", "DT-language", "DT-synthetic"]
NOWHERE = Path("nowhere")
SHARED = Path(__file__).parents[4] / "shared"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return record(tmp_path_factory.mktemp("data") / "graph-12", "graph", 12)


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(**changes):
    return stage.DecisionTransformerConfig.model_validate({**SMALL, **changes})


def made(data, out, language=NOWHERE, texts=NOWHERE, **changes):
    out.mkdir(parents=True)
    return out, stage.run(config(**changes), data, language, texts, out)


@pytest.fixture(scope="module")
def spoken(data, tmp_path_factory):
    """Trainings with and without text: the options, the folder and the stage's metrics."""
    home = tmp_path_factory.mktemp("spoken")
    options = all_inits(home, text=0.5)
    options["variants"] |= {"DT-silent": {"init": "random", "text": 0.0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        out, metrics = made(data, home / "out/graph-12", **options)
    return options, out, metrics


@pytest.fixture(scope="module")
def in_our_own_trunk(data, tmp_path_factory):
    """Trainings with text where no variant starts from a language model: as `spoken`."""
    home = tmp_path_factory.mktemp("our_own")
    options = all_inits(home) | {"variants": variants("random", "synthetic", text=0.5), "seeds": [7]}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return options, *made(data, home / "out/graph-12", **options)


@pytest.fixture(scope="module")
def silent(data, tmp_path_factory):
    """Trainings of every init without text: the folder."""
    home = tmp_path_factory.mktemp("silent")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return made(data, home / "out", seeds=[0], **all_inits(home))[0]


def hashes(folder):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_policies_know_what_may_be_asked_of_them(spoken):
    _, out, metrics = spoken
    for seed in (0, 7):
        policy = kinds.load_policy_of_any_kind(out / "DT-silent" / f"seed-{seed}")
        assert policy.targets == [-1.0, -4.0]
        assert (policy.scale, policy.context) == (10.0, 4)
        returns = [play_seeded_episodes("graph", policy.with_target(target), 3, 0).returns for target in policy.targets]
        assert [len(each) for each in returns] == [3, 3]
        first = play_seeded_episodes("graph", policy.with_target(-1.0), 3, 5).returns
        assert (play_seeded_episodes("graph", wrap_as_player(policy), 3, 5).returns == first).all()
    assert metrics["DT-silent"]["step"] == 12


def test_the_data_sets_mean_and_deviation_go_with_the_policy(data, silent):
    assert set(pd.read_csv(silent / "curves.csv")) == {"variant", "seed", "step", "loss", "accuracy"}
    seen = dataset_files.read_offline_dataset(data).transitions.observations
    normaliser = kinds.load_policy_of_any_kind(silent / "DT/seed-0").normaliser
    assert torch.allclose(normaliser.mean, seen.mean(0), atol=1e-6)
    assert torch.allclose(normaliser(seen).std(0, correction=0)[seen.std(0) > 0], torch.tensor(1.0), atol=1e-4)


def test_continuous_actions(tmp_path):
    data = record(tmp_path / "Reacher-v5-random", "Reacher-v5", 3)
    out, _ = made(data, tmp_path / "out", seeds=[0])
    policy = kinds.load_policy_of_any_kind(out / "DT/seed-0")
    player = policy.with_target(-4.0)
    player.begin(2)
    actions = player.act(torch.arange(2), torch.randn(2, policy.spaces.observation))
    assert actions.shape == (2, 2)
    assert actions.abs().max() <= 1


def variants(*inits, text=0.0):
    return {"DT" + f"-{init}" * (init != "random"): {"init": init, "text": text} for init in inits}


def all_inits(home, text=0.0):
    model = tiny.gpt2(vocab_size=300, bos_token_id=0, eos_token_id=0)
    words(home / "model")
    model.save_pretrained(home / "model")
    (home / "text").mkdir()
    (home / "text/a.txt").write_text("one two three\nfour five\n" * 5)
    return {
        "language": home / "model",
        "texts": home / "text",
        "variants": variants("random", "language", "synthetic", text=text),
    }


def words(path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(SIGNS)}, merges=[]))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=letters).save_pretrained(path)


SIGNS = ["Ġ", "Ċ", *"abcdefghijklmnopqrstuvwxyz"]


def test_every_init_and_seed_ends_elsewhere_with_text_beside(spoken):
    options, out, metrics = spoken
    weights = hashes(out)
    assert (
        len({weights[f"{init}/seed-{seed}/model.safetensors"] for init in options["variants"] for seed in (0, 7)}) == 8
    )
    assert all(metrics[init]["language_loss"] > 0 for init in INITS)


def trainable(folder):
    policy = kinds.load_policy_of_any_kind(folder)
    return sum(p.numel() for p in policy.parameters() if p.requires_grad)


def test_all_inits_have_equal_size_and_start_from_different_trunks(silent):
    assert len({trainable(silent / init / "seed-0") for init in INITS}) == 1
    start = tiny.gpt2(vocab_size=300).transformer.h[0].mlp.c_fc.weight.flatten()
    ends = {
        i: kinds.load_policy_of_any_kind(silent / i / "seed-0").trunk.model.h[0].mlp.c_fc.weight.flatten()
        for i in INITS
    }
    like = {init: torch.cosine_similarity(start, end, dim=0).item() for init, end in ends.items()}
    assert like["DT-language"] > 0.95
    assert abs(like["DT"]) < 0.1
    assert abs(like["DT-synthetic"]) < 0.1


def test_synthetic_text_teaches_our_own_trunk_as_well(in_our_own_trunk):
    _, out, _ = in_our_own_trunk
    weights = [kinds.load_policy_of_any_kind(out / init / "seed-7").trunk for init in ("DT", "DT-synthetic")]
    assert weights[0].sizes == weights[1].sizes
    assert not torch.equal(weights[0].norm.weight, weights[1].norm.weight)


@pytest.mark.parametrize("variant", INITS)
def test_training_that_was_killed_goes_on_to_the_same_bits(
    spoken, in_our_own_trunk, data, tmp_path, monkeypatch, variant
):
    """One seed of one variant ends as it does beside all others, in a process that has drawn other random numbers
    before.
    """
    every, whole, _ = spoken if variant == "DT-language" else in_our_own_trunk
    options = every | {"seeds": [7], "variants": {variant: every["variants"][variant]}}
    torch.rand(5)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    rows = learners.mean_metrics.iterate_mean_step_metrics

    def killed(steps, every):
        yield from islice(rows(steps, every), 2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learners.mean_metrics, "iterate_mean_step_metrics", killed)
        with pytest.raises(KeyboardInterrupt):
            made(data, tmp_path / "killed/graph-12", **options)
    assert list(checkpoints.FOLDER.glob("*.safetensors"))
    resumed, _ = made(data, tmp_path / "resumed/graph-12", **options)
    assert hashes(resumed / variant / "seed-7") == hashes(whole / variant / "seed-7")
    for table in ("curves.csv", "returns.csv"):
        rows = pd.read_csv(whole / table).query("variant == @variant and seed == 7").reset_index(drop=True)
        again = pd.read_csv(resumed / table)
        pd.testing.assert_frame_equal(again, rows[again.columns], check_exact=True)


def test_a_language_model_too_short_for_the_context_is_refused(data, tmp_path):
    long = {"graph-12": {"targets": [-1.0], "scale": 10.0, "context": 22, "steps": None}}
    with pytest.raises(StageError, match=r"made for 64 tokens, but context and text need 66"):
        made(data, tmp_path / "out", datasets=long, **all_inits(tmp_path))


def test_variants_with_and_without_text_side_by_side(spoken):
    """Each has the metrics that it learns by: the stage once ended with a number that is none, after its last
    training.
    """
    _, out, metrics = spoken
    assert metrics["DT"].keys() - metrics["DT-silent"].keys() == {"language_loss"}
    assert np.isfinite([*metrics["DT-silent"].values(), *metrics["DT"].values()]).all()
    ends = pd.read_csv(out / "curves.csv").groupby(["variant", "seed"]).last().groupby("variant").mean()
    assert metrics["DT"]["language_loss"] == pytest.approx(ends.loc["DT", "language_loss"])
    assert not [line for file in out.rglob("*.*") for line in check.find_file_problems(file)]


def test_text_from_the_language_flows_corpus(data, tmp_path):
    options = all_inits(tmp_path)
    documents = pd.DataFrame({"kind": ["facts", "stories"], "text": ["one two", "three"]})
    tables.write_table(stage.Documents, documents, tmp_path / "corpus/corpus.parquet")
    stream, vocabulary = stage._load_token_stream(config(), options["language"], tmp_path / "corpus")
    assert "".join(SIGNS[token] for token in stream) == "oneĠtwothree"
    assert vocabulary == len(SIGNS)


@pytest.mark.skipif(not (SHARED / "data/wikitext2").is_dir(), reason=repository.needs("data/wikitext2"))
def test_a_real_language_model_learns_real_text_beside_actions(data, tmp_path):
    (tmp_path / "text").mkdir()
    words = (SHARED / "data/wikitext2/valid.txt").read_text()[:40_000]
    (tmp_path / "text/wiki.txt").write_text(words)
    beside = {"path": "-", "rows": 4, "length": 64}
    more = {"seeds": [0], "steps": 40, "variants": variants("random", "language", text=0.1)}
    places = {"language": SHARED / "models/stories260K", "texts": tmp_path / "text"}
    out, metrics = made(data, tmp_path / "out", **places, text=beside, learning_rate=0.001, **more)
    curves = pd.read_csv(out / "curves.csv").groupby("variant")["language_loss"]
    first, last = curves.first(), curves.last()
    assert first["DT-language"] < first["DT"] < np.log(512) + 1, "it knows words already; new weights know nothing"
    assert (last < first).all()
    assert metrics["DT-language"]["language_loss"] == pytest.approx(last["DT-language"])


@pytest.mark.parametrize("missing", ["text", "model"])
def test_text_or_tokenizer_that_is_not_there_is_named(data, tmp_path, missing):
    all_inits(tmp_path)
    places = {"text": tmp_path / "text", "model": tmp_path / "model", missing: tmp_path / "empty"}
    (tmp_path / "empty").mkdir()
    what = {"text": "0 tokens of text", "model": "cannot be loaded "}[missing]
    with pytest.raises(StageError, match=f"^{tmp_path}/empty: {what}"):
        stage._load_token_stream(config(), places["model"], places["text"])


@pytest.mark.parametrize(
    "change",
    [
        {"variants": {}},
        {"variants": {"DT": {"init": "wiki", "text": 0.0}}},
        {"clip": 0.0},
        {"heads": 3},
        {"dropout": 1.0},
    ],
)
def test_what_makes_no_sense_is_refused(change):
    with pytest.raises(ValidationError):
        config(**change)
