"""The stage `search` on the tests' own models: what it writes, and that its parts are those of their modules."""

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from tasks.algorithms.language import completions, reward_model, rollouts
from tasks.common import models, plots, tables
from tasks.common.errors import DataError
from tasks.extensions.search import sampling, scoring, subsets
from tasks.extensions.search.configs.search import SearchConfig
from tasks.extensions.search.policy_steps import Steps
from tasks.extensions.search.search import run
from tasks.extensions.search.tables import Accuracies, SampledAnswers
from tasks.language.data import chat
from tasks.language.rewards import reward_model_files
from tasks.language.rewards.verifier import Verifier
from tests.conftest import PARAMS
from tests.tasks.tiny import llama

CHANGES = {"problems": 3, "samples": 6, "max_new_tokens": 12, "batch_size": 2, "subsets": 20, "bootstrap": 50}


def config(**changes):
    own = {"policies": ["sft"], "beam_widths": [1, 2], "beam_expansions": 2}
    return SearchConfig.model_validate({**PARAMS["search"], **CHANGES, **own, **changes})


@pytest.fixture(scope="module")
def scored(made, tmp_path_factory):
    """A folder with a second policy, and a reward model of each objective: the policy's log-probabilities."""
    home = tmp_path_factory.mktemp("search")
    words = models.load_tokenizer(made / "pretrained")
    model = models.load_model(made / "pretrained")
    models.save_model(model, words, home / "small")
    for objective in ("pairs", "outcome", "process"):
        reward_model_files.set_reward_config(model, objective, "minimum", words)
        model.config.reward_beta = 2.0
        if objective != "pairs":
            model.config.reward_threshold = 6.0
        models.save_model(model, words, home / objective)
    return home


@pytest.fixture(scope="module")
def found(made, scored, tmp_path_factory):
    """The folder that the stage writes, its metrics beside it."""
    out = tmp_path_factory.mktemp("found") / "sft"
    metrics = run(config(), made / "pretrained", made / "problems", made / "none", scored, out)
    (out / "metrics.json").write_text(json.dumps(metrics))
    return out


def test_every_answer_has_every_score(found, made):
    table = tables.read_table(SampledAnswers, found / "answers.parquet")
    assert len(table) == 2 * 3 * (6 + 1)
    assert {*table["model"]} == {"pretrained", "small"}
    own = table[~table["greedy"]]
    assert np.allclose(own["likelihood"], own["logp"] / own["tokens"].map(len))
    assert (own["process_product"] <= own["process_minimum"] + 1e-6).all()
    same = own.drop_duplicates(["problem_id", "model"]).set_index("model")
    assert (same.loc["small", "pairs"].to_numpy() == same.loc["pretrained", "pairs"].to_numpy()).all(), "equal models"


def test_a_score_is_what_the_reward_model_says_of_the_answer_alone(found, made, scored):
    words = models.load_tokenizer(made / "pretrained")
    table = tables.read_table(SampledAnswers, found / "answers.parquet")
    given = sampling.load_test_prompts(config(), made / "problems", words)
    row = table[~table["greedy"]].iloc[7]
    number = [problem["problem_id"] for problem in given.problems].index(row["problem_id"])
    alone = completions.make_completions([given.prompts[number]], [0], [[int(one) for one in row["tokens"]]], 0)
    for objective, column in (("pairs", "pairs"), ("outcome", "outcome"), ("process", "process_minimum")):
        with torch.no_grad():
            expected = reward_model.score_responses(
                reward_model_files.load_reward_model(scored / objective), alone
            ).item()
        assert row[column] == pytest.approx(expected, rel=1e-4)


def test_all_methods_share_one_sampling(found):
    table = tables.read_table(Accuracies, found / "accuracies.parquet")
    answers = tables.read_table(SampledAnswers, found / "answers.parquet")
    own = table[table["model"] == "pretrained"]
    mean = answers[(answers["model"] == "pretrained") & ~answers["greedy"]]["tokens"].map(len).mean()
    sampled = own[~own["method"].isin(["greedy", "beam"])]
    assert sampled["tokens"].to_numpy() == pytest.approx(mean * sampled["budget"].to_numpy())
    read = sampled[sampled["method"].str.contains("pairs|outcome|process")]
    assert (read["passes"] == read["budget"]).all()
    assert (sampled.drop(read.index)["passes"] == 0).all()
    methods = {*own["method"]}
    assert {"greedy", "pass", "majority", "best_likelihood", "weighted_process_last", "beam"} <= methods
    assert {*sampled["budget"]} == {1, 2, 4, 6}


