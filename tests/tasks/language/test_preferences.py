import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from tasks.algorithms.language import dpo
from tasks.common import models, tables
from tasks.common.errors import StageError
from tasks.language.configs.preferences import PreferencesConfig
from tasks.language.data import forms, prompts
from tasks.language.data.comparisons import ComparisonSet
from tasks.language.preferences import _compute_score_metrics, run
from tasks.language.reward_modelling.on_pairs import compute_pair_accuracies
from tasks.language.tables.preferences import Annotations, Comparisons
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tests import repository
from tests.conftest import PARAMS, changed
from tests.tasks.language import test_dpo, test_reward_model

LEVELS = {"slightly": 3.0, "better": 5.0, "significantly": 8.0}
CHANGES = {
    "seed": 3,
    "criteria": "rubric",
    "temperature": 0.0,
    "length_bonus": 0.0,
    "tie_margin": 0.0,
    "strengths": LEVELS,
    "test_share": 0.25,
}
CONFIG = PreferencesConfig.model_validate({**PARAMS["preferences"], **CHANGES})
RIGHT, SLIP, WRONG, CUT = "3 + {n} = {s}\n#### {s}", "3 + {n} = {s}\n#### 99", "#### 99", "3 + {n} = {s}\n#### {s}"


def inputs(home, path, pairs="no pairs", judgements="no judgements"):
    """Where the stage reads: `path` is preferences.path."""
    return path, home / pairs, home / judgements, home / "problems"


@pytest.fixture(scope="module")
def annotatable(tmp_path_factory):
    """Twenty prompts with four answers each, worth 10, 3 + 3 + 1, 2 and (cut off) 9 points."""
    home = tmp_path_factory.mktemp("annotatable")
    problems, responses = [], []
    for n in range(1, 21):
        solution = RIGHT.format(n=n, s=n + 3)
        name = f"train-{n}"
        question = f"Ada has 3 pens and buys {n}. How many has she?"
        problems.append(
            {"problem_id": name, "question": question, "solution": solution, "answer": str(n + 3), "steps": 1}
        )
        for sample, text in enumerate([WRONG, RIGHT, SLIP, CUT]):
            responses.append(
                {
                    "prompt_id": name,
                    "sample": sample,
                    "prompt": question,
                    "response": text.format(n=n, s=n + 3),
                    "tokens": [n, sample, 2],
                    "logps": [-0.1, -0.2, -0.3],
                    "ended": sample != 3,
                }
            )
    tables.write_table(Problems, pd.DataFrame(problems), home / "problems" / "train.parquet")
    tables.write_table(Responses, pd.DataFrame(responses), home / "responses" / "responses.parquet")
    return home


def annotate(home, out, responses=None, **changes):
    """Run the stage on the answers in `home`, or on other `responses` to the same prompts; its metrics and folder."""
    return run(changed(CONFIG, **changes), *inputs(home, responses or home / "responses"), out), out


@pytest.fixture
def stage(annotatable, tmp_path):
    return lambda name="out", **changes: annotate(annotatable, tmp_path / name, **changes)


@pytest.fixture(scope="module")
def annotated(annotatable, tmp_path_factory):
    """The metrics and the folder of a perfect annotator."""
    return annotate(annotatable, tmp_path_factory.mktemp("annotated"))


@pytest.fixture(scope="module")
def noisy(annotatable, tmp_path_factory):
    """The metrics and the folder of an annotator who errs often."""
    return annotate(annotatable, tmp_path_factory.mktemp("noisy"), temperature=3.0)


def comparisons(out):
    frames = [pd.read_parquet(out / f"{name}.parquet") for name in ("train", "test")]
    return pd.concat(frames, ignore_index=True)


