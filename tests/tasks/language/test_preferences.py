import pandas as pd
import pytest

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.language.configs.preferences import PreferencesConfig
from tasks.language.preferences import _metrics, run
from tasks.language.tables.preferences import Annotations, Comparisons
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tests.conftest import PARAMS

CHANGES = {"seed": 3, "temperature": 0.0, "tie_margin": 0.0, "strong_margin": 5.0, "test_share": 0.25}
CONFIG = PreferencesConfig.model_validate({**PARAMS["preferences"], **CHANGES})
RIGHT, SLIP, WRONG, CUT = "3 + {n} = {s}\n#### {s}", "3 + {n} = {s}\n#### 99", "#### 99", "3 + {n} = {s}\n#### {s}"


@pytest.fixture
def stage(tmp_path):
    """Twenty prompts with four answers each, worth 10, 3 + 3 + 1, 2 and (cut off) 9 points."""
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
    tables.write(Problems, pd.DataFrame(problems), tmp_path / "problems" / "train.parquet")
    tables.write(Responses, pd.DataFrame(responses), tmp_path / "responses" / "responses.parquet")

    def go(name="out", **changes):
        out = tmp_path / name
        metrics = run(CONFIG.model_copy(update=changes), tmp_path / "responses", tmp_path / "problems", out)
        return metrics, out

    return go


def comparisons(out):
    frames = [tables.read(Comparisons, out / f"{name}.parquet") for name in ("train", "test")]
    return pd.concat(frames, ignore_index=True)


def test_scores_ranks_and_pairs_of_a_perfect_annotator(stage):
    metrics, out = stage()
    annotations = tables.read(Annotations, out / "annotations.parquet")
    one = annotations[annotations["prompt_id"] == "train-5"].sort_values("sample")
    assert one["total"].tolist() == [2, 10, 7, 9]
    assert one["rank"].tolist() == [4, 1, 3, 2]
    pairs = comparisons(out)
    assert len(pairs) == 20 * 5  # 6 pairs of 4, less the one of equal texts
    assert (pairs["chosen_score"] > pairs["rejected_score"]).all()
    assert metrics["flipped"] == metrics["ties"] == metrics["equal_scores"] == 0
    assert metrics["score"] == {"correctness": 3.25, "reasoning": 2.25, "clarity": 1.5, "total": 7.0}


def test_pairs_carry_the_tokens_that_were_sampled(stage):
    pairs = comparisons(stage()[1])
    sample_of = {10: 1, 9: 3, 7: 2, 2: 0}
    for row in pairs.itertuples():
        n = int(row.prompt_id.removeprefix("train-"))
        assert list(row.chosen_tokens) == [n, sample_of[row.chosen_score], 2]
        assert list(row.rejected_tokens) == [n, sample_of[row.rejected_score], 2]


def test_strength_follows_the_presented_order(stage):
    pairs = comparisons(stage()[1])
    first = pairs["comparison_id"].str.extract(r"/(\d)-(\d)").astype(int)[0]
    score_of_first = first.map({0: 2, 1: 10, 2: 7, 3: 9})
    a_preferred = pairs["chosen_score"] == score_of_first
    assert (pairs["strength"].str.startswith("a") == a_preferred).all()
    assert 0.3 < a_preferred.mean() < 0.7  # the order shown is random
    gap = pairs["chosen_score"] - pairs["rejected_score"]
    assert (pairs["strength"].str.contains("slightly") == (gap < 5)).all()


def test_no_prompt_is_in_both_splits(stage):
    metrics, out = stage()
    train, test = (set(tables.read(Comparisons, out / f"{n}.parquet")["prompt_id"]) for n in ("train", "test"))
    assert not train & test
    assert (len(train), len(test)) == (15, 5)
    assert metrics["pairs"] == {"train": 75, "test": 25}


def test_ties_give_no_pairs(stage):
    metrics, out = stage(tie_margin=1.0)  # 10 and 9 tie
    assert metrics["ties"] == pytest.approx(1 / 6)
    gaps = comparisons(out)["chosen_score"] - comparisons(out)["rejected_score"]
    assert gaps.min() > 1


def test_noise_flips_pairs(stage):
    metrics, out = stage(temperature=3.0)
    pairs = comparisons(out)
    assert 0.1 < (pairs["chosen_score"] < pairs["rejected_score"]).mean() < 0.5
    assert metrics["flipped"] == (pairs["chosen_score"] < pairs["rejected_score"]).mean()


def test_flipped_counts_what_the_scores_tell_apart():
    """Of four comparisons three have different scores, and one of those three prefers the answer with the lower score."""
    gaps = [(7, 3), (2, 10), (5, 5), (9, 8)]
    compared = pd.DataFrame(
        {
            "chosen_score": [chosen for chosen, _ in gaps],
            "rejected_score": [rejected for _, rejected in gaps],
            "strength": "a better",
        }
    )
    annotated = pd.DataFrame({"prompt_id": ["p", "p"], "rank": [1, 2]})
    for name in ("correctness", "reasoning", "clarity", "total"):
        annotated[name] = 1
    metrics = _metrics(annotated, compared, compared["chosen_score"] > 6)
    assert metrics["flipped"] == pytest.approx(1 / 3)
    assert metrics["equal_scores"] == pytest.approx(1 / 4)


def test_a_tie_margin_hides_noise(stage):
    """Noise flips the closest comparisons, and a margin removes these."""
    near, far = (stage(str(margin), temperature=3.0, tie_margin=margin)[0] for margin in (0.0, 2.0))
    assert near["flipped"] > far["flipped"] > 0
    assert near["ties"] == 0 < far["ties"]


def test_the_seed_decides(stage):
    outs = [stage(name, temperature=1.0, seed=seed)[1] for name, seed in (("one", 3), ("two", 3), ("three", 4))]
    one, two, three = ((out / "train.parquet").read_bytes() for out in outs)
    assert one == two != three


def test_no_pairs_at_all_is_said(stage):
    with pytest.raises(StageError, match="no training pairs: all responses to those prompts tie"):
        stage(tie_margin=10.0)