def test_metrics_are_the_table_s_ties_by_chance(found):
    table = tables.read_table(Accuracies, found / "accuracies.parquet")
    metrics = json.loads((found / "metrics.json").read_text())
    for row in tables.list_records(table[(table["ties"] == "chance") & (table["method"] != "greedy")]):
        assert metrics[row["model"]][f"{row['method']}_at_{row['budget']}"]["mean"] == row["accuracy"]
    beams = table[table["method"] == "beam"]
    assert {*beams["budget"]} == {2, 4}
    assert (beams["tokens"] > 0).all()


def test_the_page_has_the_plot_first_and_says_what_no_budget_does(found):
    page = (found / "search.html").read_text()
    assert page.index("<svg") < page.index("<table")
    assert "no budget of any method beats pretrained" in page
    assert "<script" not in page
    assert (found / "scaling.svg").read_text() in page


def test_a_run_is_the_same_again_and_needs_no_other_model(found, made, tmp_path, monkeypatch):
    """Without reward models and a small one, the policy's samples and methods are the same; its picture is of no
    interest.
    """
    monkeypatch.setattr(plots, "render_svg", lambda _, name: f'<svg id="{name}"></svg>')
    run(config(), made / "pretrained", made / "problems", made / "none", made / "none", tmp_path / "sft")
    alone, both = (
        tables.read_table(Accuracies, path / "accuracies.parquet").query(
            "model == 'pretrained' and method == 'best_likelihood'"
        )
        for path in (tmp_path / "sft", found)
    )
    pd.testing.assert_frame_equal(alone.reset_index(drop=True), both.reset_index(drop=True))
    assert not any(name in (tmp_path / "sft/search.html").read_text() for name in ("reward model (", "beam search"))


def test_more_subsets_and_other_expansions_change_what_depends_on_them(made, scored, monkeypatch):
    """Right answers are made up, as a model this small has none."""
    words = models.load_tokenizer(made / "pretrained")
    given = sampling.load_test_prompts(config(), made / "problems", words)
    policy, scorer = models.load_model(made / "pretrained"), reward_model_files.load_reward_model(scored / "process")
    costs = [
        sum(one.generated for one in Steps(config(beam_expansions=n), policy, scorer, words, given).search(1))
        for n in (1, 2, 3)
    ]
    assert all(fewer < more for fewer, more in pairwise(costs))
    votes = np.array([0, 0, 1, 1, 2, 2])
    few, many = (
        subsets.weighted_vote_accuracy(
            votes, np.linspace(0.5, 1, 6), votes == 2, subsets.draw_nested_subsets(6, count, [2, 4], (0, 0))
        ).tolist()
        for count in (3, 300)
    )
    assert few != many


def test_a_beam_of_one_takes_greedy_steps_where_the_temperature_is_near_0(made, scored):
    words = models.load_tokenizer(made / "pretrained")
    cold = config(temperature=1e-6, beam_expansions=1)
    given = sampling.load_test_prompts(cold, made / "problems", words)
    policy = models.load_model(made / "pretrained")
    steps = Steps(cold, policy, reward_model_files.load_reward_model(scored / "process"), words, given)
    found = [list(one.kept[0].tokens) for one in steps.search(1)]
    [greedy] = rollouts.sample_rollouts(
        policy,
        given.prompts,
        samples=1,
        max_new_tokens=cold.max_new_tokens,
        temperature=0.0,
        end_tokens=chat.end_tokens(policy, words),
        seed=0,
        batch_size=5,
    )
    assert found == greedy.responses()