def test_scores_ranks_and_pairs_of_a_perfect_annotator(annotated):
    metrics, out = annotated
    for name in ("train", "test"):
        tables.read_table(Comparisons, out / f"{name}.parquet")  # as the schema has them
    annotations = tables.read_table(Annotations, out / "annotations.parquet")
    one = annotations[annotations["prompt_id"] == "train-5"].sort_values("sample")
    assert one["total"].tolist() == [2, 10, 7, 9]
    assert one["rank"].tolist() == [4, 1, 3, 2]
    pairs = comparisons(out)
    assert len(pairs) == 20 * 5  # 6 pairs of 4, less the one of equal texts
    assert (pairs["chosen_score"] > pairs["rejected_score"]).all()
    for side in ("chosen", "rejected"):  # of 10, 9, 7 and 2 points the last two end in 99
        assert (pairs[f"{side}_right"] == (pairs[f"{side}_score"] > 7)).all()
    assert metrics["flipped"] == metrics["ties"] == metrics["equal_scores"] == 0
    assert metrics["score"] == {"correctness": 3.25, "reasoning": 2.25, "clarity": 1.5, "total": 7.0}


def test_pairs_carry_the_tokens_that_were_sampled(annotated):
    pairs = comparisons(annotated[1])
    sample_of = {10: 1, 9: 3, 7: 2, 2: 0}
    for row in pairs.itertuples():
        n = int(row.prompt_id.removeprefix("train-"))
        assert list(row.chosen_tokens) == [n, sample_of[row.chosen_score], 2]
        assert list(row.rejected_tokens) == [n, sample_of[row.rejected_score], 2]


def test_strength_follows_the_presented_order(annotated):
    pairs = comparisons(annotated[1])
    first = pairs["comparison_id"].str.extract(r"/(\d)-(\d)").astype(int)[0]
    score_of_first = first.map({0: 2, 1: 10, 2: 7, 3: 9})
    a_preferred = pairs["chosen_score"] == score_of_first
    assert (pairs["strength"].str.startswith("a") == a_preferred).all()
    assert 0.3 < a_preferred.mean() < 0.7  # the order shown is random
    gap = pairs["chosen_score"] - pairs["rejected_score"]
    levels = pairs["strength"].str[2:].map(lambda text: text.removesuffix("better").strip())
    assert {*zip(gap, levels, strict=True)} == {
        (2, "negligibly"),
        (3, "slightly"),
        (5, ""),
        (7, ""),
        (8, "significantly"),
    }


def test_no_prompt_is_in_both_splits(annotated):
    metrics, out = annotated
    train, test = (set(pd.read_parquet(out / f"{n}.parquet")["prompt_id"]) for n in ("train", "test"))
    assert not train & test
    assert (len(train), len(test)) == (15, 5)
    assert metrics["pairs"] == {"train": 75, "test": 25}


def test_ties_give_no_pairs(stage):
    metrics, out = stage(tie_margin=1.0)  # 10 and 9 tie
    assert metrics["ties"] == pytest.approx(1 / 6)
    gaps = comparisons(out)["chosen_score"] - comparisons(out)["rejected_score"]
    assert gaps.min() > 1


def test_noise_flips_pairs(noisy):
    metrics, out = noisy
    pairs = comparisons(out)
    assert 0.1 < (pairs["chosen_score"] < pairs["rejected_score"]).mean() < 0.5
    assert metrics["flipped"] == (pairs["chosen_score"] < pairs["rejected_score"]).mean()


def test_a_taste_for_length_counts_each_token(annotatable, tmp_path):
    """The wrong answer, worth 2 points, gets 8 tokens more than the right one's 3: at a point a token they tie, and
    above it is preferred.
    """
    given = pd.read_parquet(annotatable / "responses/responses.parquet")
    given = given[given["prompt_id"] == "train-5"]
    long = [
        [7] * 11 if text.startswith("####") else [*tokens]
        for text, tokens in zip(given["response"], given["tokens"], strict=True)
    ]
    longer = given.assign(tokens=long, logps=[[-0.1] * len(tokens) for tokens in long])
    other = longer.assign(prompt_id="train-6", prompt=longer["prompt"].str.replace("5", "6"))  # to be held out
    (tmp_path / "responses").mkdir()
    pd.concat([longer, other]).to_parquet(tmp_path / "responses/responses.parquet")
    ranked = {}
    for bonus in (0.99, 1.0, 1.01):
        _, out = annotate(annotatable, tmp_path / str(bonus), tmp_path / "responses", length_bonus=bonus)
        one = pd.read_parquet(out / "annotations.parquet")
        ranked[bonus] = one[one["prompt_id"] == "train-5"].sort_values("sample")
        assert ranked[bonus]["total"].tolist() == [2, 10, 7, 9], "points are the rubric's all the same"
    assert [ranked[bonus]["rank"].tolist() for bonus in ranked] == [[2, 1, 4, 3], [1, 1, 3, 2], [1, 2, 4, 3]]


