"""The stage steering on tiny models: what it writes is what its parts say."""

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.algorithms.language import completions, reward_model
from tasks.common import models, plots, tables
from tasks.common.errors import DataError
from tasks.extensions.reviews import continuations, reviews
from tasks.extensions.reviews.configs.reviews import ReviewsConfig
from tasks.extensions.reviews.configs.steering import SteeringConfig
from tasks.extensions.reviews.steering import fit_second_classifier, run
from tasks.extensions.reviews.tables.reviews import Reviews
from tasks.extensions.reviews.tables.steering import Continuations, SteeringMeasures
from tasks.language.data import chat
from tasks.language.rewards import reward_model_files
from tests.conftest import PARAMS
from tests.tasks import solved

SMALL = {"corpus": 5, "train": 5, "test": 2, "reward": 10, "second": 40, "held_out": 12}


def config(**changes):
    own = {"pages": {"page": {"policies": ["ppo", "grpo"]}}, "openings": 4, "samples": 2, "max_new_tokens": 6}
    return SteeringConfig.model_validate(
        {**PARAMS["steering"], **own, "batch_size": 3, "bootstrap": 50, "shown": 2, **changes}
    )


@pytest.fixture(scope="module")
def home(made, tmp_path_factory):
    """A reference, a reward model of answers, and three policies, of which grpo is the reference itself."""
    root = tmp_path_factory.mktemp("steering")
    reviews.run(ReviewsConfig.model_validate({**PARAMS["reviews"], **SMALL}), root, root / "reviews")
    words = models.load_tokenizer(made / "pretrained")
    for name in ("sft", "ppo", "grpo", "reinforce"):
        model = models.load_model(made / "pretrained")
        if name == "ppo":
            torch.manual_seed(1)
            with torch.no_grad():
                for weight in model.parameters():
                    weight += 0.05 * torch.randn_like(weight)
        models.save_model(model, words, root / name)
    solved.outcome_model(root / "sft", root / "reward_model")
    (root / "problems").mkdir()
    (root / "problems/test.parquet").write_bytes((made / "problems/test.parquet").read_bytes())
    return root


def steered(home, out, **changes):
    policies = [home / name for name in ("reinforce", "ppo", "grpo")]
    given = (home / "reviews", home / "problems", home / "sft", home / "reward_model", policies)
    return run(config(**changes), *given, out)


@pytest.fixture(scope="module")
def found(home):
    """The metrics and the folder of the page, whose second picture, drawn as the first is, is left out."""
    write_out = plots.render_svg
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plots, "render_svg", lambda figure, name: write_out(figure, name) if name == "steering-kl" else "<svg/>"
        )
        return steered(home, home / "out/page"), home / "out/page"


def test_each_policy_of_the_page_continues_each_opening(found, home):
    table = tables.read_table(Continuations, found[1] / "continuations.parquet")
    assert table["policy"].value_counts().to_dict() == {"sft": 8, "ppo": 8, "grpo": 8}
    asked = pd.read_parquet(home / "problems/test.parquet")["question"].head(4)
    assert [*table["opening"].unique()] == [*asked]
    sft, ppo, grpo = (table[table["policy"] == name].reset_index(drop=True) for name in ("sft", "ppo", "grpo"))
    assert sft.drop(columns="policy").equals(grpo.drop(columns="policy")), "the same model"
    np.testing.assert_allclose(sft["logp"], sft["reference"], atol=1e-4)
    assert (ppo["logp"] - ppo["reference"]).abs().max() > 0.1


def test_a_probability_is_what_a_classifier_says_of_the_text_alone(home):
    table = tables.read_table(Reviews, home / "reviews/reviews.parquet")
    second = fit_second_classifier(config(), table[table["part"] == "second"])
    judges = continuations.load_judges(home / "sft", home / "reward_model", second)
    held_out = table[table["part"] == "held_out"]
    found = continuations.compute_classifier_probabilities(judges, held_out)
    row = held_out.iloc[5]
    answer = chat.encode_response(judges.tokenizer, row["continuation"], ended=True)
    alone = completions.make_completions([chat.encode_prompt(judges.tokenizer, row["opening"])], [0], [answer], 0)
    with torch.no_grad():
        first = reward_model.score_responses(reward_model_files.load_reward_model(home / "reward_model"), alone).item()
    assert found["first"].iloc[5] == pytest.approx(first, rel=1e-4)
    assert found["second"].iloc[5] == second.positive([f"{row['opening']} {row['continuation']}"])[0]


def test_metrics_are_the_table_s(found):
    metrics, out = found
    for row in tables.list_records(tables.read_table(SteeringMeasures, out / "steering_measures.parquet")):
        place = metrics[row["policy"]]
        for part in row["measure"].split("/"):
            place = place[part]
        assert (place["mean"], place["low"], place["high"]) == (row["mean"], row["low"], row["high"])
    assert metrics["sft"]["kl"]["mean"] == pytest.approx(0.0, abs=1e-4)
    assert metrics["grpo"]["over_sft"]["second"]["mean"] == 0.0
    assert "over_sft" not in metrics["sft"]


def with_other_labels(home, out, part, policies=("ppo", "grpo")):
    """The stage on reviews whose labels in `part` are the opposite; it writes to out/page.

    The pictures are of no interest.
    """
    table = tables.read_table(Reviews, home / "reviews/reviews.parquet")
    tables.write_table(
        Reviews, table.assign(positive=table["positive"] ^ (table["part"] == part)), out / "reviews.parquet"
    )
    given = (home / "problems", home / "sft", home / "reward_model", [home / name for name in policies])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "render_svg", lambda _, name: f'<svg id="{name}"></svg>')
        run(config(pages={"page": {"policies": [*policies]}}), out, *given, out / "page")


def test_a_run_is_the_same_again_whatever_the_reward_model_learnt_from(found, home, tmp_path):
    """The labels in the part of the reward change nothing."""
    with_other_labels(home, tmp_path, "reward")
    for file in ("continuations.parquet", "steering_measures.parquet"):
        assert (tmp_path / "page" / file).read_bytes() == (found[1] / file).read_bytes()


def test_the_second_classifier_learns_from_its_own_labels(found, home, tmp_path):
    with_other_labels(home, tmp_path, "second", policies=["ppo"])
    again, before = (pd.read_parquet(out / "continuations.parquet") for out in (tmp_path / "page", found[1]))
    before = before[before["policy"] != "grpo"].reset_index(drop=True)
    assert not again["second"].equals(before["second"])
    assert again["first"].equals(before["first"])


def test_the_page_has_pictures_first_and_runs_nothing(found):
    page = (found[1] / "steering.html").read_text()
    assert page.index("<svg") < page.index("<table")
    assert "<script" not in page
    assert page.count('<section class="sample">') == 2
    assert (found[1] / "steering.md").read_text().startswith("# Positive-review steering\n\nOf sft's continuations ")


def test_what_does_not_fit_is_told_in_one_line(home, tmp_path):
    words, model = models.load_tokenizer(home / "sft"), models.load_model(home / "sft")
    model.config.reward_beta = 2.0
    models.save_model(model, words, tmp_path / "pairs")
    given = (home / "reviews", home / "problems", home / "sft", tmp_path / "pairs", [home / "ppo"])
    with pytest.raises(
        DataError, match="a reward model of objective pairs; expected outcome, whose score is a probability"
    ):
        run(config(pages={"page": {"policies": ["ppo"]}}), *given, tmp_path / "page")