def test_no_search_is_longer_than_an_answer_may_be(made, scored):
    words = models.load_tokenizer(made / "pretrained")
    given = sampling.load_test_prompts(config(), made / "problems", words)
    steps = Steps(
        config(),
        models.load_model(made / "pretrained"),
        reward_model_files.load_reward_model(scored / "process"),
        words,
        given,
    )
    for one in steps.search(2):
        assert one.kept[0].tokens[-1] in steps.ends or len(one.kept[0].tokens) == config().max_new_tokens
        assert max(len(candidate.tokens) for candidate in one.kept) <= config().max_new_tokens


def test_votes_are_numbers_and_right_is_the_reference(made, monkeypatch):
    """Two of the four answers are the same number in two forms; one has none."""
    words = models.load_tokenizer(made / "pretrained")
    own = config(problems=1, samples=3)
    given = sampling.load_test_prompts(own, made / "problems", words)
    given.problems[0]["answer"] = "7"
    texts = iter(["#### 7", "#### 7.0", "#### 8", "seven"])
    monkeypatch.setattr(chat, "decode_response", lambda *_: next(texts))
    with Verifier() as verifier:
        table = sampling.sample_answers(own, "sft", models.load_model(made / "pretrained"), words, given, verifier)
    assert table["vote"].tolist() == [0, 0, 1, -1]
    assert table["right"].tolist() == [True, True, False, False]


def test_models_that_do_not_fit_are_told_in_one_line(made, scored, tmp_path):
    words = models.load_tokenizer(made / "pretrained")
    (tmp_path / "outcome").symlink_to(scored / "process")
    with pytest.raises(
        DataError, match=r"outcome: a reward model of objective process; expected one of objective outcome"
    ):
        scoring.load_reward_models(tmp_path / "none", tmp_path, words)
    with pytest.raises(DataError, match=r"pairs: a second reward model of objective pairs, beside .*; expected one"):
        scoring.load_reward_models(scored / "pairs", scored, words)
    (tmp_path / "small").mkdir()
    for file in (scored / "small").iterdir():
        (tmp_path / "small" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "small/model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="small: "):
        sampling.load_sampling_policy(tmp_path / "small", words)
    other = models.load_tokenizer(made / "pretrained")
    other.add_tokens(["another"])
    other.save_pretrained(tmp_path / "small")
    with pytest.raises(DataError, match="small: the tokenizer differs from that of the policy that searches"):
        sampling.load_sampling_policy(tmp_path / "small", words)
    (tmp_path / "test.parquet").write_bytes((made / "problems/test.parquet").read_bytes())
    table = pd.read_parquet(tmp_path / "test.parquet").assign(answer="", solution="Text.")
    table.to_parquet(tmp_path / "test.parquet")
    with pytest.raises(DataError, match="has no answer; search expects one to each test problem"):
        sampling.load_test_prompts(config(), tmp_path, words)


def test_a_reward_model_with_too_few_positions_is_one_line_before_anything_is_sampled(made, tmp_path, monkeypatch):
    words = models.load_tokenizer(made / "pretrained")
    short = llama(vocab_size=len(words), max_position_embeddings=16)
    monkeypatch.setattr(scoring, "load_reward_models", lambda *_: {"pairs": short})
    monkeypatch.setattr(sampling, "load_sampling_policy", lambda *_: pytest.fail("it has begun"))
    with pytest.raises(DataError, match=r"the model has 16 positions .* search\.max_new_tokens = "):
        run(config(), made / "pretrained", made / "problems", made / "none", tmp_path, tmp_path / "out")


def test_rows_without_a_token_are_never_sampled(made, tmp_path):
    """As with every other way to load a model (tests/tasks/common/test_model_files.py)."""
    words = models.load_tokenizer(made / "pretrained")
    wide = models.load_model(made / "pretrained")
    wide.resize_token_embeddings(len(words) + 3)
    with torch.no_grad():
        wide.get_output_embeddings().weight[len(words) :] = 9.0
    models.save_model(wide, words, tmp_path)
    logits = sampling.load_sampling_policy(tmp_path, words)(input_ids=torch.tensor([[1, 2]]), use_cache=False).logits
    assert logits.shape[-1] == len(words) + 3
    assert logits[..., len(words) :].eq(-torch.inf).all()
    assert logits[..., : len(words)].isfinite().all()