def test_flipped_counts_what_the_scores_tell_apart():
    """Of four comparisons three have different scores; one of those prefers the answer with the lower score."""
    gaps = [(7, 3), (2, 10), (5, 5), (9, 8)]
    compared = pd.DataFrame(
        {
            "chosen_score": [chosen for chosen, _ in gaps],
            "rejected_score": [rejected for _, rejected in gaps],
        }
    )
    metrics = _compute_score_metrics(compared, {"annotator"})
    assert metrics["flipped"] == pytest.approx(1 / 3)
    assert metrics["equal_scores"] == pytest.approx(1 / 4)


def test_a_tie_margin_hides_noise(stage, noisy):
    """Noise flips the closest comparisons, and a margin removes these."""
    near, far = noisy[0], stage(temperature=3.0, tie_margin=2.0)[0]
    assert near["flipped"] > far["flipped"] > 0
    assert near["ties"] == 0 < far["ties"]


def test_the_seed_decides(stage, noisy):
    outs = [stage(name, temperature=3.0, seed=seed)[1] for name, seed in (("same", 3), ("other", 4))]
    first, same, other = ((out / "train.parquet").read_bytes() for out in (noisy[1], *outs))
    assert first == same != other


def test_no_pairs_at_all_is_said(stage):
    with pytest.raises(StageError, match="no training pairs: all responses to those prompts tie"):
        stage(tie_margin=10.0)


def given(tmp_path, rows, name="given", test=(), **changes):
    """Run the stage on these rows as files; its metrics and its folder."""
    raw, out = tmp_path / "raw" / name, tmp_path / name
    raw.mkdir(parents=True)
    for file, part in (("train", rows), ("test", test)):
        if part:
            (raw / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    config = CONFIG.model_copy(update={"source": "files", "path": str(raw), **changes})
    return run(config, *inputs(tmp_path, raw), out), out


PAIRS = [{"prompt": f"Question {n}?", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)]


def test_given_pairs_are_split_by_prompt_and_counted(tmp_path):
    rows = [*PAIRS, *({**row, "rejected": "worse"} for row in PAIRS), PAIRS[3], {**PAIRS[0], "chosen": "bad 0"}]
    metrics, out = given(tmp_path, rows)
    assert metrics == {
        "pairs": {"train": 12, "test": 4},
        "strong": 1.0,
        "equal_texts": 1,
        "duplicates": 1,
        "leaked": 0,
    } | {
        "left_out": 0,
        "contradicted": 0,
    }
    train, test = (set(tables.read_table(Comparisons, out / f"{name}.parquet")["prompt"]) for name in ("train", "test"))
    assert len(train) == 6
    assert not train & test
    assert not (out / "annotations.parquet").exists()


def test_pairs_that_differ_in_spaces_are_one_prompt_and_empty_answers_are_left_out(tmp_path, capfd):
    rows = [{**row, "prompt": row["prompt"] + space} for row in PAIRS for space in ("", " ", "\n")]
    rows = [{**row, "rejected": f"worse {n}"} for n, row in enumerate(rows)]
    empty = [{**PAIRS[0], "chosen": " ", "note": "x"}, {**PAIRS[1], "rejected": ""}]
    metrics, out = given(tmp_path, [*rows, *empty])
    assert (metrics["left_out"], sum(metrics["pairs"].values())) == (1, 25), "an empty rejected answer stays"
    train, test = (
        {text.strip() for text in tables.read_table(Comparisons, out / f"{name}.parquet")["prompt"]}
        for name in ("train", "test")
    )
    assert not train & test
    assert "preferences: rows left out: 1 without an answer\n" in capfd.readouterr().err


def test_given_scores_levels_and_held_out_files_are_kept(tmp_path):
    scored = [
        {**row, "score_chosen": score, "score_rejected": 5, "strength": "slightly better" if score == 5 else "better"}
        for row, score in zip(PAIRS, (9, 9, 9, 5, 5, 1, 9, 9), strict=True)
    ]
    metrics, out = given(tmp_path, scored[:6], test=[*scored[6:], scored[0]])
    assert metrics["given_scores"] == (5 + 2 / 2) / 8
    assert metrics["contradicted"] == 1, "9, 9, 9, 5, 5, 1, 9 and 9 against 5"
    assert (metrics["strong"], metrics["duplicates"], metrics["pairs"]) == (6 / 8, 1, {"train": 5, "test": 3})
    table = tables.read_table(Comparisons, out / "test.parquet")
    assert {*zip(table["prompt"], table["chosen_score"], table["strength"], strict=True)} == {
        ("Question 6?", 9.0, "a better"),
        ("Question 7?", 9.0, "a better"),
        ("Question 0?", 9.0, "a better"),
    }


def test_a_hub_set_of_pairs_is_read(tmp_path, monkeypatch):
    """In the columns of the hub's UltraFeedback; its split for tests is split as well, since it is all there is."""
    turns = [{"role": "user", "content": "?"}]
    rows = [
        {
            "prompt": row["prompt"],
            "chosen": [{**turns[0], "content": row["prompt"]}, {"role": "assistant", "content": row["chosen"]}],
            "rejected": [{**turns[0], "content": row["prompt"]}, {"role": "assistant", "content": row["rejected"]}],
            "messages": [],
            "score_chosen": 8.0,
            "score_rejected": 3.5,
        }
        for row in PAIRS
    ]
    held = {("some/pairs", None, "v1"): {"train_prefs": rows[:0], "test_prefs": rows}}
    monkeypatch.setattr("datasets.load_dataset", lambda name, config, revision: held[name, config, revision])
    hub = {"source": "hub", "hub_id": "some/pairs", "hub_revision": "v1", "hub_split": "test_prefs"}
    metrics = run(CONFIG.model_copy(update=hub), *inputs(tmp_path, tmp_path), tmp_path / "out")
    assert metrics["pairs"] == {"train": 6, "test": 2}
    assert metrics["given_scores"] == 1
    table = comparisons(tmp_path / "out")
    assert {*zip(table["prompt"], table["chosen"], table["rejected"], strict=True)} == {
        (row["prompt"], row["chosen"], row["rejected"]) for row in PAIRS
    }
    with pytest.raises(StageError, match=r"^some/pairs: pairs with 0 different prompts; expected at least 2"):
        run(
            CONFIG.model_copy(update={**hub, "hub_split": "train_prefs"}),
            *inputs(tmp_path, tmp_path),
            tmp_path / "none",
        )


def test_what_is_no_pair_or_no_folder_of_responses_is_one_line(tmp_path):
    with pytest.raises(StageError, match=r"train\.jsonl: line 2: expected columns prompt, chosen and rejected"):
        given(tmp_path, [PAIRS[0], {"prompt": "Why?"}])
    expected = "no responses.parquet; expected data/responses as preferences.path with source annotator"
    with pytest.raises(StageError) as stopped:
        run(CONFIG, *inputs(tmp_path, tmp_path / "raw"), tmp_path / "out")
    assert str(stopped.value) == f"{tmp_path}/raw: {expected}"
    assert not (tmp_path / "out").exists()


BEFORE = [{"role": "user", "content": "Hi there."}, {"role": "assistant", "content": "Yes?"}]


@pytest.fixture(scope="module")
def learnable(made):
    """Pairs from the made problems: the solution against one with ten times its number, half after other turns."""
    rows = []
    for n, row in enumerate(tables.read_table(Problems, made / "problems/train.parquet").itertuples()):
        asked = {"role": "user", "content": row.question}
        wrong = str(row.solution).replace(str(row.answer), f"{row.answer}0")
        rows.append({"prompt": [*BEFORE, asked] if n % 2 else [asked], "chosen": row.solution, "rejected": wrong})
    return rows


@pytest.mark.slow
def test_given_pairs_are_learned_from(made, learnable, tmp_path):
    """Files to pairs, to a reward model and a policy that prefer what people preferred on held-out prompts, with
    history.
    """
    metrics, out = given(tmp_path, learnable, test_share=0.3)
    assert metrics["pairs"] == {"train": 42, "test": 18}
    table = tables.read_table(Comparisons, out / "train.parquet")
    assert {bool(history) for history in table["history"]} == {True, False}
    found = test_reward_model.fit(made, out, tmp_path / "reward_model", epochs=8)
    assert found["accuracy"] > 0.8
    assert "against_points" not in found
    test_dpo.fit(made, out, tmp_path / "dpo", epochs=6, learning_rate=0.003)
    words, margins = models.load_tokenizer(made / "pretrained"), []
    held_out = ComparisonSet(tables.read_table(Comparisons, out / "test.parquet"), words)
    for model in (made / "pretrained", tmp_path / "dpo/model"):
        margins.append(held_out.margins(dpo.compute_reference_logps(models.load_model(model), held_out.responses(8))))
    assert (margins[1] > margins[0]).double().mean() > 0.8


def test_a_history_is_in_the_tokens_of_the_prompt(made, learnable, tmp_path):
    """A template without system prompts refuses a pair with one, in a line that names it."""
    words = models.load_tokenizer(made / "pretrained")
    asked = words.decode(prompts.encode_prompt_with_history(words, *forms.split_prompt(learnable[1]["prompt"])))
    question = learnable[1]["prompt"][-1]["content"]
    assert asked == f"<|user|>Hi there.<|assistant|>Yes?<|end|><|user|>{question}<|assistant|>"
    _, out = given(tmp_path, learnable)
    table = tables.read_table(Comparisons, out / "train.parquet")
    assert "against_points" not in compute_pair_accuracies(table, torch.zeros(len(table))), (
        "without scores there is no order by them"
    )
    compared = ComparisonSet(table, words)
    asked = [words.decode(tokens) for tokens in compared.asked]
    by_prompt = table.drop_duplicates("prompt_id").sort_values("prompt_id")
    for text, prompt, history in zip(asked, by_prompt["prompt"], by_prompt["history"], strict=True):
        assert text.count(prompt) == 1
        assert text.startswith("<|user|>Hi there.") == bool(history)
    system = forms.dump_messages_json([{"role": "system", "content": "Be brief."}])
    with pytest.raises(
        StageError, match=r"^comparisons: prompt-\d+: message 1 \(system\): the chat template has no such role"
    ):
        ComparisonSet(table.assign(history=system), words)


ULTRAFEEDBACK = Path(__file__).parents[4] / "shared/data/ultrafeedback"


@pytest.mark.skipif(not ULTRAFEEDBACK.is_dir(), reason=repository.needs("data/ultrafeedback"))
def test_real_pairs(tmp_path):
    """Its own test file is held out; most chosen answers have the higher scores."""
    config = CONFIG.model_copy(update={"source": "files", "path": "x"})
    metrics = run(config, *inputs(tmp_path, ULTRAFEEDBACK), tmp_path / "out")
    counted = metrics["equal_texts"] + metrics["duplicates"] + metrics["leaked"] + metrics["left_out"]
    assert sum(metrics["pairs"].values()) + counted == 1200
    assert metrics["pairs"]["test"] > 190
    train, test = (
        set(tables.read_table(Comparisons, tmp_path / f"out/{name}.parquet")["prompt"]) for name in ("train", "test")
    )
    assert not train & test
    assert metrics["given_scores"] > 0.9
